"""The forms of set fine-tuning: logits of all products from a query's vector and from the user's own purchases.

generic: z_i = (A q) · E_i + b_i, as the paper's heads. A starts at 0 and b at the log of the products' popularity.
The others mix a repeat term r into it for the products of the history H: log(exp z_i + exp(a + r_i)) with a learnt gate
a, so that a product is bought again or bought as anybody would. z_i + r_i would make the term unlearn how popular a
product is before it can say how likely this user is to buy it.
copy: r_i = logsumexp over i's occurrences of (W q) · t / √d, less the log of the number of baskets, with t the
encoder's output at the occurrence. With W = 0, where it starts, this is the log of the share of baskets that hold i.
hybrid: r_i = the log of that share with later baskets weighing more, and an MLP of q, E_i and the personal features of
(user, i). The MLP starts at 0, so that training starts from own counts blended with popularity.
features: r_i likewise, its MLP of the personal features alone, and z_i = b_i: what the hybrid is without NEST.

E and b are per token, so that products without a token share [UNK]'s; those are ranked only where the user has bought
them, and only by the forms that have a term for it.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.next_set.nest_backbone import NO_ITEM, PackedHistories
from nest_model.next_set.set_forms import SetForm
from schemas.tables.vocab import UNK

HIDDEN = 64
FIRST_GATE = math.log(9)
"""The repeat term's weight against popularity at the start, as in the yardstick that blends them nine to one."""

UNREAD = -20.0
"""The repeat term of a purchase that the encoder's limits leave out."""


@dataclass(frozen=True)
class HistoryProducts:
    """The distinct products of each history in a batch, by user and product."""

    user: Tensor  # i64 [pairs]
    item: Tensor  # i64 [pairs]
    features: Tensor  # f32 [pairs, features], standardised
    log_share: Tensor  # f32 [pairs], of the user's decayed baskets, those that hold the product
    baskets: Tensor  # f32 [pairs], how many the user has


@dataclass(frozen=True)
class Occurrences:
    """The lines of the histories in a batch that the encoder read."""

    pair: Tensor  # i64 [lines], place in `HistoryProducts`
    states: Tensor  # f32 [lines, d]

    @classmethod
    def of(
        cls, packed_histories: PackedHistories, states: Tensor, purchases: HistoryProducts, products: int
    ) -> "Occurrences":
        """Find the purchase each line of packed histories belongs to.

        Args:
            states: the encoder's output at every row, [rows, d].
        """
        lines = (packed_histories.item_of_row != NO_ITEM).nonzero().squeeze(1)
        keys = packed_histories.user_of_row[lines] * products + packed_histories.item_of_row[lines]
        pair = torch.searchsorted(purchases.user * products + purchases.item, keys)
        return cls(pair, states.index_select(0, lines).float())


class SetModel(nn.Module):
    """Logits of all products.

    Args:
        token_of_product: i64 [products].
        table: f32 [tokens, d], where E starts; for the form `features` only its number of rows matters.
        bias: f32 [tokens], where b starts.
        features: number of personal features.
    """

    token_of_product: Tensor

    def __init__(
        self,
        form: SetForm,
        token_of_product: np.ndarray,
        table: Tensor,
        bias: Tensor,
        features: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.form: SetForm = form
        self.register_buffer("token_of_product", torch.from_numpy(token_of_product))
        self.bias = nn.Parameter(bias.clone())
        self.dropout = nn.Dropout(dropout)
        width = table.shape[1]
        if form != "features":
            self.table = nn.Parameter(table.clone())
            self.project = nn.Linear(width, width, bias=False)
            nn.init.zeros_(self.project.weight)
        if form != "generic":
            self.gate = nn.Parameter(torch.tensor(FIRST_GATE))
        if form == "copy":
            self.copy = nn.Linear(width, width)
            nn.init.zeros_(self.copy.weight)
            nn.init.zeros_(self.copy.bias)
        if form in ("hybrid", "features"):
            inputs = features + (2 * width if form == "hybrid" else 0)
            self.dense, self.out = nn.Linear(inputs, HIDDEN), nn.Linear(HIDDEN, 1)
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.out.bias)

    def forward(
        self, query: Tensor, purchases: HistoryProducts, occurrences: Occurrences | None = None
    ) -> Tensor:
        """Return logits, f32 [users, products]; -inf for products that are not ranked.

        Args:
            query: f32 [users, d]; the form `features` reads its number of rows alone.
            occurrences: for the form `copy`.
        """
        query = self.dropout(query)
        of_token = self.bias.expand(len(query), -1)
        if self.form != "features":
            of_token = of_token + self.project(query) @ self.table.T
        logits = of_token.index_select(1, self.token_of_product)
        at = purchases.user, purchases.item
        is_ranked = (self.token_of_product != UNK).repeat(len(query), 1)
        if self.form == "generic":
            return logits.masked_fill(~is_ranked, -math.inf)
        is_ranked[at] = True
        repeats = self.gate + self._repeats(query, purchases, occurrences)
        logits = logits.index_put(at, torch.logaddexp(logits[at], repeats))
        return logits.masked_fill(~is_ranked, -math.inf)

    def _repeats(self, query: Tensor, purchases: HistoryProducts, occurrences: Occurrences | None) -> Tensor:
        """Return the term of products bought before, f32 [pairs]."""
        if self.form == "copy":
            assert occurrences is not None
            return self._copy(query, purchases, occurrences)
        inputs = purchases.features
        if self.form == "hybrid":
            tokens = self.token_of_product.index_select(0, purchases.item)
            rows = query.index_select(0, purchases.user), self.table.index_select(0, tokens)
            inputs = torch.cat([*rows, inputs], dim=1)
        activations = self.dropout(F.gelu(self.dense(inputs)))
        repeats: Tensor = purchases.log_share + self.out(activations).squeeze(1)
        return repeats

    def _copy(self, query: Tensor, purchases: HistoryProducts, occurrences: Occurrences) -> Tensor:
        """Return the log of each purchase's mean weight over the baskets, f32 [pairs]."""
        pair, states = occurrences.pair, occurrences.states
        user = purchases.user.index_select(0, pair)
        queries = self.copy(query).index_select(0, user)
        scores = (queries * states).sum(1) / math.sqrt(states.shape[1])
        zeros = scores.new_zeros(len(purchases.item))
        peak = (zeros - math.inf).scatter_reduce(0, pair, scores.detach(), "amax")
        is_read = peak > -math.inf
        peak = peak.masked_fill(~is_read, 0)
        sums = zeros.index_add(0, pair, (scores - peak.index_select(0, pair)).exp())
        repeats = peak + sums.masked_fill(~is_read, 1).log() - purchases.baskets.log()
        return torch.where(is_read, repeats, UNREAD)


def set_loss(logits: Tensor, example: Tensor, item: Tensor, loss: str) -> Tensor:
    """Return the sum of the examples' losses.

    softmax: -(1 / |T|) Σ_{i in T} log softmax(s)_i: up to a constant, KL from the even distribution over T.
    bce: the cross-entropy of every ranked product, whether it is in T.

    Args:
        logits: [examples, products].
        example, item: i64 [truths], T's products, each ranked.
    """
    if loss == "softmax":
        sizes = torch.bincount(example, minlength=len(logits))
        # examples without a target carry no loss
        log_shares = logits.index_select(0, example)[torch.arange(len(item)), item]
        log_shares = log_shares - logits.logsumexp(1).index_select(0, example)
        return -(log_shares / sizes.index_select(0, example)).sum()
    is_ranked = logits > -math.inf
    targets = torch.zeros_like(logits).index_put((example, item), logits.new_ones(()))
    losses = F.binary_cross_entropy_with_logits(logits.masked_fill(~is_ranked, 0), targets, reduction="none")
    has_target = torch.bincount(example, minlength=len(logits)) > 0
    return losses.masked_fill(~is_ranked, 0)[has_target].sum()

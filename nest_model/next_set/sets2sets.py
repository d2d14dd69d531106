"""Sets2Sets (Hu & He, KDD 2019), modified: of the gate between a decoder and the user's own counts, the diagonal.

The published gate has a weight for every pair of products, which a shop of 50,000 cannot hold. Here a product's gate
reads the product's own share of the user's baskets. Attention is by products of states, so that histories may have any
length. One basket is asked for, so the decoder makes one step.

Where training starts is ours too. As published, gates start half open and logits at zero: the user's own products lead
by half their shares, whatever anybody bought next overtakes them within some dozens of steps, and the gates, which move
by about the learning rate a step, need thousands to open. A shop of a thousand users has some hundreds. So gates start
open, and the decoder's logits below any share.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from nest_model.data.seqsets import expand_ranges
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.frequent import Everybody, user_products
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.ranking import Ranking
from nest_model.next_set.sets2sets_options import Sets2SetsOptions
from nest_model.next_set.system import Recommender, Tools
from nest_model.next_set.validation_users import BestEpoch

_USERS_AT_A_TIME = 256


@dataclass(frozen=True)
class HistoryBatch:
    """The histories of some users, as the model reads them."""

    items: Tensor  # i64 [lines], basket by basket
    basket_offsets: Tensor  # i64 [baskets], where a basket's lines begin
    lengths: Tensor  # i64 [users], baskets, on the CPU
    shares: Tensor  # f32 [users, products], of the user's baskets that hold the product

    @classmethod
    def of(cls, baskets: Baskets, device: torch.device) -> Self:
        user, item, pair = user_products(baskets)
        shares = np.zeros((len(baskets), baskets.products), dtype=np.float32)
        shares[user, item] = np.bincount(pair, minlength=len(user)) / baskets.lengths[user]
        return cls(
            torch.from_numpy(baskets.items.astype(np.int64)).to(device),
            torch.from_numpy(baskets.item_offsets[:-1]).to(device),
            torch.from_numpy(baskets.lengths),
            torch.from_numpy(shares).to(device),
        )


class DiagonalSets2Sets(nn.Module):
    """The logits of the next basket's products.

    Args:
        is_seen: bool [products], whether training knows the product; others are read as zeros.
        start_gate: the logit of every gate before training.
        start_level: the decoder's logit of every product before training, up to the random weights.
    """

    def __init__(
        self, is_seen: Tensor, hidden_size: int, *, start_gate: float = 0.0, start_level: float = 0.0
    ) -> None:
        super().__init__()
        products = len(is_seen)
        self.read = nn.Embedding(products, hidden_size)
        self.write = nn.Embedding(products, hidden_size)
        with torch.no_grad():
            for table in (self.read, self.write):
                table.weight.mul_(is_seen[:, None])
        self.encoder = nn.GRU(hidden_size, hidden_size, batch_first=True)
        self.query = nn.Linear(2 * hidden_size, hidden_size, bias=False)
        self.combine = nn.Linear(2 * hidden_size, hidden_size)
        self.decoder = nn.GRUCell(hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, products)
        nn.init.constant_(self.out.bias, start_level)
        self.gate_weight = nn.Parameter(torch.zeros(products))
        self.gate_bias = nn.Parameter(torch.full((products,), start_gate))

    def forward(self, batch: HistoryBatch) -> Tensor:
        """Return the logits, f32 [users, products]."""
        baskets = F.embedding_bag(batch.items, self.read.weight, batch.basket_offsets, mode="mean")
        padded_baskets = nn.utils.rnn.pad_sequence(baskets.split(batch.lengths.tolist()), batch_first=True)
        packed_baskets = pack_padded_sequence(
            padded_baskets, batch.lengths, batch_first=True, enforce_sorted=False
        )
        packed_states, last = self.encoder(packed_baskets)
        states, _ = pad_packed_sequence(packed_states, batch_first=True)
        state = last[0]
        latest = self._last_baskets(batch)
        read = self._attend(torch.cat([latest, state], dim=1), states, batch.lengths)
        step = self.combine(torch.cat([latest, read], dim=1)).relu()
        return self._gated(self.out(self.decoder(step, state)), batch.shares)

    def _last_baskets(self, batch: HistoryBatch) -> Tensor:
        """Return the mean of each user's last basket in the decoder's table, f32 [users, hidden]."""
        device = batch.items.device
        ends = batch.lengths.cumsum(0).to(device)
        starts = torch.cat([batch.basket_offsets, batch.basket_offsets.new_tensor([len(batch.items)])])
        sizes = starts[ends] - starts[ends - 1]
        lines = expand_ranges(starts[ends - 1].cpu().numpy(), sizes.cpu().numpy())
        offsets = sizes.cumsum(0) - sizes
        return F.embedding_bag(
            batch.items[torch.from_numpy(lines).to(device)], self.write.weight, offsets, mode="mean"
        )

    def _attend(self, query: Tensor, states: Tensor, lengths: Tensor) -> Tensor:
        """Return the encoder's outputs weighted by their product with the query, f32 [users, hidden]."""
        weights = (states @ self.query(query)[:, :, None])[:, :, 0]
        is_padding = torch.arange(states.shape[1]) >= lengths[:, None]
        weights = weights.masked_fill(is_padding.to(weights.device), -math.inf).softmax(dim=1)
        read: Tensor = (weights[:, None] @ states)[:, 0]
        return read

    def _gated(self, decoder_logits: Tensor, shares: Tensor) -> Tensor:
        """Return the decoder's logits, those of the user's own products in part replaced by their shares."""
        gate = torch.sigmoid(self.gate_weight * shares + self.gate_bias)
        logits: Tensor = decoder_logits * (1 - (shares > 0) * gate) + shares * gate
        return logits


def product_weights(popularity: Tensor, power: float) -> Tensor:
    """Return the weight of each product's square in the loss, f32 [products]: of rare products high, of unseen ones 0.

    Args:
        popularity: f32 [products], training baskets that hold the product.
        power: of the highest popularity over the product's.
    """
    ratio = popularity.max() / popularity.clamp_min(1)
    return torch.where(popularity > 0, ratio**power, 0.0)


def set_loss(logits: Tensor, truth: Tensor, weights: Tensor, pair_weight: float) -> Tensor:
    """Return the mean loss of the users: weighted squares of softmax(logits) - truth, and the pairs' term.

    The pairs' term is the mean over (bought, other) of exp(-(p_bought - p_other)), which is a product of two means.

    Args:
        logits: f32 [users, products].
        truth: f32 [users, products], 1 for what the next basket holds.
        weights: f32 [products].
    """
    shares = logits.softmax(dim=1)
    squares = (weights * (shares - truth).square()).sum(dim=1)
    purchase_count, other_count = truth.sum(dim=1).clamp_min(1), (1 - truth).sum(dim=1).clamp_min(1)
    of_bought = (truth * (-shares).exp()).sum(dim=1) / purchase_count
    of_others = ((1 - truth) * shares.exp()).sum(dim=1) / other_count
    return (squares + pair_weight * of_bought * of_others).mean()


class Sets2SetsRecommender(Recommender):
    """A model and what ranking needs beside it."""

    def __init__(
        self, model: DiagonalSets2Sets, everybody: Everybody, is_seen: np.ndarray, device: torch.device
    ) -> None:
        self.model, self.everybody, self._device = model, everybody, device
        self.nameable = (
            everybody.product_id
        )  # of a product nobody trained on, the user's own share says enough
        self._is_seen = is_seen

    def rank(self, histories: Histories, k: int) -> Ranking:
        self.model.eval()
        empty = Ranking(np.empty((0, k), dtype=np.int64), np.empty((0, k)))
        with torch.no_grad():
            parts = [
                self._rank(histories.baskets.take(np.arange(block.start, block.stop)), k)
                for block in histories.baskets.blocks(_USERS_AT_A_TIME)
            ]
        return Ranking.joined(parts or [empty])

    def _rank(self, baskets: Baskets, k: int) -> Ranking:
        batch = HistoryBatch.of(baskets, self._device)
        scores = self.model(batch).cpu().numpy()
        # of a product that training never saw, only the user's own share says anything
        scores[~self._is_seen & (batch.shares.cpu().numpy() == 0)] = -np.inf
        return self.everybody.order.rank_dense(scores, baskets.product_id, k)


def fit_sets2sets(
    data: LearningData, validation: Questions | None, *, options: Sets2SetsOptions, tools: Tools, seed: int
) -> Sets2SetsRecommender:
    """Train on the last basket of every training user who has an earlier one.

    Args:
        validation: decides which epoch is taken; None: the last.
    """
    device = tools.fabric().device
    everybody = Everybody(data)
    # of the users it trains on, who may be a sample: what none of them bought has no trained row
    counts = np.bincount(data.training.items, minlength=data.training.products)
    popularity = torch.from_numpy(counts).float()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = DiagonalSets2Sets(
            popularity > 0, options.hidden, start_gate=options.start_gate, start_level=options.start_level
        ).to(device)
    recommender = Sets2SetsRecommender(model, everybody, counts > 0, device)
    weights = product_weights(popularity, options.weight_power).to(device)
    baskets = data.training.take(np.flatnonzero(data.training.lengths > 1))
    optimizer = torch.optim.Adam(model.parameters(), options.rate)
    shuffle = np.random.default_rng(seed)
    progress = tools.telemetry.progress("training", total=options.epochs * len(baskets), unit="users")
    best = BestEpoch(model, recommender, validation, tools.telemetry)
    for epoch in range(options.epochs):
        model.train()
        for batch, truth in _batches(baskets, shuffle.permutation(len(baskets)), options.batch_users, device):
            loss = set_loss(model(batch), truth, weights, options.pair_weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress.advance(len(truth))
        best.score(epoch)
    best.restore()
    return recommender


def _batches(
    baskets: Baskets, users: np.ndarray, size: int, device: torch.device
) -> Iterator[tuple[HistoryBatch, Tensor]]:
    """Yield the histories of users before their last basket, and what that holds, f32 [users, products]."""
    for start in range(0, len(users), size):
        part = baskets.take(users[start : start + size])
        label = part.last(np.ones(len(part), dtype=np.int64))
        truth = np.zeros((len(part), part.products), dtype=np.float32)
        truth[label.user_of_line, label.items] = 1
        yield HistoryBatch.of(part.first(part.lengths - 1), device), torch.from_numpy(truth).to(device)

"""Train BERT4Rec on the baskets of a shop; rank products with it, or take it as the backbone of a hybrid.

It is trained within `fit` by the loop of every other training, and chosen by the NDCG of the validation users' next
baskets. Nothing is saved in between: a killed fit begins again.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from nest_model.data.locations import ShardRows
from nest_model.data.packed import micro_batches
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.bert_masking import mask_rows
from nest_model.next_set.bert_model import BertBatch, BertModel, Guesses
from nest_model.next_set.bert_options import BertOptions
from nest_model.next_set.bert_rows import FIRST, BertRows, ProductTokens, latest, rows_of
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.ranking import Ranking, TieOrder
from nest_model.next_set.system import Recommender, Tools
from nest_model.next_set.validation_users import disclosable, evenly_spread, validation_scores
from nest_model.recipe import Recipe
from nest_model.training.ranks import split_step
from nest_model.training.runtime import Runtime
from nest_model.training.state import StateFolder, TrainingState
from nest_model.training.stop import Stopped, StopRequest
from nest_model.training.trainer import fit as train
from schemas.errors import NestError
from schemas.nouns import with_noun

log = logging.getLogger("nest")

ROWS_AT_ONCE = 16_384
LOGITS_AT_ONCE = 1 << 24
BertReadout = Literal["cls", "mask"]


class BertRecommender(Recommender):
    """A trained BERT that ranks every product with a token."""

    def __init__(
        self,
        model: BertModel,
        tokens: ProductTokens,
        data: LearningData,
        options: BertOptions,
        fabric: Fabric,
    ) -> None:
        self.model, self.tokens, self.options, self._fabric = model, tokens, options, fabric
        self._order = TieOrder.by_popularity(data.popularity())
        self._product_id = data.training.product_id
        self.nameable = np.sort(self._product_id[tokens.item_of_token])

    def rank(self, histories: Histories, k: int) -> Ranking:
        return Ranking.joined([self._list(logits, k) for logits in self._logits(histories)])

    def states(self, histories: Histories) -> tuple[Tensor, Tensor]:
        """Return each user's [CLS] and [MASK] output, f32 [users, d_model] each, on the CPU."""
        parts = [(cls.float().cpu(), mask.float().cpu()) for cls, mask in self._states(histories)]
        if not parts:
            return torch.empty(0, self.options.d_model), torch.empty(0, self.options.d_model)
        cls, mask = zip(*parts, strict=True)
        return torch.cat(cls), torch.cat(mask)

    def log_cut(self, baskets: Baskets) -> None:
        """Log the share of the training users' lines that the limit of tokens leaves out."""
        recent = latest(baskets, self.options.max_tokens - 2)
        share = 1 - len(recent.items) / max(len(baskets.items), 1)
        log.info(
            "bert: the latest %s tokens leave out %.1f%% of the lines of the training users",
            f"{self.options.max_tokens:,}",
            100 * share,
        )

    def _list(self, logits: Tensor, k: int) -> Ranking:
        scores = np.full((len(logits), len(self._product_id)), -np.inf, dtype=np.float32)
        scores[:, self.tokens.item_of_token] = logits.cpu().numpy()
        return self._order.rank_dense(scores, self._product_id, k)

    def _logits(self, histories: Histories) -> Iterator[Tensor]:
        for _, states in self._states(histories):
            with torch.no_grad(), self._fabric.autocast():
                yield self.model.logits(states)

    def _states(self, histories: Histories) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the [CLS] and [MASK] output of some users at a time."""
        self.model.eval()
        baskets = latest(histories.baskets, self.options.max_tokens - 2)
        rows = rows_of(baskets, self.tokens, with_query=True)
        users = max(LOGITS_AT_ONCE // max(len(self._product_id), 1), 1)
        for first in range(0, len(rows), users):
            block = rows.take(np.arange(first, min(first + users, len(rows))))
            for run in micro_batches(block.lengths, ROWS_AT_ONCE):
                part = block.take(np.arange(run.start, run.stop))
                batch = BertBatch.of(part, self._fabric.device)
                ends = torch.stack([batch.offsets[:-1], batch.offsets[1:] - 1], dim=1).flatten()
                with torch.no_grad(), self._fabric.autocast():
                    states = self.model.states(batch, ends)
                yield states[0::2], states[1::2]


def fit_bert(
    data: LearningData, validation: Questions | None, options: BertOptions, seed: int, tools: Tools
) -> BertRecommender:
    """Train BERT on the training users and keep the epoch with the best NDCG on the validation users.

    Args:
        validation: None: the model of the last epoch is kept.

    Raises:
        NestError: there is nothing to learn from, or the loss is not finite.
    """
    corpus = data.histories if options.without_labels else data.training
    tokens = ProductTokens.of(corpus, options.min_count)
    is_token = tokens.token_of_item[corpus.items] >= FIRST
    if not is_token.any():
        raise NestError(
            f"bert: no product is in {with_noun(options.min_count, 'basket')} that it may learn from; lower "
            "--option min_count, or give --option without_labels=false if users have one basket each."
        )
    fabric = tools.fabric()
    torch.manual_seed(seed)
    lines = np.bincount(corpus.items[is_token], minlength=corpus.products)[tokens.item_of_token]
    model = BertModel(options, torch.from_numpy(lines / lines.sum()).float()).to(fabric.device)
    bert = BertRecommender(model, tokens, data, options, fabric)
    bert.log_cut(corpus)
    rows = rows_of(latest(corpus, options.max_tokens - 2), tokens, with_query=False)
    has_token = np.bincount(rows.user_of_row, rows.tokens >= FIRST, minlength=len(rows)) > 0
    task = BertTask(bert, rows.take(np.flatnonzero(has_token)), validation, options, fabric)
    recipe = Recipe(
        learning_rate=options.learning_rate,
        epochs=options.epochs,
        patience=options.patience,
        decays="matrices",
        clip_norm=1.0,
        warmup_share=0.05,
        decay="cosine",
        examples_per_step=options.users_per_step,
    )
    telemetry = tools.telemetry.with_curves_in(tools.scratch / f"bert-{seed}")
    runtime = Runtime(fabric, telemetry, StopRequest(), lower_row_budget=True)
    try:
        train(task, recipe, runtime, seed=seed, states=_NoStates(tools.scratch, "bert"))
    except Stopped:
        raise Stopped(
            "bert: stopped in the middle of a fit, which will begin again. Run the same command to continue."
        ) from None
    model.eval()
    return bert


@dataclass(frozen=True)
class MicroBatch:
    """A part of a step."""

    batch: BertBatch
    guesses: Guesses
    weight: float  # of each target; 0 for a dummy that keeps ranks in step


class BertTask:
    """The training task: an example is a user, and every masked product of a step weighs the same."""

    stage = "next-basket"
    system = "bert"
    fresh_weights: Iterable[nn.Parameter] = ()

    def __init__(
        self,
        bert: BertRecommender,
        rows: BertRows,
        validation: Questions | None,
        options: BertOptions,
        fabric: Fabric,
    ) -> None:
        self._bert, self._rows, self._options, self._fabric = bert, rows, options, fabric
        self._validation = None if validation is None else evenly_spread(validation)
        self.rows = rows.lengths
        self.padded_rows = options.max_tokens
        self.row_budget = ROWS_AT_ONCE
        self._epochs = 0

    @property
    def module(self) -> BertModel:
        """The model that is trained."""
        return self._bert.model

    def micro_batches(self, examples: np.ndarray, step_seed: int) -> list[MicroBatch]:
        """Return the micro-batches of a step; see TrainingTask."""
        torch.manual_seed(step_seed)  # dropout
        options, device = self._options, self._fabric.device
        rng = np.random.default_rng(step_seed)
        masked_rows = mask_rows(self._rows.take(examples), options.masking, options.masked_share, rng)
        parts = []
        for run, is_own in split_step(masked_rows.rows.lengths, self.row_budget, self._fabric):
            part = masked_rows.slice(run.start, run.stop)
            weight = is_own / len(masked_rows.target_tokens)
            parts.append(MicroBatch(BertBatch.of(part.rows, device), Guesses.of(part, device), weight))
        return parts

    def losses(self, module: nn.Module, micro_batch: MicroBatch) -> dict[str, Tensor]:
        """Return a micro-batch's part of the step's mean cross-entropy; see TrainingTask."""
        return {"loss": module(micro_batch.batch, micro_batch.guesses) * micro_batch.weight}

    def after_step(self) -> None:
        """Do nothing."""

    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return the validation users' NDCG and recall, and the negative NDCG as the objective."""
        self._epochs += 1
        if self._validation is None:
            return {}, -float(self._epochs)  # the last epoch is the best
        scores = validation_scores(self._bert, self._validation)
        metrics = {f"val_{name}": value for name, value in disclosable(scores, self._validation).items()}
        return metrics, -scores["ndcg"]

    def locate(self, examples: np.ndarray) -> list[ShardRows]:
        """Return nothing: baskets are not shards."""
        return []


class _NoStates(StateFolder):
    """Keeps no state: a fit is repeated as a whole."""

    def save(self, state: TrainingState) -> None: ...

    def load(self) -> None:
        return None


class BertBackbone:
    """A BERT trained on a shop, frozen, as the backbone of a hybrid; see `Backbone`."""

    def __init__(self, bert: BertRecommender, readout: BertReadout = "cls") -> None:
        """Wrap a trained BERT.

        Args:
            readout: of the user vectors: "cls": the output at [CLS]; "mask": at the query's [MASK].
        """
        self.bert, self.readout = bert, readout

    @classmethod
    def fit(
        cls,
        data: LearningData,
        validation: Questions | None,
        options: BertOptions,
        seed: int,
        tools: Tools,
        readout: BertReadout = "cls",
    ) -> Self:
        """Train the BERT; see `fit_bert`."""
        return cls(fit_bert(data, validation, options, seed, tools), readout)

    @property
    def product_table(self) -> Tensor:
        """The embedding of each product, f32 [products, d_model]; a product without a token has that of [UNK]."""
        tokens = torch.from_numpy(self.bert.tokens.token_of_item)
        return self.bert.model.embedding.weight.detach().float().cpu()[tokens]

    def user_vectors(self, histories: Histories) -> Tensor:
        """Return each user's vector, f32 [users, d_model]: the history is followed by one [MASK]."""
        cls_states, mask_states = self.bert.states(histories)
        return cls_states if self.readout == "cls" else mask_states

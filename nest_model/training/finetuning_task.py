"""What is learnt of a task: a cohort's labels from the history the leak guard allows, all weights trained."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nest_model.data.history import leak_count, select
from nest_model.data.labels import Labels
from nest_model.data.locations import ShardRows, shard_rows
from nest_model.data.packed import pack
from nest_model.data.predictions import scorable
from nest_model.data.selection import Cut, Selection, limit_context, thin
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.attention_nulls import attention_beside_nulls
from nest_model.evaluation.validation_score import macro_average_precision
from nest_model.model.classifier import Classifier, Frozen, log_odds, loss_sum, probabilities, targets_of
from nest_model.model.encoder import NestModel
from nest_model.model.parcel import Parcel
from nest_model.training.ranks import share
from nest_model.training.recipe import Recipe
from nest_model.training.runtime import Runtime
from nest_model.training.scoring import score
from schemas.errors import NestError
from schemas.suppress import shown_count

EXAMPLES_LOOKED_AT = 128  # for what the model attends to
_EXAMPLES_HASHED_AT_A_TIME = 1_024


@dataclass(frozen=True)
class Part:
    """A micro-batch of a step."""

    chosen: Selection
    targets: Tensor
    weight: float  # of each example's loss; 0: another rank's, and there for the turn alone


class FineTuning:
    """The trainee of a task: one example is one index encounter with the history known at its prediction."""

    stage = "finetune"

    def __init__(
        self, labels: Labels, seqsets: SeqSets, encoder: NestModel, recipe: Recipe, runtime: Runtime
    ) -> None:
        self._labels, self._seqsets, self._recipe = labels, seqsets, recipe
        self._fabric, self._telemetry = runtime.fabric, runtime.telemetry
        self._type = labels.task.label_type
        self._targets = targets_of(labels)
        self._selection, self._cut = select_examples(labels, seqsets, encoder)
        self._train = np.flatnonzero(labels.split == "train")
        self._val = np.flatnonzero(labels.split == "val")
        self.module = Classifier(encoder, labels.task, recipe.dropout)
        if self._type == "list":  # a softmax was no better for it on validation patients
            with torch.no_grad():
                self.module.head.out.bias.copy_(log_odds(self._targets[self._train]))
        encoder.set_head.requires_grad_(False)
        self.rows = self._selection.rows[self._train]
        self.padded_rows = encoder.config.max_sets * encoder.config.max_set_rows
        self.row_budget = recipe.row_budget

    @property
    def fresh_weights(self) -> Iterator[nn.Parameter]:
        return self.module.fresh_weights

    @property
    def words(self) -> str:
        return (
            f"{shown_count(len(self._train))} examples, {shown_count(self.rows.sum())} rows a pass; the context "
            f"leaves out {self._cut.sets_share:.1%} of the sets and, in them or in over-long ones, "
            f"{self._cut.events_in_cut_sets_share + self._cut.events_in_long_sets_share:.1%} of the events"
        )

    def content(self) -> Iterator[bytes]:
        """Yield what is read and what is to be learnt from it, so that a run knows its data again."""
        chosen = self._selection
        yield from (of.tobytes() for of in (chosen.first_set, chosen.target_set, chosen.event_offsets))
        for column in (self._seqsets.tokens, self._seqsets.hours):
            for first in range(0, len(chosen), _EXAMPLES_HASHED_AT_A_TIME):
                examples = np.arange(first, min(first + _EXAMPLES_HASHED_AT_A_TIME, len(chosen)))
                yield chosen.take(examples).values(column).tobytes()
        yield self._train.tobytes() + self._targets.numpy().tobytes()

    def parts(self, examples: np.ndarray, step_seed: int) -> list[Part]:
        torch.manual_seed(step_seed + self._fabric.global_rank)  # dropout
        selection = self._thinned(
            self._selection.take(self._train[examples]), np.random.default_rng(step_seed)
        )
        targets = self._targets[self._train[examples]]
        return [
            Part(selection.take(np.arange(run.start, run.stop)), targets[run], counts / len(selection))
            for run, counts in share(selection.rows, self.row_budget, self._fabric)
        ]

    def _thinned(self, selection: Selection, rng: np.random.Generator) -> Selection:
        least, most = self._recipe.thinning
        dropped_share = rng.uniform(least, most) if least < most else most
        return thin(selection, dropped_share, rng) if dropped_share else selection

    def losses(self, module: nn.Module, part: Part) -> dict[str, Tensor]:
        batch = pack(self._seqsets, part.chosen, self.module.encoder.config)
        logits = module(Parcel(batch.to(self._fabric.device)))
        return {"loss": loss_sum(logits, part.targets.to(logits.device), self._type) * part.weight}

    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return the validation loss and AP; what should fall is the negative AP, or without one the loss.

        What is returned to be told is nothing where so few have the outcome that it would tell how many.
        """
        logits = self._score(module, self._val, "validate")
        if not logits.isfinite().all():
            return {}, math.nan
        targets = self._targets[self._val]
        loss = float(loss_sum(logits, targets, self._type)) / len(self._val)
        scores = probabilities(logits, self._type)
        truth = as_truth(targets.numpy(), scores.shape[1], self._type)
        precision = macro_average_precision(truth, scores)
        told = {"val_loss": loss} | ({} if precision is None else {"val_average_precision": precision})
        may_be_told = len(scorable(truth, self._labels.subject_id[self._val])) > 0
        return told if may_be_told else {}, loss if precision is None else -precision

    def where(self, examples: np.ndarray) -> list[ShardRows]:
        """Return the rows of the shards these training examples are read from."""
        return shard_rows(self._seqsets, self._selection.take(self._train[examples]))

    def predict(self, module: nn.Module) -> np.ndarray:
        """Return the probabilities of every row of the labels."""
        return probabilities(self._score(module, np.arange(len(self._labels)), "score"), self._type)

    def frozen(self) -> np.ndarray:
        """Return [rows, parts · d_model], what is read of the encoder for every row; before `fit` alone."""
        encoder = Frozen(self.module.encoder).to(self._fabric.device)
        with self._fabric.autocast():
            return self._score(encoder, np.arange(len(self._labels)), "probe").numpy()

    def attention(self) -> Mapping[str, Any]:
        """Return where the model, which lies whole in one process, looks on some of the test examples, beside nulls."""
        test = np.flatnonzero(self._labels.split == "test")
        some = np.random.default_rng(0).permutation(test)[:EXAMPLES_LOOKED_AT]
        return attention_beside_nulls(
            self.module.encoder, self._seqsets, self._selection.take(some), row_budget=self.row_budget
        )

    def summary(self) -> dict[str, Any]:
        """Return what the model card tells of the examples: counts, never a row."""
        splits = {
            split: int(np.count_nonzero(self._labels.split == split)) for split in ("train", "val", "test")
        }
        return {f"{split}_rows": rows for split, rows in splits.items()} | {"context_cut": asdict(self._cut)}

    def _score(self, module: nn.Module, examples: np.ndarray, stage: str) -> Tensor:
        chosen = self._selection.take(examples)
        progress = self._telemetry.progress(stage, total=int(chosen.rows.sum()), unit="rows")
        return score(
            module, self._seqsets, chosen, self._fabric, row_budget=self.row_budget, progress=progress
        )


def select_examples(labels: Labels, seqsets: SeqSets, encoder: NestModel) -> tuple[Selection, Cut]:
    """Select each row's history as its task allows, prove it, and cut it to the model's context.

    Raises:
        NestError: a row's features hold something later than its prediction.
    """
    features = labels.task.features
    chosen = select(seqsets, features, labels.subject_id, labels.encounter_id, labels.predict_at_us)
    leaks = leak_count(seqsets, chosen, features, labels.predict_at_us)
    if leaks:
        raise NestError(
            f"{labels.task.cohort}: the features of {leaks:,} of {len(labels):,} rows reach past their "
            "prediction; nothing was trained. This is a bug in the selector: report it."
        )
    config = encoder.config
    return limit_context(chosen, max_sets=config.max_sets, max_set_rows=config.max_set_rows)


def as_truth(targets: np.ndarray, classes: int, label_type: str) -> np.ndarray:
    """Return what is to be learnt as a truth, bool [rows, classes]; of a bool task [rows, 1]."""
    if label_type == "class":
        return targets[:, None] == np.arange(classes)
    return (targets[:, None] if label_type == "bool" else targets).astype(bool)

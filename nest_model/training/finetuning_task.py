"""The fine-tuning task: learn a cohort's labels from the history that the leak guard allows."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nest_model.data.context import model_context
from nest_model.data.history import leak_count, select
from nest_model.data.labels import Labels, is_validation_disclosable
from nest_model.data.locations import ShardRows, shard_rows
from nest_model.data.packed import pack
from nest_model.data.selection import ContextCut, Selection, drop_random_events
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.attention_nulls import attention_beside_nulls
from nest_model.evaluation.hazards import levelled_hazard_loss
from nest_model.evaluation.validation_score import macro_average_precision
from nest_model.model.classifier import (
    Classifier,
    FrozenFeatures,
    hazard_log_odds,
    log_odds,
    loss_sum,
    probabilities,
    targets_of,
)
from nest_model.model.encoder import Encoder
from nest_model.model.parcel import Parcel
from nest_model.recipe import Recipe
from nest_model.training.ranks import split_step
from nest_model.training.runtime import Runtime
from nest_model.training.scoring import count_rows, score
from schemas.errors import NestError
from schemas.nouns import with_noun
from schemas.suppress import suppress_count
from schemas.tables.events import SPLITS
from schemas.tables.labels import WITHOUT_CLASSES

EXAMPLES_LOOKED_AT = 128  # test examples whose attention is measured
_EXAMPLES_HASHED_AT_A_TIME = 1_024


@dataclass(frozen=True)
class FinetuneMicroBatch:
    """A micro-batch of a fine-tuning step."""

    selection: Selection
    targets: Tensor
    weight: float  # of each example's loss; 0 for a dummy micro-batch that keeps ranks in step


class FineTuning:
    """The training task of a cohort: an example is an index encounter with the history known at its prediction."""

    stage = "finetune"

    def __init__(
        self, labels: Labels, seqsets: SeqSets, encoder: Encoder, recipe: Recipe, runtime: Runtime
    ) -> None:
        self._labels, self._seqsets, self._recipe = labels, seqsets, recipe
        self._fabric, self._telemetry = runtime.fabric, runtime.telemetry
        self._type = labels.task.label_type
        self._targets = targets_of(labels)
        self._selection, self._cut = select_examples(labels, seqsets, encoder)
        self._train = np.flatnonzero(labels.split == "train")
        self._val = np.flatnonzero(labels.split == "val")
        self._is_disclosable = is_validation_disclosable(labels)
        self.module = Classifier(encoder, labels.task, recipe.dropout)
        if self._type in ("list", "time"):  # for class labels this was no better on validation patients
            odds = hazard_log_odds if self._type == "time" else log_odds
            with torch.no_grad():
                self.module.head.out.bias.copy_(odds(self._targets[self._train]))
        for name, weight in encoder.named_parameters():
            if name.startswith(encoder.unused_in_tasks):
                weight.requires_grad_(False)
        self.system = encoder.system
        self.rows = self._selection.rows[self._train]
        self.padded_rows = encoder.config.max_sets * encoder.config.max_set_rows
        self.row_budget = recipe.row_budget

    @property
    def fresh_weights(self) -> Iterator[nn.Parameter]:
        """The weights of the task's head."""
        return self.module.fresh_weights

    @property
    def context_summary(self) -> str:
        """The number of examples and rows, and the shares of sets and events beyond the context, for the log."""
        return (
            f"{with_noun(self._labels.shown_rows('train'), 'example')}, "
            f"{with_noun(suppress_count(self.rows.sum()), 'row')} an epoch; the "
            f"context leaves out {self._cut.sets_share:.1%} of the sets and, in these or beyond its rows, "
            f"{self._cut.events_share:.1%} of the events"
        )

    def fingerprint(self) -> Iterator[bytes]:
        """Yield the bytes of inputs and targets, by which a run recognises its data."""
        selection = self._selection
        yield from (
            array.tobytes() for array in (selection.first_set, selection.target_set, selection.event_offsets)
        )
        seqsets = self._seqsets
        yield json.dumps(seqsets.admission_types).encode()
        for column in (seqsets.admission_type, seqsets.start_us, seqsets.end_us):
            yield column[selection.sets].tobytes()
        for column in (seqsets.tokens, seqsets.hours):
            for first in range(0, len(selection), _EXAMPLES_HASHED_AT_A_TIME):
                examples = np.arange(first, min(first + _EXAMPLES_HASHED_AT_A_TIME, len(selection)))
                yield selection.take(examples).values(column).tobytes()
        yield self._train.tobytes() + self._targets.numpy().tobytes()

    def micro_batches(self, examples: np.ndarray, step_seed: int) -> list[FinetuneMicroBatch]:
        """Return this rank's micro-batches of a step; see TrainingTask."""
        torch.manual_seed(step_seed + self._fabric.global_rank)  # dropout
        selection = self._with_event_dropout(
            self._selection.take(self._train[examples]), np.random.default_rng(step_seed)
        )
        targets = self._targets[self._train[examples]]
        return [
            FinetuneMicroBatch(
                selection.take(np.arange(run.start, run.stop)), targets[run], is_own / len(selection)
            )
            for run, is_own in split_step(selection.rows, self.row_budget, self._fabric)
        ]

    def _with_event_dropout(self, selection: Selection, rng: np.random.Generator) -> Selection:
        least, most = self._recipe.thinning
        dropped_share = rng.uniform(least, most) if least < most else most
        return drop_random_events(selection, dropped_share, rng) if dropped_share else selection

    def losses(self, module: nn.Module, micro_batch: FinetuneMicroBatch) -> dict[str, Tensor]:
        """Return a micro-batch's part of the step's loss; see TrainingTask."""
        batch = pack(self._seqsets, micro_batch.selection, self.module.encoder.config)
        logits = module(Parcel(batch.to(self._fabric.device)))
        targets = micro_batch.targets.to(logits.device)
        return {"loss": loss_sum(logits, targets, self._type) * micro_batch.weight}

    def after_step(self) -> None:
        """Do nothing."""

    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return the validation loss and AP, and the objective to minimise: the negative AP, or the loss without AP.

        Of a number the loss and the MAE, of a time its `levelled_hazard_loss`; the objective is the loss.

        Metrics are empty when too few positives could be disclosed.
        """
        logits = self._score(module, self._val, "validate")
        if not logits.isfinite().all():
            return {}, math.nan
        targets = self._targets[self._val]
        if self._type == "time":
            loss = levelled_hazard_loss(logits.double().numpy(), targets.numpy())
        else:
            loss = float(loss_sum(logits, targets, self._type)) / len(self._val)
        scores = probabilities(logits, self._labels.task)
        metrics = {"val_loss": loss}
        if self._type in WITHOUT_CLASSES:
            if self._type == "number":
                truth = self._labels.truth(())[self._val]
                metrics["val_mae"] = float(np.abs(truth - scores).mean())
            return metrics if self._is_disclosable else {}, loss
        truth = as_truth(targets.numpy(), scores.shape[1], self._type)
        precision = macro_average_precision(truth, scores)
        metrics |= {} if precision is None else {"val_average_precision": precision}
        return metrics if self._is_disclosable else {}, loss if precision is None else -precision

    def locate(self, examples: np.ndarray) -> list[ShardRows]:
        """Return the shard rows of these training examples."""
        return shard_rows(self._seqsets, self._selection.take(self._train[examples]))

    def predict(self, module: nn.Module) -> np.ndarray:
        """Return probabilities for every row of the labels."""
        logits = self._score(module, np.arange(len(self._labels)), "score")
        return probabilities(logits, self._labels.task)

    def frozen_features(self) -> np.ndarray:
        """Return the pretrained encoder's vectors of every row, see `FrozenFeatures`; call it before `fit`."""
        self.module.to(self._fabric.device)  # its head too: Fabric warns of a module on two devices
        encoder = FrozenFeatures(self.module.encoder).to(self._fabric.device)
        with self._fabric.autocast():
            return self._score(encoder, np.arange(len(self._labels)), "probe").numpy()

    def attention(self) -> Mapping[str, Any] | None:
        """Measure the model's attention on some test examples beside null models; needs all weights in one process.

        None for an encoder whose attention is not measured.
        """
        test = np.flatnonzero(self._labels.split == "test")
        sample = np.random.default_rng(0).permutation(test)[:EXAMPLES_LOOKED_AT]
        return attention_beside_nulls(
            self.module.encoder, self._seqsets, self._selection.take(sample), row_budget=self.row_budget
        )

    def summary(self) -> dict[str, Any]:
        """Return the counts of examples for the model card, as text."""
        counts = {f"{split}_rows": self._labels.shown_rows(split) for split in SPLITS}
        return counts | {"context_cut": asdict(self._cut)}

    def _score(self, module: nn.Module, examples: np.ndarray, stage: str) -> Tensor:
        selection = self._selection.take(examples)
        progress = self._telemetry.progress(stage, total=int(selection.rows.sum()), unit="rows")
        advance = count_rows(progress, selection, self._fabric)
        return score(
            module, self._seqsets, selection, self._fabric, row_budget=self.row_budget, advance=advance
        )


def select_examples(labels: Labels, seqsets: SeqSets, encoder: Encoder) -> tuple[Selection, ContextCut]:
    """Select each row's history as its task allows, check it for leaks, and take the model's context of it.

    Raises:
        NestError: a row's features hold an event later than its prediction.
    """
    features = labels.task.features
    selection = select(seqsets, features, labels.subject_id, labels.encounter_id, labels.predict_at_us)
    leaks = leak_count(seqsets, selection, features, labels.predict_at_us)
    if leaks:
        raise NestError(
            f"{labels.task.cohort}: the features of {suppress_count(leaks)} of {labels.shown_rows()} rows reach past "
            "their prediction; nothing was trained. This is a bug in the selector: please report it."
        )
    return model_context(seqsets, selection, encoder.config)


def as_truth(targets: np.ndarray, classes: int, label_type: str) -> np.ndarray:
    """Return targets as bool [rows, classes]; for a bool task [rows, 1]."""
    if label_type == "class":
        truth: np.ndarray = targets[:, None] == np.arange(classes)
        return truth
    return (targets[:, None] if label_type == "bool" else targets).astype(bool)

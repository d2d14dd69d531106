"""The pretraining task: an encoder and its objective on the training patients, evaluated on the validation patients."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrize

from nest_model.data.locations import ShardRows, shard_rows
from nest_model.model.encoder import Encoder
from nest_model.recipe import Recipe
from nest_model.systems import systems
from nest_model.training.guesses.verdicts import FEW_VALIDATE, NONE_VALIDATE
from nest_model.training.objective import CorruptedBatch, Evaluation, Objective
from nest_model.training.pretraining_data import PretrainingExamples, PretrainingPatients
from nest_model.training.ranks import split_step, sum_over_ranks
from nest_model.training.resume import Position
from nest_model.training.runtime import Runtime
from nest_model.training.telemetry import NullTelemetry
from schemas.nouns import with_noun
from schemas.suppress import suppress_count


class _PretrainingModule(nn.Module):
    """Runs a callable on the encoder inside Fabric's wrapped forward.

    So no float64 tensor is an argument, which Fabric would cast. The objective's target is a part of it, so that it is
    moved, sharded, saved and restored with the encoder.
    """

    def __init__(self, encoder: Encoder, target: nn.Module | None) -> None:
        super().__init__()
        self.model = encoder
        self.target = target

    def forward(self, function: Callable[[Encoder], Any]) -> Any:
        with parametrize.cached():  # a shared embedding is summed once, not for each loss
            return function(self.model)


@dataclass(frozen=True)
class PretrainMicroBatch:
    """A micro-batch of a pretraining step."""

    corrupted_batch: CorruptedBatch
    counts: Mapping[str, int]  # guesses of the whole step
    is_own: bool  # False for a dummy micro-batch that keeps ranks in step


class Pretraining:
    """The pretraining task: an example is a patient with the last sets."""

    stage = "pretrain"

    def __init__(
        self,
        patients: PretrainingPatients,
        encoder: Encoder,
        objective: Objective,
        recipe: Recipe,
        runtime: Runtime,
    ) -> None:
        self._objective = objective
        self._leave_out_last_set, self._share = patients.leave_out_last_set, patients.share
        self._fabric, self._telemetry = runtime.fabric, runtime.telemetry
        self.examples = PretrainingExamples.of(patients, encoder.config, recipe.examples_per_step)
        objective.fit(encoder, self.examples.packed(self.examples.train))
        for name, weight in encoder.named_parameters():
            if name.startswith(objective.unread_weights):
                weight.requires_grad_(False)
        self.module = _PretrainingModule(encoder, objective.target(encoder))
        self.fresh_weights: tuple[nn.Parameter, ...] = ()  # all weights are fresh, so none is special
        if recipe.starts_at_shares:
            objective.start_at_shares(encoder, self.examples)
        self.system = encoder.system
        self.rows = self.examples.train.rows
        self.padded_rows = encoder.config.max_sets * encoder.config.max_set_rows
        self.row_budget = recipe.row_budget

    @property
    def num_parameters(self) -> int:
        """The number of parameters trained, shared embeddings included."""
        return sum(weight.numel() for weight in self.module.model.parameters())

    @property
    def context_summary(self) -> str:
        """The number of patients and rows, and the shares of sets and events beyond the context, for the log."""
        cut = self.examples.cut
        return (
            f"{with_noun(suppress_count(len(self.rows)), 'patient')}, "
            f"{with_noun(suppress_count(self.rows.sum()), 'row')} an epoch; the "
            f"context leaves out {cut.sets_share:.1%} of the sets, with them "
            f"{cut.events_in_cut_sets_share:.1%} of the events, and "
            f"{cut.events_in_long_sets_share:.1%} of the events in over-long sets"
            + (
                f", {cut.events_beyond_rows_share:.1%} beyond its rows"
                if cut.events_beyond_rows_share
                else ""
            )
        )

    def micro_batches(self, examples: np.ndarray, step_seed: int) -> list[PretrainMicroBatch]:
        """Return this rank's micro-batches of a step; see TrainingTask."""
        batch = self.examples.batch(self.examples.train.take(examples))
        corrupted_batch = self._objective.corrupt(batch, Generator().manual_seed(step_seed))
        counts = self._objective.counts(corrupted_batch)
        return [PretrainMicroBatch(part, counts, is_own) for part, is_own in self._split(corrupted_batch)]

    def losses(self, module: nn.Module, micro_batch: PretrainMicroBatch) -> dict[str, Tensor]:
        """Return a micro-batch's part of the step's losses; see TrainingTask."""

        def losses(encoder: Encoder) -> dict[str, Tensor]:
            parts = self._objective.losses(encoder, micro_batch.corrupted_batch, micro_batch.counts)
            return {name: loss * micro_batch.is_own for name, loss in parts.items()}

        parts: dict[str, Tensor] = module(losses)
        return parts

    def after_step(self) -> None:
        """Let the objective follow a step of the optimiser."""
        self._objective.after_step(self.module.model)

    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return the objective's validation metrics, and the loss that decides when to stop.

        Metrics are empty when they would be those of few patients.
        """
        metrics = self._evaluate(module, self._objective)
        return {} if self.examples.few_validate else metrics, metrics["val_loss"]

    def evaluate_last(self, module: nn.Module) -> dict[str, float]:
        """Return the metrics of the objective's last evaluation, for a trained encoder."""
        evaluation = self._objective.last_evaluation
        return self._evaluate(module, evaluation) if evaluation and not self.examples.few_validate else {}

    @torch.no_grad()
    def _evaluate(self, module: nn.Module, evaluation: Evaluation) -> dict[str, float]:
        module.eval()
        sums: dict[str, float] = {}
        counts: dict[str, int] = {}
        for corrupted_batch in self._validation(evaluation):
            for name, count in evaluation.counts(corrupted_batch).items():
                counts[name] = counts.get(name, 0) + count
            for part, is_own in self._split(corrupted_batch):
                scores = module(lambda encoder, part=part: evaluation.scores(encoder, part))
                for name, value in scores.items():
                    sums[name] = sums.get(name, 0.0) + is_own * value
        return evaluation.metrics(sum_over_ranks(sums, self._fabric), counts)

    def _validation(self, evaluation: Evaluation) -> Iterator[CorruptedBatch]:
        val = self.examples.val
        # a line would count the rows of few patients
        telemetry = NullTelemetry() if self.examples.few_validate else self._telemetry
        progress = telemetry.progress("validate", total=int(val.rows.sum()), unit="rows")
        rows = iter(val.rows)
        for corrupted_batch in self.examples.corrupted_batches(val, evaluation.corrupt):
            yield corrupted_batch
            progress.advance(int(sum(islice(rows, corrupted_batch.batch.subjects))))

    def _split(self, corrupted_batch: CorruptedBatch) -> Iterator[tuple[CorruptedBatch, bool]]:
        """Yield this rank's micro-batches of a batch, and whether each is its own or a dummy."""
        for run, is_own in split_step(corrupted_batch.batch.rows, self.row_budget, self._fabric):
            yield corrupted_batch.slice_subjects(run.start, run.stop).to(self._fabric.device), is_own

    @property
    def warnings(self) -> list[str]:
        """Warnings about data that have nothing of what is to be learnt or read, known before the training."""
        nobody_validates = [] if self.examples.val_patients else [NONE_VALIDATE]
        return [*nobody_validates, *self._objective.warnings(self.examples), *self._unread_hours()]

    def _unread_hours(self) -> list[str]:
        """Return a sentence if the encoder reads hours inside sets and the shards have none."""
        encoder = self.module.model
        reads_hours = "hours" in encoder.depends_on and (
            encoder.system != "nest" or encoder.config.timed_rows
        )
        if not reads_hours or self.examples.seqsets.hours.any():
            return []
        return [
            f"{systems()[encoder.system].title} reads the hours of a set's events, and in these shards all are 0: it "
            "learns nothing of the times inside a set."
        ]

    def compare_with_guesses(self, validation: Mapping[str, float]) -> dict[str, Any]:
        """Return model-free guesses and the verdicts on the model's metrics; see Objective.

        If few patients validate, nothing is compared, and the only verdict says so.
        """
        if self.examples.few_validate:
            return {"yardsticks": {}, "not_learnt": [], "not_judged": [FEW_VALIDATE]}
        return self._objective.compare_with_guesses(validation, self.examples)

    def locate(self, examples: np.ndarray) -> list[ShardRows]:
        """Return the shard rows of these training examples."""
        return shard_rows(self.examples.seqsets, self.examples.train.take(examples))

    def summary(self, recipe: Recipe, seed: int, position: Position) -> dict[str, Any]:
        """Return the settings and counts of the run for the model card."""
        train = self.examples.train
        return {
            "seed": seed,
            "recipe": asdict(recipe),
            "weights": self.num_parameters,
            "train_patients": len(train),
            "val_patients": self.examples.val_patients,
            "train_sets": len(train.event_counts),
            "train_tokens": int(train.event_counts.sum()),
            "context_cut": asdict(self.examples.cut),
            "epochs": len(position.history),
            "best_epoch": position.best_epoch,
            **({"leave_out_last_set": True} if self._leave_out_last_set else {}),
            **({"patient_share": self._share} if self._share < 1 else {}),
        }

"""The pretraining task: MLM and MSM on the training patients, evaluated on the validation patients."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from torch import Generator, Tensor, nn
from torch.nn.utils import parametrize

from nest_model.config import ModelConfig
from nest_model.data.code_groups import CodeGroups
from nest_model.data.locations import ShardRows, shard_rows
from nest_model.data.packed import pack, seed_of
from nest_model.data.selection import (
    Selection,
    before_last_filled_set,
    has_two_filled_sets,
    limit_context,
    whole_subjects,
)
from nest_model.data.seqsets import SeqSets
from nest_model.model.parcel import Parcel
from nest_model.model.systems.nest import NestModel
from nest_model.model.weights import BYTES_IN_TRAINING, BYTES_OF_WEIGHT, refuse_too_large
from nest_model.training.fsdp import whole_weights
from nest_model.training.guesses.popularity import Popularity
from nest_model.training.guesses.verdicts import not_judged, not_learnt, single_set_warning
from nest_model.training.guesses.yardsticks import Mask, fit_patients, has_single_sets, yardsticks
from nest_model.training.losses import (
    Counts,
    SetPrediction,
    pretraining_loss,
    set_prediction,
    validation_scores,
)
from nest_model.training.masking import FIRST_TOKEN, MaskedBatch, mask_batch, mask_sets
from nest_model.training.ranks import split_step, sum_over_ranks
from nest_model.training.recipe import Recipe
from nest_model.training.resume import Position
from nest_model.training.runtime import Runtime
from nest_model.training.shared_embedding import fold_embedding, share_embedding
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.suppress import suppress_count
from schemas.tables.events import SUBJECTS

log = logging.getLogger("nest")

_SUMS = Counts(1, 1, 1)  # losses as sums, not means
VALIDATION_SEED = 2025  # of the validation masks, the same in every epoch and run


@dataclass(frozen=True)
class PretrainingPatients:
    """Shards, with their training patients and the validation patients for early stopping."""

    seqsets: SeqSets
    train: np.ndarray  # i64 [patients], positions in `seqsets.subject_offsets`
    val: np.ndarray  # likewise; if empty, the training loss decides when to stop
    leave_out_last_set: bool = (
        False  # of each patient the last filled set, and what comes after it, is not read
    )

    @classmethod
    def read(cls, seqset: Path, subjects: Path, *, leave_out_last_set: bool = False) -> "PretrainingPatients":
        """Read the shards and the patients' `pretrain_split`.

        Args:
            leave_out_last_set: do not read each patient's last filled set; patients with no other are left out.

        Raises:
            NestError: no patient of the training split has a set to read.
        """
        seqsets = SeqSets.read(seqset)
        table = read_table(subjects, SUBJECTS)
        ids, split = table["subject_id"].to_numpy(), table["pretrain_split"]
        train, val = (
            seqsets.subject_rows(ids[pc.equal(split, name).to_numpy()]) for name in ("train", "val")
        )
        if leave_out_last_set:
            train, val = (rows[has_two_filled_sets(seqsets, rows)] for rows in (train, val))
        if not len(train):
            needed = "two filled sets" if leave_out_last_set else "a set"
            raise NestError(
                f"{subjects}: no patient of the training split has {needed}; there is nothing to learn."
            )
        if not len(val):
            log.warning(
                "no patient of the validation split has a set; the training loss decides when to stop."
            )
        return cls(seqsets, train, val, leave_out_last_set)

    def select(self, subject_rows: np.ndarray) -> Selection:
        """Select all that is read of these patients."""
        select = before_last_filled_set if self.leave_out_last_set else whole_subjects
        return select(self.seqsets, subject_rows)


class _PretrainingModule(nn.Module):
    """Runs a callable on the model inside Fabric's wrapped forward.

    So no float64 tensor is an argument, which Fabric would cast.
    """

    def __init__(self, model: NestModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, function: Callable[[NestModel], Any]) -> Any:
        with parametrize.cached():  # a shared embedding is summed once, not for each loss
            return function(self.model)


@dataclass(frozen=True)
class PretrainMicroBatch:
    """A micro-batch of a pretraining step."""

    masked_batch: MaskedBatch
    guesses: Counts  # of the whole step
    is_own: bool  # False for a dummy micro-batch that keeps ranks in step

    def losses(self, model: NestModel) -> tuple[Tensor, ...]:
        """Return its parts of the step's total, MLM, MSM and own-set losses; 0 for a dummy."""
        losses = pretraining_loss(model, self.masked_batch, self.guesses)
        return tuple(loss * self.is_own for loss in (losses.total, losses.mlm, losses.msm, losses.own))

    def validation_scores(self, model: NestModel) -> Parcel:
        """Return the sums of the losses and of set prediction, by name."""
        losses, prediction = validation_scores(model, self.masked_batch)
        return Parcel({name: float(loss) for name, loss in losses.items()} | _sums(prediction))

    def set_prediction(self, model: NestModel) -> Parcel:
        """Return the sums of set prediction, by name."""
        return Parcel(_sums(set_prediction(model, self.masked_batch)))


_PREDICTIONS = tuple(
    f"val_{name}_at_10_{row}" for row in ("cls", "mask", "head") for name in ("recall", "ndcg")
)


def _sums(prediction: SetPrediction) -> dict[str, float]:
    """Return the sums of each score over the sets, in the order of `_PREDICTIONS`."""
    rankings = (
        ranking
        for row in (prediction.cls, prediction.mask, prediction.head)
        for ranking in (row.recall, row.ndcg)
    )
    return {name: float(ranking.sum()) for name, ranking in zip(_PREDICTIONS, rankings, strict=True)}


class Pretraining:
    """The pretraining task: an example is a patient with the last sets.

    Args:
        code_groups: groups whose embeddings tokens share during the training; None: no sharing.
        items: i64 [vocab_size], the item each token measures, see `NestModel`; None: no token measures an item.
    """

    stage = "pretrain"

    def __init__(
        self,
        patients: PretrainingPatients,
        config: ModelConfig,
        recipe: Recipe,
        runtime: Runtime,
        code_groups: CodeGroups | None = None,
        items: np.ndarray | None = None,
    ) -> None:
        self._seqsets, self._config, self._recipe = patients.seqsets, config, recipe
        self._fabric, self._telemetry = runtime.fabric, runtime.telemetry
        limits = {"max_sets": config.max_sets, "max_set_rows": config.max_set_rows}
        self._train, self._cut = limit_context(patients.select(patients.train), **limits)
        val = patients.val if len(patients.val) else patients.train
        self._val, _ = limit_context(patients.select(val), **limits)
        self._val_patients = len(patients.val)
        self._leave_out_last_set = patients.leave_out_last_set
        alone = self._fabric.world_size == 1 and self._fabric.device.type == "cpu"
        refuse_too_large(config, "this model", BYTES_IN_TRAINING if alone else BYTES_OF_WEIGHT)
        self.module = _PretrainingModule(NestModel(config))
        if items is not None:
            self.module.model.item_of_token.copy_(torch.from_numpy(items))
        if code_groups is not None:
            share_embedding(self.module.model.embedding, code_groups)
        self.fresh_weights: tuple[nn.Parameter, ...] = ()  # all weights are fresh, so none is special
        if recipe.starts_at_shares:
            self._start_at_shares()
        self._terms = [
            name
            for name, weight in config.loss_weights.items()
            if name != "own" or weight  # MLM and MSM are always reported
        ]
        self.rows = self._train.rows
        self.padded_rows = config.max_sets * config.max_set_rows
        self.row_budget = recipe.row_budget

    @cached_property
    def _popularity(self) -> Popularity:
        return Popularity.of(self._seqsets, self._train, self._config.vocab_size)

    @torch.no_grad()
    def _start_at_shares(self) -> None:
        """Initialise MSM's head at the constant guess, and specials, which are never targets, at its minimum."""
        guess = torch.from_numpy(self._popularity.mean_set)
        bias = self.module.model.set_head.out.bias
        bias.copy_(guess.where(guess > 0, guess[FIRST_TOKEN:].min()).log())

    def whole_weights(self) -> dict[str, Tensor]:
        """Return a copy of the weights on the first rank, with shared embeddings folded in; all ranks must call."""
        model = self.module.model
        return fold_embedding(model.embedding, whole_weights(model), "embedding")

    @property
    def num_parameters(self) -> int:
        """The number of parameters trained, shared embeddings included."""
        return sum(weight.numel() for weight in self.module.parameters())

    @property
    def context_summary(self) -> str:
        """The number of patients and rows, and the shares of sets and events beyond the context, for the log."""
        return (
            f"{suppress_count(len(self._train))} patients, {suppress_count(self.rows.sum())} rows an epoch; the "
            f"context leaves out {self._cut.sets_share:.1%} of the sets, with them "
            f"{self._cut.events_in_cut_sets_share:.1%} of the events, and "
            f"{self._cut.events_in_long_sets_share:.1%} of the events in over-long sets"
        )

    def micro_batches(self, examples: np.ndarray, step_seed: int) -> list[PretrainMicroBatch]:
        """Return this rank's micro-batches of a step; see TrainingTask."""
        batch = pack(self._seqsets, self._train.take(examples), self._config)
        masked_batch = mask_batch(batch, Generator().manual_seed(step_seed), self._config)
        return list(self._micro_batches(masked_batch, Counts.of(masked_batch)))

    def losses(self, module: nn.Module, micro_batch: PretrainMicroBatch) -> dict[str, Tensor]:
        """Return a micro-batch's part of the step's losses; see TrainingTask."""
        losses = dict(zip(("loss", *Counts._fields), module(micro_batch.losses), strict=True))
        return {name: loss for name, loss in losses.items() if name == "loss" or name in self._terms}

    @torch.no_grad()
    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return validation metrics, and the weighted sum of the losses as the objective.

        The metrics are the mean losses and, if sets are masked, set prediction. Tokens are masked in the same pass, so
        these values of set prediction serve for curves alone.
        """
        sums = dict.fromkeys((*Counts._fields, *_PREDICTIONS), 0.0)
        counts = np.zeros(len(Counts._fields))
        for masked_batch in self._validation(mask_batch):
            counts += Counts.of(masked_batch)
            for micro_batch in self._micro_batches(masked_batch):
                for name, value in module(micro_batch.validation_scores).content.items():
                    sums[name] += micro_batch.is_own * value
        sums, guesses = sum_over_ranks(sums, self._fabric), Counts(*counts.astype(int).tolist())
        means = {name: sums.pop(name) / max(count, 1) for name, count in guesses._asdict().items()}
        loss = sum(weight * means[name] for name, weight in self._config.loss_weights.items())
        lists = {name: value / guesses.msm for name, value in sums.items()} if guesses.msm else {}
        return {"val_loss": loss} | {f"val_{name}": means[name] for name in self._terms} | lists, loss

    @torch.no_grad()
    def set_prediction(self, module: nn.Module) -> dict[str, float]:
        """Return Recall@10 and NDCG@10 of masked validation sets by each of the three readouts."""
        module.eval()
        sums, sets = dict.fromkeys(_PREDICTIONS, 0.0), 0
        for masked_batch in self._validation(mask_sets):
            sets += len(masked_batch.masked_sets.sets)
            for micro_batch in self._micro_batches(masked_batch):
                for name, value in module(micro_batch.set_prediction).content.items():
                    sums[name] += micro_batch.is_own * value
        return {name: value / max(sets, 1) for name, value in sum_over_ranks(sums, self._fabric).items()}

    @cached_property
    def _single_set_split(self) -> str | None:
        splits = {"training": self._train, "validation": self._val}
        return next((name for name, selection in splits.items() if has_single_sets(selection)), None)

    @property
    def warnings(self) -> list[str]:
        """Warnings about data from which masked sets cannot be learnt, known before the training."""
        name = self._single_set_split
        return [single_set_warning(name)] if name and self._config.msm_weight else []

    def compare_with_guesses(self, validation: dict[str, float]) -> dict[str, Any]:
        """Return the yardsticks on the same masked validation batches, and the verdicts on the model's metrics."""
        sample = self._train.take(fit_patients(len(self._train), VALIDATION_SEED))
        guesses = yardsticks(
            self._popularity, partial(self._masked_batches, sample), partial(self._masked_batches, self._val)
        )
        single_set_split = self._single_set_split
        weights = {"val_mlm": self._config.mlm_weight, "val_msm": self._config.msm_weight}
        return {
            "yardsticks": guesses,
            "not_learnt": not_learnt(validation, guesses, single_set_split),
            "not_judged": not_judged(
                val_patients=self._val_patients,
                single_set_split=single_set_split,
                weights=weights,
                yardsticks=guesses,
            ),
        }

    def _micro_batches(
        self, masked_batch: MaskedBatch, guesses: Counts = _SUMS
    ) -> Iterator[PretrainMicroBatch]:
        for run, is_own in split_step(masked_batch.batch.rows, self.row_budget, self._fabric):
            patients = masked_batch.slice_subjects(run.start, run.stop)
            yield PretrainMicroBatch(patients.to(self._fabric.device), guesses, is_own)

    def locate(self, examples: np.ndarray) -> list[ShardRows]:
        """Return the shard rows of these training examples."""
        return shard_rows(self._seqsets, self._train.take(examples))

    def summary(self, recipe: Recipe, seed: int, position: Position) -> dict[str, Any]:
        """Return the settings and counts of the run for the model card."""
        return {
            "seed": seed,
            "recipe": asdict(recipe),
            "weights": self.num_parameters,
            "train_patients": len(self._train),
            "val_patients": self._val_patients,
            "train_sets": len(self._train.event_counts),
            "train_tokens": int(self._train.event_counts.sum()),
            "context_cut": asdict(self._cut),
            "epochs": len(position.history),
            "best_epoch": position.best_epoch,
            **({"leave_out_last_set": True} if self._leave_out_last_set else {}),
        }

    def _validation(self, mask: Mask) -> Iterator[MaskedBatch]:
        progress = self._telemetry.progress("validate", total=int(self._val.rows.sum()), unit="rows")
        rows = iter(self._val.rows)
        for masked_batch in self._masked_batches(self._val, mask):
            yield masked_batch
            progress.advance(int(sum(islice(rows, masked_batch.batch.subjects))))

    def _masked_batches(self, selection: Selection, mask: Mask) -> Iterator[MaskedBatch]:
        """Yield all patients of a selection, masked the same way in every epoch and run."""
        per_step = self._recipe.examples_per_step
        for first in range(0, len(selection), per_step):
            examples = np.arange(first, min(first + per_step, len(selection)))
            batch = pack(self._seqsets, selection.take(examples), self._config)
            yield mask(batch, Generator().manual_seed(seed_of(VALIDATION_SEED, first)), self._config)

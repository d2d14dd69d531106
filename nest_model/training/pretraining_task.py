"""What is learnt before any task: MLM and MSM on the training patients, judged on the validation patients."""

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
from nest_model.data.selection import Selection, limit_context, whole_subjects
from nest_model.data.seqsets import SeqSets
from nest_model.model.encoder import NestModel
from nest_model.model.parcel import Parcel
from nest_model.model.weights import BYTES_IN_TRAINING, BYTES_OF_WEIGHT, refuse_too_large
from nest_model.training.fsdp import whole_weights
from nest_model.training.guesses.popularity import Popularity
from nest_model.training.guesses.verdicts import not_judged, not_learnt, nothing_beside_a_set
from nest_model.training.guesses.yardsticks import Mask, fit_patients, has_one_set_alone, yardsticks
from nest_model.training.masking import FIRST_TOKEN, MaskedBatch, mask_batch, mask_sets
from nest_model.training.objectives import (
    Counts,
    SetPrediction,
    pretraining_loss,
    set_prediction,
    validation_scores,
)
from nest_model.training.ranks import share, total
from nest_model.training.recipe import Recipe
from nest_model.training.resume import Position
from nest_model.training.runtime import Runtime
from nest_model.training.shared_embedding import fold_embedding, share_embedding
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.suppress import shown_count
from schemas.tables.events import SUBJECTS

log = logging.getLogger("nest")

_SUMS = Counts(1, 1, 1)  # losses that are not divided
VALIDATION_SEED = 2025  # of the validation masks: the same in every epoch and every run


@dataclass(frozen=True)
class Patients:
    """Shards, and which of their subjects are trained on and which stop the training."""

    seqsets: SeqSets
    train: np.ndarray  # subject rows
    val: np.ndarray  # without any the training stops on its own loss

    @classmethod
    def read(cls, seqset: Path, subjects: Path) -> "Patients":
        """Read the shards and the subjects' `pretrain_split`.

        Raises:
            NestError: no subject of the training split has a set.
        """
        seqsets = SeqSets.read(seqset)
        table = read_table(subjects, SUBJECTS)
        ids, split = table["subject_id"].to_numpy(), table["pretrain_split"]
        train, val = (
            seqsets.subject_rows(ids[pc.equal(split, name).to_numpy()]) for name in ("train", "val")
        )
        if not len(train):
            raise NestError(
                f"{subjects}: no subject of the training split has a set; there is nothing to learn."
            )
        if not len(val):
            log.warning("no subject of the validation split has a set; the training stops on its own loss.")
        return cls(seqsets, train, val)


class _PretrainingModule(nn.Module):
    """Does what it is asked with the model, so that all of it is inside the one call that Fabric wraps.

    What is asked is a function for the reason `Parcel` gives.
    """

    def __init__(self, model: NestModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, asked: Callable[[NestModel], Any]) -> Any:
        with parametrize.cached():  # a shared embedding is added up once, not for each loss
            return asked(self.model)


@dataclass(frozen=True)
class Part:
    """A micro-batch of a step."""

    masked: MaskedBatch
    guesses: Counts  # of the whole step
    counts: bool  # or is another rank's, and there for the turn alone

    def losses(self, model: NestModel) -> tuple[Tensor, ...]:
        losses = pretraining_loss(model, self.masked, self.guesses)
        return tuple(of * self.counts for of in (losses.total, losses.mlm, losses.msm, losses.own))

    def validation_scores(self, model: NestModel) -> Parcel:
        """Return the sums of the losses and of set prediction, by name."""
        losses, predicted = validation_scores(model, self.masked)
        return Parcel({name: float(loss) for name, loss in losses.items()} | _sums(predicted))


_PREDICTIONS = tuple(
    f"val_{name}_at_10_{row}" for row in ("cls", "mask", "head") for name in ("recall", "ndcg")
)


def _sums(predicted: SetPrediction) -> dict[str, float]:
    """Return the sums of each score over the sets, in the order of `_PREDICTIONS`."""
    rankings = (
        ranking
        for row in (predicted.cls, predicted.mask, predicted.head)
        for ranking in (row.recall, row.ndcg)
    )
    return {name: float(ranking.sum()) for name, ranking in zip(_PREDICTIONS, rankings, strict=True)}


class Pretraining:
    """The trainee of the pretraining loop: one example is one subject with its last sets.

    Args:
        code_groups: what tokens share of their embeddings until the training ends; None: nothing.
        items: i64 [vocab_size], which item each token measures, see `NestModel`; None: no token measures any.
    """

    stage = "pretrain"

    def __init__(
        self,
        patients: Patients,
        config: ModelConfig,
        recipe: Recipe,
        runtime: Runtime,
        code_groups: CodeGroups | None = None,
        items: np.ndarray | None = None,
    ) -> None:
        self._seqsets, self._config, self._recipe = patients.seqsets, config, recipe
        self._fabric, self._telemetry = runtime.fabric, runtime.telemetry
        limits = {"max_sets": config.max_sets, "max_set_rows": config.max_set_rows}
        self._train, self._cut = limit_context(whole_subjects(patients.seqsets, patients.train), **limits)
        val = patients.val if len(patients.val) else patients.train
        self._val, _ = limit_context(whole_subjects(patients.seqsets, val), **limits)
        self._val_patients = len(patients.val)
        alone = self._fabric.world_size == 1 and self._fabric.device.type == "cpu"
        refuse_too_large(config, "this model", BYTES_IN_TRAINING if alone else BYTES_OF_WEIGHT)
        self.module = _PretrainingModule(NestModel(config))
        if items is not None:
            self.module.model.item_of_token.copy_(torch.from_numpy(items))
        if code_groups is not None:
            share_embedding(self.module.model.embedding, code_groups)
        self.fresh_weights: tuple[nn.Parameter, ...] = ()  # all are
        if recipe.starts_at_shares:
            self._start_at_shares()
        self._terms = [
            name
            for name, weight in config.loss_weights.items()
            if name != "own" or weight  # the paper's own two always
        ]
        self.rows = self._train.rows
        self.padded_rows = config.max_sets * config.max_set_rows
        self.row_budget = recipe.row_budget

    @cached_property
    def _popularity(self) -> Popularity:
        return Popularity.of(self._seqsets, self._train, self._config.vocab_size)

    @torch.no_grad()
    def _start_at_shares(self) -> None:
        """Let MSM's head begin at the constant guess; the specials, which are never guessed, at its least."""
        guess = torch.from_numpy(self._popularity.mean_set)
        bias = self.module.model.set_head.out.bias
        bias.copy_(guess.where(guess > 0, guess[FIRST_TOKEN:].min()).log())

    def whole_weights(self) -> dict[str, Tensor]:
        """Return a copy of the model's weights, nothing shared any more, on the first rank; all must call."""
        model = self.module.model
        return fold_embedding(model.embedding, whole_weights(model), "embedding")

    @property
    def weights(self) -> int:
        return sum(weight.numel() for weight in self.module.parameters())

    @property
    def context_words(self) -> str:
        return (
            f"{shown_count(len(self._train))} patients, {shown_count(self.rows.sum())} rows a pass; the context "
            f"leaves out {self._cut.sets_share:.1%} of the sets, with them {self._cut.events_in_cut_sets_share:.1%} "
            f"of the events, and {self._cut.events_in_long_sets_share:.1%} of the events in over-long sets"
        )

    def parts(self, examples: np.ndarray, step_seed: int) -> list[Part]:
        batch = pack(self._seqsets, self._train.take(examples), self._config)
        masked = mask_batch(batch, Generator().manual_seed(step_seed), self._config)
        return list(self._parts(masked, Counts.of(masked)))

    def losses(self, module: nn.Module, part: Part) -> dict[str, Tensor]:
        losses = dict(zip(("loss", *Counts._fields), module(part.losses), strict=True))
        return {name: loss for name, loss in losses.items() if name == "loss" or name in self._terms}

    @torch.no_grad()
    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return the losses over all validation patients, and their sum as the config weighs it.

        With them set prediction, where sets are masked: beside masked tokens, so for a curve alone.
        """
        sums = dict.fromkeys((*Counts._fields, *_PREDICTIONS), 0.0)
        counts = np.zeros(len(Counts._fields))
        for masked in self._validation(mask_batch):
            counts += Counts.of(masked)
            for part in self._parts(masked):
                for name, value in module(part.validation_scores).content.items():
                    sums[name] += part.counts * value
        sums, guesses = total(sums, self._fabric), Counts(*counts.astype(int).tolist())
        means = {name: sums.pop(name) / max(count, 1) for name, count in guesses._asdict().items()}
        loss = sum(weight * means[name] for name, weight in self._config.loss_weights.items())
        lists = {name: value / guesses.msm for name, value in sums.items()} if guesses.msm else {}
        return {"val_loss": loss} | {f"val_{name}": means[name] for name in self._terms} | lists, loss

    @torch.no_grad()
    def set_prediction(self, module: nn.Module) -> dict[str, float]:
        """Return Recall@10 and NDCG@10 of masked validation sets by each of the three readouts."""
        module.eval()
        sums, sets = dict.fromkeys(_PREDICTIONS, 0.0), 0
        for masked in self._validation(mask_sets):
            sets += len(masked.hidden.sets)
            for part in self._parts(masked):
                predicted = module(
                    lambda model, part=part: Parcel(set_prediction(model, part.masked))
                ).content
                for name, value in _sums(predicted).items():
                    sums[name] += part.counts * value
        return {name: value / max(sets, 1) for name, value in total(sums, self._fabric).items()}

    @cached_property
    def _one_set_alone(self) -> str | None:
        splits = {"training": self._train, "validation": self._val}
        return next((name for name, of in splits.items() if has_one_set_alone(of)), None)

    @property
    def foreseen(self) -> list[str]:
        """What is certain before the training to keep it from learning of sets."""
        name = self._one_set_alone
        return [nothing_beside_a_set(name)] if name and self._config.msm_weight else []

    def beside_guesses(self, validation: dict[str, float]) -> dict[str, Any]:
        """Return the yardsticks of the same masked validation batches, and what they say of the model's metrics."""
        sample = self._train.take(fit_patients(len(self._train), VALIDATION_SEED))
        guesses = yardsticks(
            self._popularity, partial(self._masked, sample), partial(self._masked, self._val)
        )
        one_set_alone = self._one_set_alone
        weights = {"val_mlm": self._config.mlm_weight, "val_msm": self._config.msm_weight}
        return {
            "yardsticks": guesses,
            "not_learnt": not_learnt(validation, guesses, one_set_alone),
            "not_judged": not_judged(
                val_patients=self._val_patients,
                one_set_alone=one_set_alone,
                weights=weights,
                yardsticks=guesses,
            ),
        }

    def _parts(self, masked: MaskedBatch, guesses: Counts = _SUMS) -> Iterator[Part]:
        for run, counts in share(masked.batch.rows, self.row_budget, self._fabric):
            part = masked.slice_subjects(run.start, run.stop).to(self._fabric.device)
            yield Part(part, guesses, counts)

    def where(self, examples: np.ndarray) -> list[ShardRows]:
        """Return the rows of the shards these training examples are read from."""
        return shard_rows(self._seqsets, self._train.take(examples))

    def summary(self, recipe: Recipe, seed: int, position: Position) -> dict[str, Any]:
        """Return what the model card tells of the run: counts, never a row."""
        return {
            "seed": seed,
            "recipe": asdict(recipe),
            "weights": self.weights,
            "train_patients": len(self._train),
            "val_patients": self._val_patients,
            "train_sets": len(self._train.event_counts),
            "train_tokens": int(self._train.event_counts.sum()),
            "context_cut": asdict(self._cut),
            "epochs": len(position.history),
            "best_epoch": position.best_epoch,
        }

    def _validation(self, mask: Mask) -> Iterator[MaskedBatch]:
        progress = self._telemetry.progress("validate", total=int(self._val.rows.sum()), unit="rows")
        rows = iter(self._val.rows)
        for masked in self._masked(self._val, mask):
            yield masked
            progress.advance(int(sum(islice(rows, masked.batch.subjects))))

    def _masked(self, selection: Selection, mask: Mask) -> Iterator[MaskedBatch]:
        """Yield all patients of a selection, masked the same in every epoch and every run."""
        per_step = self._recipe.examples_per_step
        for first in range(0, len(selection), per_step):
            examples = np.arange(first, min(first + per_step, len(selection)))
            batch = pack(self._seqsets, selection.take(examples), self._config)
            yield mask(batch, Generator().manual_seed(seed_of(VALIDATION_SEED, first)), self._config)

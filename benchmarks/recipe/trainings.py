"""The trainings of the variants: where each is kept, which are still to be made, and their commands."""

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from assets.models.common import finetuning_code, flags, pretraining_code
from benchmarks.recipe.variants import Variant
from nest_model.report.data import is_synthetic
from schemas.errors import InputError
from schemas.io.hashing import file_sha256
from schemas.layout import Layout

COHORTS = ("mimic_mortality", "mimic_long_stay", "mimic_readmission")


@dataclass(frozen=True)
class TrainingCommand:
    """One pretraining, or one fine-tuning with one seed."""

    words: str
    model: Path  # its folder
    arguments: Sequence[str]  # of the command

    @property
    def argv(self) -> list[str]:
        """The command, which ends with the process that starts it and resumes from its last saved state."""
        return [sys.executable, "-P", "-m", "nest_model", *self.arguments, "--die-with-parent"]

    @property
    def messages(self) -> Path:
        """The file that the command's output is written to."""
        return self.model.parent / "messages.log"

    @property
    def is_done(self) -> bool:
        """Whether the training has ended with a model."""
        return (self.model / "metrics.json").exists()

    def refuse_without_a_model(self) -> None:
        """Refuse what cannot be learnt from the tables, however often it is tried.

        Raises:
            InputError: the training has ended so.
        """
        if (self.model / "not_trainable.json").exists():
            raise InputError(
                f"{self.words}: too few patients have the outcome, or have it not, to train on; take the tables of "
                "more patients."
            )


@dataclass(frozen=True)
class Trainings:
    """The trainings of all variants on the tables of one source."""

    layout: Layout  # of the tables
    work: Path
    seeds: Sequence[int]  # of the fine-tunings

    def require_tables(self) -> None:
        """Check that the tables are there.

        Raises:
            InputError: one is missing.
        """
        tables = [self.layout.vocab, self.layout.subjects, *map(self.layout.labels, COHORTS)]
        absent_files = [str(table) for table in tables if not table.exists()]
        if absent_files or not self._shards:
            raise InputError(
                f"{self.layout.root}: {', '.join(absent_files) or 'the shards'} not found; make them by "
                "`make mimic_full`, or name another folder by --data."
            )

    def pretraining(self, variant: Variant) -> TrainingCommand:
        """Return the pretraining of a variant; it is another variant's too where both pretrain alike."""
        folder, key = self._pretraining_folder(variant)
        options = variant.pretraining_flags | {
            "subjects": self.layout.subjects,
            "vocab": self.layout.vocab,
            "seqset": self.layout.seqset,
            "out": folder / "model",
            "key": key,
            "threads": 2,  # as in `mimic_full`: another number rounds otherwise
        }
        return TrainingCommand(
            variant.words, folder / "model", ["pretrain", *flags(options | self._about_data)]
        )

    def finetuning(self, variant: Variant, cohort: str, seed: int) -> TrainingCommand:
        """Return the fine-tuning of a variant on a cohort with a seed."""
        folder, key = self._finetuning_folder(variant, cohort, seed)
        options = variant.finetuning_flags | {
            "pretrained": self.pretraining(variant).model,
            "labels": self.layout.labels(cohort),
            "seqset": self.layout.seqset,
            "out": folder / "model",
            "predictions": folder / "predictions.parquet",
            "seed": seed,
            "key": key,
            "threads": 1,
        }
        words = f"{variant.words}: {cohort}, seed {seed}"
        return TrainingCommand(words, folder / "model", ["finetune", *flags(options | self._about_data)])

    def predictions(self, variant: Variant, cohort: str) -> dict[int, Path]:
        """Return by seed the file of a variant's predictions."""
        return {
            seed: self.finetuning(variant, cohort, seed).model.parent / "predictions.parquet"
            for seed in self.seeds
        }

    def of(self, variant: Variant) -> Iterator[TrainingCommand]:
        """Yield the trainings of a variant, the pretraining first."""
        yield self.pretraining(variant)
        for cohort in COHORTS:
            for seed in self.seeds:
                yield self.finetuning(variant, cohort, seed)

    def is_done(self, variant: Variant) -> bool:
        """Return whether every training of a variant has ended with a model."""
        return all(training.is_done for training in self.of(variant))

    def _pretraining_folder(self, variant: Variant) -> tuple[Path, str]:
        data = [file_sha256(file) for file in [*self._shards, self.layout.vocab, self.layout.subjects]]
        key = _sha256(pretraining_code("nest"), variant.pretraining_flags, data)
        return self.work / key[:16], key

    def _finetuning_folder(self, variant: Variant, cohort: str, seed: int) -> tuple[Path, str]:
        folder, pretraining_key = self._pretraining_folder(variant)
        labels = file_sha256(self.layout.labels(cohort))
        key = _sha256(finetuning_code("nest"), variant.finetuning_flags, labels, pretraining_key)
        return folder / key[:16] / f"seed_{seed}", key

    @property
    def _about_data(self) -> dict[str, bool]:
        return {"synthetic": True} if is_synthetic(self.layout) else {}

    @property
    def _shards(self) -> list[Path]:
        return sorted(self.layout.seqset.glob("*.parquet"))


def _sha256(*content: object) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

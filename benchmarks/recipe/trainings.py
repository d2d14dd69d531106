"""Pretrains and fine-tunes the variants; finished trainings are skipped, stopped ones resumed."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.models.common import finetuning_code, flags, pretraining_code
from benchmarks.recipe.variants import Variant
from nest_model.report.data import is_synthetic
from nest_model.training.seeds import model_of_seed, predictions_of_seed
from schemas.errors import InputError, NestError
from schemas.io.hashing import file_sha256
from schemas.layout import Layout

ROOT = Path(__file__).parents[2]
COHORTS = ("mimic_mortality", "mimic_long_stay", "mimic_readmission")
METRICS = "metrics.json"  # a training writes it last


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
                f"{self.layout.root}: {', '.join(absent_files) or 'the shards'} not found; run `make mimic_full` there "
                "first."
            )

    def pretrained(self, variant: Variant) -> Path:
        """Return the folder of a variant's pretrained model."""
        return self.work / self._pretraining_key(variant)[:16] / "model"

    def predictions(self, variant: Variant, cohort: str) -> dict[int, Path]:
        """Return by seed the file of a variant's predictions."""
        first_seed, *further_seeds = self.seeds
        file = self._task(variant, cohort) / "predictions.parquet"
        return {first_seed: file} | {seed: predictions_of_seed(file, seed) for seed in further_seeds}

    def is_done(self, variant: Variant) -> bool:
        """Return whether every training of a variant has ended."""
        models = [
            model if seed == self.seeds[0] else model_of_seed(model, seed)
            for cohort in COHORTS
            for model in [self._task(variant, cohort) / "model"]
            for seed in self.seeds
        ]
        return all((model / METRICS).exists() for model in [self.pretrained(variant), *models])

    def pretrain(self, variant: Variant) -> None:
        """Pretrain a variant, unless this has been done for it or for one with the same pretraining.

        Raises:
            NestError: the training failed or was stopped; its saved state is kept.
        """
        model = self.pretrained(variant)
        if not (model / METRICS).exists():
            options = variant.pretraining_flags | {
                "subjects": self.layout.subjects,
                "vocab": self.layout.vocab,
                "out": model,
                "key": self._pretraining_key(variant),
                "threads": 2,  # as in `mimic_full`: another number rounds otherwise
            }
            self._run("pretrain", options, variant, model)

    def finetune(self, variant: Variant, cohort: str) -> None:
        """Fine-tune a pretrained variant on a cohort with every seed.

        Raises:
            NestError: a training failed or was stopped; its saved state is kept.
        """
        folder = self._task(variant, cohort)
        options = variant.finetuning_flags | {
            "pretrained": self.pretrained(variant),
            "labels": self.layout.labels(cohort),
            "out": folder / "model",
            "predictions": folder / "predictions.parquet",
            "seeds": ",".join(map(str, self.seeds)),
            "key": self._finetuning_key(variant),
            "threads": 1,
        }
        self._run("finetune", options, variant, folder / "model")

    def _run(self, command: str, options: dict[str, Any], variant: Variant, model: Path) -> None:
        about_data = {"synthetic": True} if is_synthetic(self.layout) else {}
        arguments = flags(options | about_data | {"seqset": self.layout.seqset})
        model.mkdir(parents=True, exist_ok=True)
        with (model.parent / "messages.log").open("a") as log:
            process = subprocess.run(
                [sys.executable, "-P", "-m", "nest_model", command, *arguments, "--die-with-parent"],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        # a training that is stopped by a signal ends with 0
        if process.returncode or not (model / METRICS).exists():
            raise NestError(
                f"{variant.words}: a training failed or was stopped; see {log.name}. Run again to continue."
            )

    def _task(self, variant: Variant, cohort: str) -> Path:
        return self.pretrained(variant).parent / self._finetuning_key(variant)[:16] / cohort

    def _pretraining_key(self, variant: Variant) -> str:
        data = [file_sha256(file) for file in [*self._shards, self.layout.vocab, self.layout.subjects]]
        return _sha256([pretraining_code("nest"), variant.pretraining_flags, data])

    def _finetuning_key(self, variant: Variant) -> str:
        labels = [file_sha256(self.layout.labels(cohort)) for cohort in COHORTS]
        return _sha256(
            [finetuning_code("nest"), variant.finetuning_flags, labels, self._pretraining_key(variant)]
        )

    @property
    def _shards(self) -> list[Path]:
        return sorted(self.layout.seqset.glob("*.parquet"))


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

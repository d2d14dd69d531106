"""The models of a few-shot curve: each learns from the rows of a draw and scores the test rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from lightning_fabric import Fabric
from scipy import sparse

from nest_model.baselines import boosting
from nest_model.baselines.counts import common_columns, count_features
from nest_model.baselines.logistic import fit_logistic
from nest_model.data.history import select
from nest_model.data.labels import PART_KEY, Labels
from nest_model.data.predictions import read_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from nest_model.evaluation.linear_probe import fit_probe
from nest_model.model import checkpoint
from nest_model.model.classifier import FrozenFeatures
from nest_model.training.finetuning_task import select_examples
from nest_model.training.scoring import count_rows, score
from nest_model.training.telemetry import Telemetry
from schemas.contract import write_table
from schemas.errors import InputError
from schemas.tables.labels import labels_schema

TITLES = {
    "frozen": "NEST, frozen",
    "nest": "NEST, fine-tuned",
    "lightgbm": "LightGBM, counts",
    "logistic": "Logistic regression, counts",
}
DEFAULT = ("frozen", "lightgbm", "logistic")

STRENGTHS = tuple(10.0**power for power in range(-5, 3))
"""Candidates for C with few rows, which need less shrinkage than many: a part of EHRSHOT's."""
ROW_BUDGET = 16_384

FineTune = Callable[[Path, Path, Path], None]
"""Fine-tunes on a table of labels, into a model's folder, and writes predictions."""


@dataclass(frozen=True)
class FewShotTask:
    """A task's rows and what models read of them, computed once for all draws."""

    table: Labels  # of the training, validation and test rows
    file: Path
    seqsets: SeqSets
    vocab: Path
    pretrained_model: Path
    fabric: Fabric
    seed: int
    telemetry: Telemetry

    @cached_property
    def counts(self) -> sparse.csr_matrix:
        """Counts of the same selection as NEST's, of the columns that enough training rows have, labelled or not."""
        rows = self.table
        tokens = read_tokens(self.vocab, self.seqsets.vocab_sha256)
        selection = select(
            self.seqsets, rows.task.features, rows.subject_id, rows.encounter_id, rows.predict_at_us
        )
        features = count_features(self.seqsets, selection, len(tokens))
        train = np.flatnonzero(rows.split == "train")
        columns = common_columns(features[train], boosting.MIN_ROWS)
        if not len(columns):
            raise InputError(
                f"{self.file}: no token occurs in {boosting.MIN_ROWS} training rows, so models on counts have "
                "nothing to learn from; leave lightgbm and logistic out of --systems."
            )
        return features[:, columns]

    @cached_property
    def vectors(self) -> np.ndarray:
        """The vectors of the frozen pretrained encoder, f32 [rows, width]."""
        encoder, _ = checkpoint.load_pretrained(self.pretrained_model, vocab_sha256=self.seqsets.vocab_sha256)
        selection, _ = select_examples(self.table, self.seqsets, encoder)
        module = FrozenFeatures(encoder).to(self.fabric.device)
        progress = self.telemetry.progress("embed", total=int(selection.rows.sum()), unit="rows")
        advance = count_rows(progress, selection, self.fabric)
        with self.fabric.autocast():
            vectors: np.ndarray = score(
                module, self.seqsets, selection, self.fabric, row_budget=ROW_BUDGET, advance=advance
            ).numpy()
        return vectors

    def places(self, sample: Labels) -> np.ndarray:
        """Return the rows of this table that a draw has."""
        keys = {key: place for place, key in enumerate(_keys(self.table))}
        return np.array([keys[key] for key in _keys(sample)])


def _keys(labels: Labels) -> list[tuple[int, int, int]]:
    columns = (labels.subject_id, labels.encounter_id, labels.predict_at_us)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def frozen(task: FewShotTask, sample: Labels, is_whole: bool, folder: Path) -> np.ndarray:
    """Return probabilities of a logistic regression on the frozen encoder's vectors."""
    vectors = task.vectors[task.places(sample)]
    options = {} if is_whole else {"strengths": STRENGTHS}
    probe, _ = fit_probe(sample, vectors, seed=task.seed, **options)
    return probe.probabilities(vectors, sample.task)[:, 0]


def logistic(task: FewShotTask, sample: Labels, is_whole: bool, folder: Path) -> np.ndarray:
    """Return probabilities of a logistic regression on counts."""
    options = {} if is_whole else {"strengths": STRENGTHS}
    fit = fit_logistic(
        sample, task.counts[task.places(sample)], seed=task.seed, telemetry=task.telemetry, **options
    )
    return fit.probability[:, 0]


def lightgbm(task: FewShotTask, sample: Labels, is_whole: bool, folder: Path) -> np.ndarray:
    """Return probabilities of boosted trees on counts; with few rows a leaf may hold one."""
    features = task.counts[task.places(sample)]
    rows = int(np.count_nonzero(sample.split == "train"))
    grid = boosting.GRIDS["bool"] if is_whole else boosting.with_small_leaves(boosting.GRIDS["bool"], rows)
    model = boosting.fit(sample, features, grid=grid, seed=task.seed, telemetry=task.telemetry)
    return boosting.probabilities(model.boosters, features)[:, 0]


def finetuned(finetune: FineTune) -> Callable[[FewShotTask, Labels, bool, Path], np.ndarray]:
    """Return the system that fine-tunes the pretrained model on each draw, in a folder of its own."""

    def probability(task: FewShotTask, sample: Labels, is_whole: bool, folder: Path) -> np.ndarray:
        schema = labels_schema("bool")
        table = pq.read_table(task.file, columns=schema.names).take(pa.array(task.places(sample)))
        labels = folder / "labels.parquet"
        write_table(
            table,
            labels,
            schema,
            made_by="few-shot",
            metadata={"task": sample.task.model_dump_json(), PART_KEY: "a draw"},
        )
        file = folder / "predictions" / "predictions.parquet"
        finetune(labels, folder, file)
        return read_predictions(file).probability[:, 0]

    return probability


SYSTEMS: Mapping[str, Callable[[FewShotTask, Labels, bool, Path], np.ndarray]] = {
    "frozen": frozen,
    "lightgbm": lightgbm,
    "logistic": logistic,
}
"""Those that need no fine-tuning."""

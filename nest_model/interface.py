"""NEST from Python: load a model, embed, predict, fill in, fine-tune. A thin layer over the commands; tables are Arrow.

    import nest_model
    model = nest_model.load("data/mimic/models/mimic_nest")

docs/python.md has a tested example of each use. A table may be a frame of Arrow, polars or pandas, or a file's path;
`polars.from_arrow` makes a frame of what is returned.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from lightning_fabric import Fabric

from nest_model.commands import embed, fill, finetune, predict
from nest_model.comparison import compare as comparing
from nest_model.comparison.run_folders import read_runs
from nest_model.data.labels import Labels, untrainable_reason
from nest_model.data.moments import TIME, At, Moments, is_moment, read_index
from nest_model.data.own_labels import write_own_labels
from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from nest_model.model import checkpoint
from nest_model.model.classifier import Classifier
from nest_model.model.encoder import Encoder
from nest_model.options import FineTuningOptions
from nest_model.training.device import Device, launch_fabric
from nest_model.training.runtime import Runtime
from nest_model.training.stop import StopRequest
from nest_model.training.telemetry import Progress, Telemetry
from schemas.errors import InputError, NestError
from schemas.io.lock import sole_writer
from schemas.io.outputs import claim
from schemas.seeds import DEFAULT
from schemas.tables.labels import Features

SeqsetSource = str | Path | SeqSets


def load(folder: str | Path, *, device: Device = "auto", threads: int = 2) -> "Model":
    """Load a model's folder, pretrained or fine-tuned.

    Raises:
        NestError: there is no model, or it is incomplete or damaged.
    """
    path = Path(folder)
    module, card = checkpoint.load_model(path)
    return Model(path, card, module, launch_fabric(device, threads=threads))


def open_shards(seqset: str | Path) -> SeqSets:
    """Read shards once, to use them several times; every method takes their folder too."""
    return SeqSets.read(Path(seqset))


def compare(folders: Sequence[str | Path]) -> dict[str, pa.Table]:
    """Return how trained models differ, as tables: `settings` that are not the same, `validation`, and test `scores`.

    Raises:
        InputError: a folder holds no trained model.
    """
    comparison = comparing.compare(read_runs([Path(folder) for folder in folders]))
    return {
        "settings": pa.Table.from_pylist(comparison["settings"]),
        "validation": pa.Table.from_pylist(comparing.validation_rows(comparison)),
        "scores": pa.Table.from_pylist(comparing.score_rows(comparison)),
    }


@dataclass(frozen=True)
class Model:
    """A pretrained or fine-tuned model, with what its folder says of it."""

    folder: Path
    card: checkpoint.ModelCard
    module: Encoder | Classifier
    fabric: Fabric

    def embed(self, seqset: SeqsetSource, *, at: At, level: embed.Level = "patients") -> pa.Table:
        """Return vectors of patients, or of each of their sets, that hold what was known `at` a moment.

        Args:
            at: one moment for all patients; or a table of subject_id, predict_at and, if there, index_encounter. A
                patient is read up to the last set begun by then; one without such a set is left out.
            level: `patients`: one row for each moment; `sets`: one for each set that is read.
        """
        seqsets = self._shards(seqset)
        encoder, features = embed.encoder_of(self.module), embed.features_of(self.card)
        moments = Moments.of(at, seqsets)
        advance = _progress("embed", len(moments)).advance
        return embed.embeddings(
            encoder, seqsets, moments, features, self.fabric, level=level, advance=advance
        )

    def predict(self, seqset: SeqsetSource, *, at: Any = None) -> pa.Table:
        """Return a fine-tuned model's probabilities.

        Args:
            at: a moment or a table as for `embed`; None: each patient's last stay, at the task's prediction time.
        """
        if self.card.task is None or not isinstance(self.module, Classifier):
            raise NestError(f"{self.folder}: a pretrained model without a task; fine-tune it first.")
        seqsets, task = self._shards(seqset), self.card.task
        rows = predict.last_sets(seqsets, task) if at is None else _rows(at, seqsets, self.card)
        advance = _progress("predict", len(rows)).advance
        return predict.predictions_of(self.module, self.card, seqsets, rows, self.fabric, advance=advance)

    def fill(
        self, seqset: SeqsetSource, *, vocab: str | Path, at: At, hide: fill.Hide = "set", top: int = 10
    ) -> pa.Table:
        """Hide each patient's last set, or events of it by their places, and return the likeliest tokens there.

        Args:
            at: as for `embed`.
        """
        if self.card.task is not None:
            raise NestError(f"{self.folder}: a fine-tuned model guesses no tokens; load the pretrained one.")
        seqsets = self._shards(seqset)
        tokens = read_tokens(Path(vocab), self.card.vocab_sha256)
        encoder = embed.encoder_of(self.module).to(self.fabric.device).eval()
        return fill.fill(encoder, seqsets, Moments.of(at, seqsets), tokens, self.fabric, hide=hide, top=top)

    def finetune(
        self,
        labels: Any,
        seqset: str | Path,
        subjects: str | Path,
        out: str | Path,
        *,
        name: str = "own_labels",
        features: Features | None = None,
        seed: int = DEFAULT,
        **options: Any,
    ) -> "Model":
        """Fine-tune this pretrained model on labels of one's own and return the new model.

        Args:
            labels: a table of subject_id, predict_at, label and, if there, index_encounter.
            subjects: table of the patients, which says who is for training, validation and test.
            out: a new folder, for the model, its labels and its predictions of every split.
            features: what it may see, besides that it was known by `predict_at`; None: everything.
            options: as those of the `finetune` command, e.g. `epochs=3`.

        Raises:
            NestError: the labels cannot be learnt, see `untrainable_reason`; or an option is unknown.
        """
        folder, chosen_options = Path(out), FineTuningOptions.read(options)
        with sole_writer(folder):
            claim(folder)
            table = folder / "labels.parquet"
            write_own_labels(
                table,
                labels,
                self._shards(seqset),
                Path(subjects),
                name=name,
                features=features or Features(),
            )
            if reason := untrainable_reason(Labels.read(table)):
                raise InputError(f"{name}: cannot be learnt: {reason}.")
            finetune.finetune(
                pretrained_model=self.folder,
                labels=table,
                seqset=Path(seqset),
                out=folder,
                predictions=folder / "predictions" / "predictions.parquet",
                seed=seed,
                runtime=Runtime(
                    self.fabric, Telemetry(folder), StopRequest(at_once=True), lower_row_budget=True
                ),
                recipe=chosen_options.recipe,
                readout=chosen_options.readout,
                freeze=chosen_options.freeze or (),
                shuffle_sets=bool(chosen_options.shuffle_sets),
                context=chosen_options.context,
            )
        module, card = checkpoint.load_model(folder)
        return Model(folder, card, module, self.fabric)

    def _shards(self, seqset: SeqsetSource) -> SeqSets:
        """Return the shards, read if they are a folder; those of another vocabulary are refused."""
        seqsets = seqset if isinstance(seqset, SeqSets) else open_shards(seqset)
        checkpoint.refuse_other_vocabulary(self.folder, self.card, seqsets.vocab_sha256)
        return seqsets


def _progress(stage: str, rows: int) -> Progress:
    """Return a counter that tells the logger `nest` every ten seconds how far the work is."""
    return Progress(None, stage, rows, "rows", seconds_between_lines=10.0)


def _rows(at: At, seqsets: SeqSets, card: checkpoint.ModelCard) -> Labels:
    """Return the stays to score at these moments."""
    assert card.task is not None
    where, table = ("at", None) if is_moment(at) else read_index(at)
    moments = Moments.of(at if table is None else table, seqsets)
    columns = {"subject_id": moments.subject_id, "encounter_id": moments.encounter_id}
    columns |= {"predict_at": pa.array(moments.at_us).cast(TIME)}
    columns |= {name: table[name] for name in ("label", "split") if table and name in table.column_names}
    return predict.labels_of(where, pa.table(columns), card.task)

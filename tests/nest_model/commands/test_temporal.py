"""Models trained on earlier patients: no label of a later patient reaches them."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nest_model.baselines import lightgbm
from nest_model.commands import temporal
from nest_model.data.labels import Labels
from nest_model.data.predictions import EARLIER_LABELS, earlier_predictions, read_predictions
from nest_model.training.device import launch_fabric
from nest_model.training.recipe import PRETRAINING
from nest_model.training.telemetry import Telemetry
from schemas.contract import write_table
from schemas.suppress import WITHHELD
from schemas.tables.subject_years import SUBJECT_YEARS
from tests.support.factories.world import World, make_world, pretrain_small, runtime

EARLY, LATE = "2008 - 2010", "2011 - 2013"
SUBJECTS = 120


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    """Return a world with a pretrained model and a LightGBM; every third patient is a later one."""
    world = make_world(tmp_path_factory.mktemp("world"), subjects=SUBJECTS)
    pretrain_small(
        world,
        runtime(world.root / "pretrained"),
        world.root / "pretrained",
        PRETRAINING["tiny"].with_changes(epochs=1),
    )
    write_years(
        world.root / "years.parquet", [LATE if number % 3 == 0 else EARLY for number in range(SUBJECTS)]
    )
    lightgbm.run(
        labels=world.labels,
        seqset=world.seqset,
        vocab=world.vocab,
        out=world.root / "boosted",
        predictions=world.root / "boosted" / "predictions.parquet",
        seed=42,
        telemetry=Telemetry(world.root / "boosted"),
    )
    return world


def write_years(path: Path, years: list[str | None]) -> None:
    table = pa.table({"subject_id": list(range(1, len(years) + 1)), "years": years})
    write_table(table, path, SUBJECT_YEARS, made_by="the test")


def run(world: World, out: Path, *, labels: Path | None = None, years: Path | None = None) -> dict:
    out.mkdir(exist_ok=True)
    temporal.run(
        labels=labels or world.labels,
        seqset=world.seqset,
        vocab=world.vocab,
        subject_years=years or world.root / "years.parquet",
        pretrained_model=world.root / "pretrained",
        lightgbm_model=world.root / "boosted",
        out=out,
        predictions=out / "predictions.parquet",
        seed=42,
        fabric=launch_fabric("cpu", threads=1),
        telemetry=Telemetry(out),
    )
    return json.loads((out / "temporal.json").read_text())


def with_flipped_labels(world: World, path: Path, *, later: bool) -> Path:
    """Write the labels with those of the later, or earlier, training and validation patients flipped."""
    table = pq.read_table(world.labels)
    is_later = (table["subject_id"].to_numpy() - 1) % 3 == 0
    is_learnt = np.array(table["split"].to_pylist()) != "test"
    other_labels = np.array(table["label"].to_pylist()) ^ (is_learnt & (is_later == later))
    place = table.column_names.index("label")
    pq.write_table(table.set_column(place, table.schema.field("label"), pa.array(other_labels)), path)
    return path


def test_labels_of_later_patients_change_nothing(world, tmp_path):
    assert run(world, tmp_path / "a") == {"earlier": [EARLY]}
    earlier_labels = Labels.read(tmp_path / "a" / EARLIER_LABELS)
    assert earlier_labels.shown_rows("train") == WITHHELD, (
        "a reader could subtract them from those of all years"
    )
    run(world, tmp_path / "b", labels=with_flipped_labels(world, tmp_path / "later.parquet", later=True))
    run(world, tmp_path / "c", labels=with_flipped_labels(world, tmp_path / "earlier.parquet", later=False))
    for model in temporal.MODELS:
        plain, later, earlier = (
            read_predictions(earlier_predictions(tmp_path / folder / "predictions.parquet", model)).of("test")
            for folder in "abc"
        )
        assert np.array_equal(plain.probability, later.probability)
        assert not np.array_equal(plain.probability, earlier.probability)
        assert {int(subject) % 3 for subject in plain.subject_id} == {0, 1, 2}, "later patients are scored"


@pytest.mark.parametrize(
    ("years", "reason"),
    [
        ([EARLY] * SUBJECTS, "the patients are not of two periods"),
        ([LATE] * (SUBJECTS - 1) + [EARLY], "of the earlier patients, the validation split has no row"),
    ],
)
def test_patients_of_one_period_have_a_reason_and_no_predictions(world, tmp_path, years, reason):
    run(world, tmp_path / "out")
    write_years(tmp_path / "years.parquet", years)
    result = run(world, tmp_path / "out", years=tmp_path / "years.parquet")
    assert result["reason"].startswith(reason.split(",")[0])
    last = json.loads((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["metrics"]) == ("result", {}), "a run waits for it"
    for model in temporal.MODELS:
        assert not earlier_predictions(tmp_path / "out" / "predictions.parquet", model).exists()

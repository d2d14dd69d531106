"""Labels agree with ACES, the task extractor for MEDS, on the tasks that ACES can express.

ACES is installed in a separate environment (`make aces`), which ACES_PYTHON may name. Known differences:

- For ACES, a stay without an end after its start has no discharge and lasts to that of the next stay. We omit it.
- ACES has no condition for a later admission at any time: it labels patients without one 0.
- ACES uses the time of an event as the time it is known, so its input has diagnoses at discharge.
- A window that begins some time after an event and ends at the next event of a kind loses rows, or assigns them to
  another event (es-aces 0.7.3): the windows here begin at the trigger.
- ACES cannot express multi-class, multi-label, "nearest", distinct days, episodes and calendar months.
"""

import os
import subprocess
from pathlib import Path

import polars as pl
import pytest

from pipelines.cohorts import write_labels
from pipelines.sources.meds.export import write_meds
from pipelines.sources.mimic import steps as mimic
from schemas.cohort import parse_cohort
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.support.commands import CROSSWALKS, DEMO, ROOT
from tests.support.compare import run_all

PYTHON = Path(os.environ.get("ACES_PYTHON", ROOT / ".venv-aces" / "bin" / "python"))
TASKS = Path(__file__).parent / "aces"

pytestmark = [
    pytest.mark.aces,
    pytest.mark.long,
    pytest.mark.demo,
    pytest.mark.skipif(not PYTHON.exists(), reason="ACES is not there; make aces, or set ACES_PYTHON"),
    pytest.mark.skipif(not DEMO.is_dir(), reason="the MIMIC-IV demo is not beside the repository"),
]


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    layout, rules = Layout(tmp_path_factory.mktemp("aces") / "mimic"), PRESETS["default"]
    run_all(mimic.find_source(DEMO, CROSSWALKS), layout, rules)
    write_meds(layout)
    for task in ("mortality", "long_stay", "readmission"):
        write_labels(parse_cohort(ROOT / "assets" / "cohorts" / f"mimic_{task}.yaml"), layout, rules)
    return layout


@pytest.fixture(scope="module")
def availability_meds(layout: Layout) -> Path:
    """Write our MEDS export with the time of availability as `time`, see docs/meds.md."""
    folder = layout.root / "known"
    for shard in (layout.meds / "data").rglob("*.parquet"):
        rows = pl.read_parquet(shard).with_columns(time=pl.coalesce("available_at", "time"))
        target = folder / shard.relative_to(layout.meds / "data")
        target.parent.mkdir(parents=True, exist_ok=True)
        rows.sort("subject_id", "time", nulls_last=False, maintain_order=True).write_parquet(target)
    return folder


def side_by_side(layout: Layout, availability_meds: Path, task: str) -> pl.DataFrame:
    """Return subject_id, predict_at, ours (null: not in our labels), theirs."""
    out = availability_meds.parent / f"{task}.parquet"
    command = [
        str(PYTHON),
        str(TASKS / "labels.py"),
        str(TASKS / f"{task}.yaml"),
        str(availability_meds),
        str(out),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    predict_at = pl.col("predict_at").cast(pl.Datetime("us"))
    labels = pl.read_parquet(layout.labels(f"mimic_{task}"))
    ours = labels.select("subject_id", predict_at, ours=pl.col("label").cast(pl.Boolean))
    theirs = pl.read_parquet(out).rename({"index_timestamp": "predict_at"})
    theirs = theirs.select("subject_id", predict_at, theirs=pl.col("label") > 0)
    return ours.join(theirs, on=["subject_id", "predict_at"], how="full", coalesce=True)


def open_stay_starts(layout: Layout) -> pl.DataFrame:
    stays = pl.read_parquet(layout.encounters)
    endless = stays.filter(pl.col("end").is_null() | (pl.col("end") <= pl.col("start")))
    return endless.select("subject_id", pl.col("start").cast(pl.Datetime("us")))


@pytest.mark.parametrize(
    ("task", "hours", "is_inverted"), [("mortality", 24, False), ("long_stay", 48, True)]
)
def test_labels_agree_with_aces_except_for_stays_without_an_end(
    layout, availability_meds, task, hours, is_inverted
):
    result = side_by_side(layout, availability_meds, task)
    common = result.drop_nulls()
    assert common.height == result["ours"].count() > 100
    assert (common["ours"] == (common["theirs"] ^ is_inverted)).all()
    assert common["ours"].n_unique() == 2
    aces_only = result.filter(pl.col("ours").is_null()).with_columns(
        start=pl.col("predict_at") - pl.duration(hours=hours)
    )
    endless = open_stay_starts(layout)
    assert aces_only.join(endless, on=["subject_id", "start"], how="anti").height == 0


def test_readmission_labels_agree_with_aces_except_for_last_stays(layout, availability_meds):
    result = side_by_side(layout, availability_meds, "readmission")
    common = result.drop_nulls()
    assert common.height == result["ours"].count() > 100
    assert (common["ours"] == common["theirs"]).all()
    assert common["ours"].n_unique() == 2
    aces_only = result.filter(pl.col("ours").is_null())
    assert aces_only.height > 0
    assert not aces_only["theirs"].any()
    stays = pl.read_parquet(layout.encounters).select("subject_id", pl.col("start").cast(pl.Datetime("us")))
    later = aces_only.join(stays, on="subject_id").filter(pl.col("start") > pl.col("predict_at"))
    assert later.height == 0

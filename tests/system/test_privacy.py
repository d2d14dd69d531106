"""A canary patient with unique ids, value, codes and dates must be visible nowhere outside the data folder.

The same holds for the password in an address among the settings.
"""

import csv
import gzip
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from assets.runtime.executor import AFTER_FAILURES
from tests.support.commands import ROOT, Run, run

SUBJECT, STAY = "918273645918", "827364591827"
STAY_TIMES = {
    "admittime": "2177-07-07 07:07:07",
    "dischtime": "2177-07-17 17:17:17",
    "hospital_expire_flag": "0",
}
VALUE = "31415.92653"
PASSWORD = "canaryhunter2"
SECRET = {"NEST_GSN_ATC_URL": f"https://nurse:{PASSWORD}@codes.example/gsn.csv?token={PASSWORD}"}
CANARIES = (SUBJECT, STAY, VALUE, "31415.9", "canarimycin", "2177-07-07", PASSWORD)


def add_rows(table: Path, rows: list[dict[str, str]]) -> None:
    """Append rows to a csv.gz; missing columns stay empty, and keys without a column are ignored."""
    with gzip.open(table, "rt", newline="") as stream:
        old_rows = list(csv.DictReader(stream))
    columns = list(old_rows[0])
    with gzip.open(table, "wt", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows([*old_rows, *rows])


def add_canary(hosp: Path) -> None:
    """Add the canary patient: one stay with a diagnosis, a laboratory value and a drug."""
    ids = {"subject_id": SUBJECT, "hadm_id": STAY}
    patient = {"subject_id": SUBJECT, "gender": "F", "anchor_age": "50", "anchor_year": "2177"}
    add_rows(hosp / "patients.csv.gz", [patient | {"anchor_year_group": "2011 - 2013"}])
    stay = {
        "admittime": "2177-07-07 07:07:07",
        "dischtime": "2177-07-17 17:17:17",
        "admission_type": "URGENT",
    }
    add_rows(hosp / "admissions.csv.gz", [ids | stay | {"hospital_expire_flag": "0"}])
    code = {"seq_num": "1", "icd_code": "I10", "icd_version": "10"}
    add_rows(hosp / "diagnoses_icd.csv.gz", [ids | code])
    lab = {"labevent_id": "777777777", "itemid": "50912", "charttime": "2177-07-07 09:00:00"}
    add_rows(
        hosp / "labevents.csv.gz", [ids | lab | {"value": VALUE, "valuenum": VALUE, "valueuom": "mg/dL"}]
    )
    drug = {"emar_id": f"{SUBJECT}-1", "emar_seq": "1", "charttime": "2177-07-07 10:00:00"}
    add_rows(hosp / "emar.csv.gz", [ids | drug | {"medication": "Canarimycin", "event_txt": "Administered"}])


@pytest.fixture(scope="module")
def input_with_canary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("input")
    arguments = ["--patients", "120", "--seed", "7", "--out", str(folder)]
    result = run("python", "-m", "pipelines.synthetic", "mimic", *arguments, folder=folder)
    assert result.returncode == 0, result.output
    add_canary(folder / "hosp")
    return folder


def visible_texts(result: Run) -> dict[str, bytes]:
    """Return everything visible to a person or a log collector: output, Dagster's files, pages, checkpoints, cards."""
    texts = {"stdout and stderr": result.output.encode()}
    for pattern in (
        "dagster/**/*",
        "data/mimic/models/**/*",
        "data/mimic/cards/*",
        "data/mimic/reports/**/*",
    ):
        for file in result.data.parent.glob(pattern):
            if (
                file.is_file() and file.name != "predictions.parquet"
            ):  # of the data folder, one row per person
                texts[str(file.relative_to(result.data.parent))] = file.read_bytes()
    return texts


def find_canaries(texts: dict[str, bytes]) -> list[tuple[str, str]]:
    return [
        (place, canary) for place, text in texts.items() for canary in CANARIES if canary.encode() in text
    ]


SECRET_SHAPES = re.compile(rb"(?<![\d.])\d{8}(?![\d.])|\d{4}-\d\d-\d\d")  # an id; a day


def test_no_synthetic_id_or_date_is_visible_after_a_full_run(full_run: Run):
    assert full_run.returncode == 0, full_run.output[-3000:]
    stays = pl.read_csv(full_run.data / "mimic" / "raw" / "hosp" / "admissions.csv.gz", infer_schema=False)
    values = pl.concat(
        [
            stays["subject_id"],
            stays["hadm_id"],
            *(stays[name].str.head(10) for name in ("admittime", "dischtime")),
        ]
    )
    secrets = {text.encode() for text in values.unique()}
    assert all(SECRET_SHAPES.fullmatch(text) for text in secrets)
    texts = visible_texts(full_run)
    assert_complete(texts)
    assert [place for place, text in texts.items() if secrets & set(SECRET_SHAPES.findall(text))] == []


@pytest.fixture(scope="module")
def canary_run(input_with_canary: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run(
        "dagster", "job", "execute", "-j", "mimic_full",
        folder=tmp_path_factory.mktemp("canary"),
        NEST_MIMIC_DIR=str(input_with_canary),
        NEST_VOCAB_DIR=str(input_with_canary / "vocab"),
        **SECRET,
    )  # fmt: skip


@pytest.mark.long
def test_no_canary_value_or_password_is_visible_after_a_full_run(canary_run: Run):
    assert canary_run.returncode == 0, canary_run.output[-3000:]
    texts = visible_texts(canary_run)
    assert_complete(texts)
    assert find_canaries(texts) == []


def assert_complete(texts: dict[str, bytes]) -> None:
    """Assert that the searched texts include the run database, a report and a model."""
    assert any(place.endswith(".db") for place in texts), "the run database was not searched"
    assert any(place.endswith("report.html") for place in texts)
    assert any(place.endswith("model.safetensors") for place in texts)


@pytest.mark.long
def test_canary_patient_reaches_shards_and_labels(canary_run: Run):
    """Otherwise the canary's absence elsewhere would prove nothing."""
    root = canary_run.data / "mimic"
    events = pq.read_table(root / "events")
    canary_events = events.filter(pc.equal(events["subject_id"], int(SUBJECT)))
    assert set(canary_events["kind"].to_pylist()) == {"DX", "LAB", "MED"}
    assert float(VALUE) in canary_events["value"].to_pylist()
    assert "canarimycin" in canary_events["code"].to_pylist()
    sets = pa.concat_tables(map(pq.read_table, (root / "seqset").glob("*.parquet")))
    assert pc.sum(pc.equal(sets["encounter_id"], int(STAY))).as_py() == 1
    labels = list((root / "cohorts").glob("*/labels.parquet"))
    assert len(labels) == len(list((ROOT / "assets" / "cohorts").glob("mimic_*.yaml")))
    for file in labels:
        assert int(SUBJECT) in pq.read_table(file)["subject_id"].to_pylist() or "readmission" in str(file)


FAULTY_CELLS = {
    "a text where a value stands": ("labevents", "valuenum", f"{VALUE}canarimycin"),
    "a date that is none": ("admissions", "dischtime", "2177-07-07 canarimycin"),
    "an id that is none": ("diagnoses_icd", "hadm_id", f"{STAY}canarimycin"),
    "an unknown icd_version": ("diagnoses_icd", "icd_version", "918273645918"),
    "a duplicated stay": ("admissions", "hadm_id", STAY),
}


@pytest.mark.long  # every day the messages of bad inputs are read: tests/bad_inputs
@pytest.mark.parametrize("spoilt", FAULTY_CELLS)
def test_failing_run_does_not_quote_the_faulty_row(spoilt: str, input_with_canary: Path, tmp_path: Path):
    table, column, value = FAULTY_CELLS[spoilt]
    folder = tmp_path / "input"
    folder.mkdir()
    for name in ("hosp", "vocab"):
        (folder / name).mkdir()
        for file in (input_with_canary / name).iterdir():
            (folder / name / file.name).write_bytes(file.read_bytes())
    whole = {"subject_id": SUBJECT, "hadm_id": STAY, **STAY_TIMES, "icd_code": "I10"}
    add_rows(folder / "hosp" / f"{table}.csv.gz", [whole | {column: value}])

    result = run(
        "dagster", "asset", "materialize", "--select", "mimic_raw,mimic_subjects,mimic_encounters,mimic_events",
        folder=tmp_path,
        NEST_MIMIC_DIR=str(folder),
        NEST_VOCAB_DIR=str(folder / "vocab"),
        **SECRET,
    )  # fmt: skip

    assert result.returncode != 0
    (error,) = (line for line in result.output.splitlines() if "error: " in line)
    assert table in error
    assert column in error
    assert "Stack Trace" not in result.output
    assert "Traceback" not in result.output
    assert (
        f"{AFTER_FAILURES} NEST_DATA_DIR={tmp_path / 'data'} .venv/bin/python -m assets.resume "
        in result.output
    )
    assert find_canaries(visible_texts(result)) == []

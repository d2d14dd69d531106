"""The synthetic MIMIC-IV has the real layout, real codes, and outcomes that follow the planted probabilities."""

import gzip
import io
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pipelines.sources.mimic.tables import DICTIONARIES
from pipelines.synthetic import processes
from pipelines.synthetic.__main__ import main
from pipelines.synthetic.catalog import CROSSWALKS, catalog, read
from pipelines.synthetic.draw import any_before, expand_counts, running_sum, shift_rows
from pipelines.synthetic.mimic import compress
from pipelines.synthetic.mimic.block import PatientBlock, draw_block, planted_rows
from pipelines.synthetic.mimic.drugs import prescription_rows
from pipelines.synthetic.mimic.ids import hadm_ids, subject_ids
from pipelines.synthetic.mimic.outcomes import RECENT_EFFECT
from pipelines.synthetic.mimic.patients import LONG, SHORT
from pipelines.synthetic.mimic.planted import (
    COHORTS,
    EFFECTS,
    PREDICT_HOURS,
    Parts,
    Record,
    parts_at_discharge,
    parts_at_hour,
)
from pipelines.synthetic.mimic.tables import GROUP_COLUMNS, hosp_tables
from pipelines.synthetic.mimic.volume import FULL, REAL_ROWS_PER_PATIENT, Volume, volume_of
from pipelines.synthetic.mimic.write import write_mimic
from schemas.errors import InputError, WriteError
from schemas.io.outputs import MARK
from schemas.tables.planted import PARTS
from tests.support.examples import examples

COLUMNS = {  # of MIMIC-IV v3.1
    "patients": "subject_id gender anchor_age anchor_year anchor_year_group dod",
    "admissions": "subject_id hadm_id admittime dischtime deathtime admission_type admit_provider_id "
    "admission_location discharge_location insurance language marital_status race edregtime edouttime "
    "hospital_expire_flag",
    "diagnoses_icd": "subject_id hadm_id seq_num icd_code icd_version",
    "procedures_icd": "subject_id hadm_id seq_num chartdate icd_code icd_version",
    "labevents": "labevent_id subject_id hadm_id specimen_id itemid order_provider_id charttime storetime value "
    "valuenum valueuom ref_range_lower ref_range_upper flag priority comments",
    "emar": "subject_id hadm_id emar_id emar_seq poe_id pharmacy_id enter_provider_id charttime medication "
    "event_txt scheduletime storetime",
    "prescriptions": "subject_id hadm_id pharmacy_id poe_id poe_seq order_provider_id starttime stoptime "
    "drug_type drug formulary_drug_cd gsn ndc prod_strength form_rx dose_val_rx dose_unit_rx form_val_disp "
    "form_unit_disp doses_per_24_hrs route",
}
PATIENTS = 300
COMMON = [(COHORTS[0], 0.08, 0.12), (COHORTS[1], 0.25, 0.38), (COHORTS[2], 0.25, 0.37)]


def _write(folder: Path, *, patients: int = PATIENTS, seed: int = 7, tokens: int = 60) -> Path:
    write_mimic(
        folder, folder / "planted.parquet", patients=patients, seed=seed, tokens_per_set_median=tokens
    )
    return folder


def _bytes(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.rglob("*.*"))
        if path.is_file() and path.name != MARK
    }


@pytest.fixture(scope="module")
def mimic_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _write(tmp_path_factory.mktemp("synthetic"))


@pytest.fixture(scope="module")
def tables(mimic_folder: Path) -> dict[str, pl.DataFrame]:
    return {
        name: pl.read_csv(mimic_folder / "hosp" / f"{name}.csv.gz", infer_schema_length=None)
        for name in COLUMNS
    }


@pytest.fixture(scope="module")
def block() -> PatientBlock:
    return draw_block(catalog(), 0, 2_000, Volume(), 11)


def _times(table: pl.DataFrame, *columns: str) -> pl.DataFrame:
    return table.with_columns(pl.col(columns).str.to_datetime("%Y-%m-%d %H:%M:%S"))


# ---- the files


def test_equal_seeds_give_equal_bytes_and_other_seeds_do_not(tmp_path: Path):
    once, repeat_run, other_seed = (
        _bytes(_write(tmp_path / name, patients=40, seed=seed))
        for name, seed in (("a", 3), ("b", 3), ("c", 4))
    )
    assert once == repeat_run
    equal_files = {name for name in once if once[name] == other_seed[name]}
    assert equal_files == {f"{name}.csv.gz" for name in (*CROSSWALKS, *DICTIONARIES)}


def test_more_patients_keep_the_bytes_of_the_first_blocks(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(compress, "BLOCK_PATIENTS", 20)
    files_small, files_large = (
        _bytes(_write(tmp_path / "a", patients=40)),
        _bytes(_write(tmp_path / "b", patients=55)),
    )
    assert pl.read_csv(tmp_path / "b" / "hosp" / "patients.csv.gz")["subject_id"].n_unique() == 55
    for name in COLUMNS:
        assert files_large[f"{name}.csv.gz"].startswith(files_small[f"{name}.csv.gz"])
        assert len(files_large[f"{name}.csv.gz"]) > len(files_small[f"{name}.csv.gz"])


@pytest.mark.parametrize("name", COLUMNS)
def test_every_table_has_the_columns_of_mimic_in_order(name: str, mimic_folder: Path):
    with gzip.open(mimic_folder / "hosp" / f"{name}.csv.gz", "rt") as file:
        assert file.readline().strip().split(",") == COLUMNS[name].split()


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "patients"])
def test_rows_are_grouped_as_in_the_demo_and_otherwise_unordered(name: str, tables: dict[str, pl.DataFrame]):
    table = tables[name]
    groups = table.select(pl.struct(GROUP_COLUMNS.get(name, table.columns)).alias("alike"))["alike"]
    runs = groups.rle_id()
    assert runs.n_unique() == groups.n_unique()
    first_of_run = table.filter(runs != runs.shift(1, fill_value=-1))["subject_id"]
    assert (first_of_run == first_of_run.shift(1)).mean() < 0.1
    assert 0.4 < (first_of_run.diff() > 0).mean() < 0.6


def test_comments_with_quotes_and_newlines_survive_a_round_trip(tables: dict[str, pl.DataFrame]):
    comments = tables["labevents"]["comments"].drop_nulls()
    assert comments.str.contains('"').any()
    assert comments.str.contains("\n").any()


def test_expected_data_faults_are_present_below_their_bounds(tables: dict[str, pl.DataFrame]):
    labs, emar, rx = tables["labevents"], tables["emar"], tables["prescriptions"]
    assert 0.02 < labs["hadm_id"].null_count() / labs.height < 0.4
    assert 0 < emar["hadm_id"].null_count() / emar.height < 0.05
    assert labs["storetime"].null_count() > 0
    assert labs.filter(pl.col("valuenum").is_null() & pl.col("value").is_not_null()).height > 0
    assert emar["medication"].null_count() > 0
    assert emar["event_txt"].null_count() > 0
    assert 0.6 < (emar["event_txt"] == "Administered").mean() < 0.9
    assert emar["medication"].drop_nulls().str.contains(r"^\s|\s$").any()
    assert rx["gsn"].null_count() > 0
    owner = tables["admissions"].select("hadm_id", owner="subject_id")
    for name in ("diagnoses_icd", "procedures_icd", "labevents", "emar", "prescriptions"):
        with_stay = tables[name].drop_nulls("hadm_id").join(owner, on="hadm_id", how="left")
        assert with_stay["owner"].null_count() == 0
        assert (with_stay["owner"] != with_stay["subject_id"]).sum() <= 0.0005 * tables[name].height


def test_few_stays_have_a_negative_length_and_none_in_a_small_set(block: PatientBlock):
    assert 0 < block.calendar.is_odd.sum() <= 0.003 * len(block.calendar.is_odd)
    assert not draw_block(catalog(), 0, 60, volume_of(35), 5).calendar.is_odd.any()


def test_codes_are_in_the_crosswalk_except_the_intended_few(mimic_folder: Path):
    for table, crosswalk, no_target in (
        ("diagnoses", "icd_cm_9_to_10_mapping", "NoDx"),
        ("procedures", "icd_pcs_9_to_10_mapping", "NoPCS"),
    ):
        nine = set(read(table).filter(pl.col("icd_version") == "9")["icd_code"])
        targets = pl.read_csv(mimic_folder / "vocab" / f"{crosswalk}.csv.gz", infer_schema=False)
        assert set(targets["icd_9"]) <= nine
        assert (targets["icd_10"] == no_target).any()
        assert targets["icd_9"].is_duplicated().any()
        assert len(nine - set(targets["icd_9"])) < 0.05 * len(nine)
    assert {"428", "250"} <= set(read("diagnoses")["icd_code"]) - set(read("icd_cm_9_to_10_mapping")["icd_9"])


def test_every_gsn_has_an_atc_code_and_some_names_have_several_or_none(
    mimic_folder: Path, tables: dict[str, pl.DataFrame]
):
    mapping = pl.read_csv(mimic_folder / "vocab" / "gsn_atc_ndc_mapping.csv.gz", infer_schema=False)
    names = pl.read_csv(mimic_folder / "vocab" / "atc_coding.csv.gz", infer_schema=False)
    prescription_rows = (
        tables["prescriptions"]["gsn"].cast(pl.String).drop_nulls().str.split(" ").explode().unique()
    )
    assert prescription_rows.is_in(mapping["gsn"].to_list()).all()
    assert mapping["atc"].is_in(names["atc_code"].to_list()).all()
    atc_per_name = [len(set(atc)) for atc in catalog().drugs.atc]
    assert {0, 1, 2} <= set(atc_per_name)


def test_more_than_200_laboratory_items_are_measured(block: PatientBlock):
    assert len(np.unique(block.labs.item)) > 205


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 222), st.integers(0, 222))
def test_identifiers_of_two_blocks_are_disjoint(first_block: int, second_block: int):
    index = np.arange(1_000)
    for identifiers in (subject_ids, hadm_ids):
        ids = np.concatenate([identifiers(first_block, index), identifiers(second_block, index)])
        assert len(np.unique(ids)) == (2_000 if first_block != second_block else 1_000)


def test_command_line_writes_a_readable_folder(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv", ["synthetic", "mimic", "--patients", "12", "--seed", "1", "--out", str(tmp_path)]
    )
    assert main() == 0
    assert re.search(r"admissions\s+\d+", capsys.readouterr().out)
    assert pl.read_csv(tmp_path / "hosp" / "patients.csv.gz").height == 12


def test_full_disk_keeps_the_earlier_files_and_no_partial_file(tmp_path: Path):
    bytes_before = _bytes(_write(tmp_path, patients=12))
    (tmp_path / "hosp" / ".labevents.csv.gz.part").symlink_to("/dev/full")
    with pytest.raises(WriteError, match=r"No space left on device.*earlier files are untouched"):
        _write(tmp_path, patients=15)
    assert _bytes(tmp_path) == bytes_before
    assert {path.name for path in tmp_path.rglob(".*")} == {MARK}


def test_leftovers_of_a_killed_run_are_replaced_by_the_next_run(tmp_path: Path):
    whole = _bytes(_write(tmp_path / "whole", patients=12))
    (tmp_path / "again" / "hosp").mkdir(parents=True)
    (tmp_path / "again" / "hosp" / ".emar.csv.gz.part").write_bytes(b"half a member")
    assert _bytes(_write(tmp_path / "again", patients=12)) == whole
    assert not list(tmp_path.rglob("*.part"))


# ---- several processes, and the real size


COMMAND = (
    sys.executable,
    "-m",
    "pipelines.synthetic",
    "mimic",
    "--seed",
    "9",
    "--tokens-per-set",
    "20",
)


@pytest.fixture(scope="module")
def by_one_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("one")
    return _bytes(_write(folder, patients=2_100, seed=9, tokens=20))


@pytest.mark.parametrize("workers", [2, pytest.param(3, marks=pytest.mark.long)])
def test_bytes_do_not_depend_on_the_number_of_workers(
    workers: int, by_one_process: dict[str, bytes], tmp_path: Path
):
    """Write three blocks; the processes of the command use one thread each, this process all cores."""
    command = [*COMMAND, "--patients", "2100", "--workers", str(workers), "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    assert _bytes(tmp_path) == by_one_process


def test_workers_end_with_their_parent_and_a_rerun_completes(
    by_one_process: dict[str, bytes], tmp_path: Path
):
    command = [*COMMAND, "--patients", "2100", "--workers", "2", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _wait_for(lambda: len(_ps("-o", "pid=", "--ppid", str(process.pid))) >= 2)
    _wait_for(lambda: (tmp_path / "hosp" / ".emar.csv.gz.part").exists())
    workers = ",".join(_ps("-o", "pid=", "--ppid", str(process.pid)))
    process.kill()
    process.wait()
    _wait_for(lambda: not [state for state in _ps("-o", "stat=", "-p", workers) if state[0] != "Z"])
    assert not list(tmp_path.rglob("*.gz"))
    assert _bytes(_write(tmp_path, patients=2_100, seed=9, tokens=20)) == by_one_process
    assert not list(tmp_path.rglob("*.part"))


def _ps(*options: str) -> list[str]:
    return subprocess.run(["ps", *options], check=False, capture_output=True, text=True).stdout.split()


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_killed_worker_gives_a_clear_message(tmp_path: Path, monkeypatch):
    class Killed(ProcessPoolExecutor):
        def submit(self, *_: object, **__: object) -> Future:
            future: Future = Future()
            future.set_exception(BrokenProcessPool("a process was terminated abruptly"))
            return future

    monkeypatch.setattr(processes, "ProcessPoolExecutor", Killed)
    with pytest.raises(InputError, match=r"2 workers was killed.*fewer workers"):
        write_mimic(tmp_path, tmp_path / "planted.parquet", patients=5, seed=1, workers=2)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_every_reader_accepts_several_gzip_members(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(compress, "BLOCK_PATIENTS", 20)
    file = _write(tmp_path, patients=50) / "hosp" / "labevents.csv.gz"
    expected = pl.read_csv(io.BytesIO(gzip.decompress(file.read_bytes())), infer_schema=False)
    assert file.read_bytes().count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00") >= 3
    assert pl.read_csv(file, infer_schema=False).equals(expected)
    assert pl.scan_csv(file, infer_schema=False).collect().equals(expected)
    parsing = pa_csv.ParseOptions(newlines_in_values=True)
    assert pa_csv.read_csv(file, parse_options=parsing).num_rows == expected.height
    query = f"SELECT count(*) FROM read_csv('{file}', all_varchar = true, quote = '\"', escape = '\"')"
    assert duckdb.sql(query).limit(1).fetchall() == [(expected.height,)]
    text = subprocess.run(["gzip", "-dc", str(file)], check=True, capture_output=True).stdout
    assert text == gzip.decompress(file.read_bytes())


@pytest.fixture(scope="module")
def full_block() -> PatientBlock:
    return draw_block(catalog(), 1, 1_000, FULL, 42)


def test_full_volume_has_the_real_rows_per_patient(full_block: PatientBlock):
    """With a thousand patients, the number of stays alone changes the rows of a table by some percent."""
    heights = {name: table.height for name, table in hosp_tables(catalog(), full_block, 42)}
    for name, rows in REAL_ROWS_PER_PATIENT.items():
        assert heights[name] / 1_000 == pytest.approx(rows, rel=0.12), name


def test_full_volume_has_the_real_median_set_and_outpatient_labs(
    full_block: PatientBlock,
):
    sizes = _tokens_per_set(full_block)[full_block.deaths.happens]
    assert np.median(sizes) == pytest.approx(228, rel=0.08)
    assert 0.25 < 1 - full_block.labs.has_hadm_id.mean() < 0.4


def test_full_volume_keeps_the_outcome_rates(full_block: PatientBlock):
    for cohort, low, high in COMMON:
        is_index, chance, _ = _outcomes(full_block)[cohort]
        assert low < chance[is_index].mean() < high


def test_renewals_split_the_time_of_an_order_under_new_numbers(full_block: PatientBlock):
    orders = full_block.orders
    rows = np.arange(0, len(orders.stay), 7)
    end = np.full(len(orders.stay), 10_000)
    rows_written, number = prescription_rows(orders, full_block.renewals, rows, end)
    assert len(np.unique(number)) == len(number) == (1 + full_block.renewals[rows]).sum()
    first = number < len(orders.stay)
    assert np.array_equal(number[first], rows)
    assert np.array_equal(rows_written.start_minute[first], orders.start_minute[rows])
    assert rows_written.stop_minute.max() == orders.stop_minute[rows].max()
    originals, original_numbers = prescription_rows(orders, np.zeros_like(full_block.renewals), rows, end)
    assert np.array_equal(original_numbers, rows)
    assert np.array_equal(originals.stop_minute, orders.stop_minute[rows])


# ---- the patients


def test_set_sizes_are_heavy_tailed_about_the_requested_median():
    for median in (120, 228):
        drawn_block = draw_block(catalog(), 0, 600, volume_of(median), 5)
        sizes = _tokens_per_set(drawn_block)[drawn_block.deaths.happens]
        assert np.median(sizes) == pytest.approx(median, rel=0.15)
        assert np.quantile(sizes, 0.99) > 3 * np.median(sizes)


def _tokens_per_set(patient_block: PatientBlock) -> np.ndarray:
    """Return [S]: the approximate tokens of each stay, without rows outside of stays or without a code."""
    has_atc = np.array([bool(atc) for atc in catalog().drugs.atc])
    labs = patient_block.labs.take(
        patient_block.labs.has_number & (patient_block.labs.has_hadm_id | (patient_block.labs.minute > -1440))
    )
    doses = patient_block.administrations.take(
        (patient_block.administrations.text == 0)
        & patient_block.administrations.has_name
        & has_atc[patient_block.administrations.drug]
    )
    owners = (labs.stay, doses.stay, patient_block.diagnoses.stay, patient_block.procedures.stay)
    return np.asarray(sum(np.bincount(owner, minlength=len(patient_block.stays.patient)) for owner in owners))


def test_over_half_of_the_patients_have_a_single_stay_and_a_few_many(block: PatientBlock):
    stays = np.bincount(block.stays.patient[block.deaths.happens])
    assert 0.5 < (stays == 1).mean() < 0.65
    assert 2.1 < stays.mean() < 2.7
    assert stays.max() > 15


def test_no_admission_after_death_or_before_the_last_discharge(tables: dict[str, pl.DataFrame]):
    stays = _times(tables["admissions"], "admittime", "dischtime", "deathtime").sort(
        "subject_id", "admittime"
    )
    died = stays.filter(pl.col("hospital_expire_flag") == 1)
    assert died.height > 10
    assert (died["deathtime"] == died["dischtime"]).all()
    assert (
        stays.filter(pl.col("hospital_expire_flag") == 0)["deathtime"].null_count()
        == stays.height - died.height
    )
    previous = pl.col("dischtime", "deathtime").shift(1).over("subject_id").name.prefix("previous_")
    following = stays.with_columns(previous)
    assert following["previous_deathtime"].null_count() == stays.height
    assert (following["admittime"] > following["previous_dischtime"]).drop_nulls().all()
    with_dod = died.join(tables["patients"], on="subject_id")
    assert (with_dod["dod"] == with_dod["deathtime"].dt.strftime("%Y-%m-%d")).all()


def test_laboratory_values_follow_the_diagnoses(tables: dict[str, pl.DataFrame]):
    """Renal failure raises creatinine (50912), a relation a model should find."""
    renal = (
        tables["diagnoses_icd"]
        .filter(pl.col("icd_code").str.contains(r"^(585|N18|584|N17)"))["hadm_id"]
        .unique()
    )
    creatinine = tables["labevents"].filter(pl.col("itemid") == 50912).drop_nulls(["hadm_id", "valuenum"])
    has_renal_failure = creatinine["hadm_id"].is_in(renal.implode())
    assert (
        creatinine.filter(has_renal_failure)["valuenum"].median()
        > 1.3 * creatinine.filter(~has_renal_failure)["valuenum"].median()
    )


# ---- the planted outcomes


def _outcomes(patient_block: PatientBlock) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return for each cohort: index stays, their probability, and their outcome according to the files."""
    admit, hours = patient_block.calendar.admit_minute, patient_block.lengths.hours
    gap = np.roll(admit, -1) - admit - np.floor(hours * 60)
    happens, length = patient_block.deaths.happens, patient_block.stays.length
    return {
        "mimic_mortality": (
            happens & (length != SHORT),
            patient_block.deaths.probability,
            patient_block.deaths.died,
        ),
        "mimic_long_stay": (happens & (length == LONG), patient_block.lengths.probability, hours > 168),
        "mimic_readmission": (
            patient_block.is_followed & ~patient_block.calendar.is_odd,
            patient_block.calendar.probability,
            gap <= 43_200,
        ),
    }


@pytest.mark.parametrize("cohort", COHORTS)
def test_outcomes_are_drawn_with_the_planted_probability(cohort: str, block: PatientBlock):
    is_index, chance, outcome = (values for values in _outcomes(block)[cohort])
    chance, outcome = chance[is_index], outcome[is_index]
    for part in np.array_split(np.argsort(chance), 5):
        expected, spread_of_sum = chance[part].sum(), np.sqrt((chance[part] * (1 - chance[part])).sum())
        assert abs(outcome[part].sum() - expected) < 3.5 * spread_of_sum


@pytest.mark.parametrize(("cohort", "low", "high"), COMMON)
def test_outcomes_have_hospital_rates_and_are_predictable(
    cohort: str, low: float, high: float, block: PatientBlock
):
    is_index, chance, outcome = _outcomes(block)[cohort]
    assert low < outcome[is_index].mean() < high
    assert 0.84 < roc_auc_score(outcome[is_index], chance[is_index]) < 0.92


@pytest.mark.parametrize("cohort", COHORTS)
@pytest.mark.parametrize("part", ["main", "within", "trend", "history"])
def test_every_part_of_the_planted_model_matters(cohort: str, part: str, block: PatientBlock):
    is_index, chance, outcome = _outcomes(block)[cohort]
    log_odds = np.log(chance / (1 - chance))
    log_odds_without = log_odds - getattr(EFFECTS[cohort], part) * getattr(block.parts[cohort], part)
    best = roc_auc_score(outcome[is_index], chance[is_index])
    assert roc_auc_score(outcome[is_index], log_odds_without[is_index]) < best - 0.01


def test_planted_rows_are_the_index_encounters_of_the_cohorts(
    mimic_folder: Path, tables: dict[str, pl.DataFrame]
):
    hours = (pl.col("dischtime") - pl.col("admittime")).dt.total_minutes() / 60
    stays = _times(tables["admissions"], "admittime", "dischtime").with_columns(hours=hours)
    stays = stays.sort("subject_id", "admittime")
    follows = pl.col("admittime").shift(-1).over("subject_id").is_not_null() & (pl.col("hours") > 0)
    expected = {
        "mimic_mortality": stays.filter(pl.col("hours") > 24),
        "mimic_long_stay": stays.filter(pl.col("hours") > 48),
        "mimic_readmission": stays.filter(follows),
    }
    truth = pl.read_parquet(mimic_folder / "planted.parquet")
    for cohort, indexes in expected.items():
        cohort_rows = truth.filter(pl.col("cohort") == cohort)
        assert sorted(cohort_rows["encounter_id"]) == sorted(indexes["hadm_id"])


def test_planted_table_has_a_single_row_and_probability_per_index(block: PatientBlock):
    rows = planted_rows(block)
    assert not rows.select("cohort", "encounter_id").is_duplicated().any()
    assert rows["probability"].is_between(0, 1).all()


def test_planted_parts_add_up_to_the_planted_risk(block: PatientBlock):
    """The log-odds of a readmission are checked without the effect of the time since the last stay."""
    rows = planted_rows(block).with_columns(
        rest=(pl.col("probability") / (1 - pl.col("probability"))).log() - pl.sum_horizontal(*PARTS)
    )
    for cohort, effects in EFFECTS.items():
        rest = rows.filter(pl.col("cohort") == cohort)["rest"] - effects.intercept
        most = RECENT_EFFECT if cohort == "mimic_readmission" else 1e-9
        assert rest.abs().max() <= most


def _record(patient_block: PatientBlock) -> Record:
    readable_conditions = np.zeros(
        (len(patient_block.stays.patient), len(catalog().conditions.names)), dtype=bool
    )
    return Record(
        catalog(), patient_block.stays, patient_block.labs, patient_block.administrations, readable_conditions
    )


def _equal(first: Parts, second: Parts) -> bool:
    return all(np.array_equal(getattr(first, part), getattr(second, part)) for part in vars(first))


@pytest.fixture(scope="module")
def small() -> PatientBlock:
    return draw_block(catalog(), 0, 120, volume_of(56), 3)


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(PREDICT_HOURS.values())))
def test_noise_after_the_prediction_keeps_the_planted_probability(small: PatientBlock, seed: int, hour: int):
    rng, record = np.random.default_rng(seed), _record(small)
    labs, administrations = record.labs, record.administrations
    noisy_labs = replace(
        labs,
        value=np.where(labs.available_minute > hour * 60, rng.uniform(0, 1e3, len(labs.value)), labs.value),
    )
    drugs = rng.integers(0, len(catalog().drugs.names), len(administrations.drug))
    noisy_doses = replace(
        administrations, drug=np.where(administrations.minute > hour * 60, drugs, administrations.drug)
    )
    readable_conditions = record.readable_conditions.copy()
    # last stays' own
    readable_conditions[np.append(np.diff(record.stays.patient) > 0, True)] = (
        rng.random(readable_conditions.shape[1]) < 0.5
    )
    noisy = replace(
        record, labs=noisy_labs, administrations=noisy_doses, readable_conditions=readable_conditions
    )
    assert _equal(parts_at_hour(record, hour), parts_at_hour(noisy, hour))


def test_later_stays_do_not_change_earlier_planted_risks(small: PatientBlock):
    record = _record(small)
    last = np.append(np.diff(record.stays.patient) > 0, True)
    fewer = replace(
        record,
        labs=record.labs.take(~last[record.labs.stay]),
        administrations=record.administrations.take(~last[record.administrations.stay]),
    )
    whole, fewer_parts = (parts_at_discharge(each, small.lengths.hours) for each in (record, fewer))
    for part in vars(whole):
        assert np.array_equal(getattr(whole, part)[~last], getattr(fewer_parts, part)[~last])
    assert not np.array_equal(whole.within, fewer_parts.within)


def test_trend_depends_on_the_order_of_stays(small: PatientBlock):
    """Reversing the order of stays reverses the trend, which counts over all stays could not show."""
    trend = small.parts["mimic_readmission"].trend
    assert (trend[small.stays.ordinal == 0] == 0).all()
    assert (trend[small.stays.ordinal > 0] != 0).mean() > 0.8


def test_recent_admission_makes_the_next_admission_likelier(block: PatientBlock):
    assert RECENT_EFFECT > 0
    later = block.stays.ordinal > 0
    previous_admission = shift_rows(block.calendar.admit_minute.astype(float), block.stays.ordinal, 1)
    days = (block.calendar.admit_minute - previous_admission) / 1440
    base = block.parts["mimic_readmission"].log_odds(EFFECTS["mimic_readmission"])
    chance = block.calendar.probability
    lift = np.log(chance / (1 - chance)) - base
    assert np.corrcoef(days[later], lift[later])[0, 1] < -0.3


# ---- runs of rows of one patient


@given(st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=6), min_size=1, max_size=8))
def test_helpers_over_runs_agree_with_plain_loops(runs: list[list[int]]):
    owner, ordinal = expand_counts(np.array([len(run) for run in runs]))
    values = np.array([float(value) for run in runs for value in run])
    assert owner.tolist() == [index for index, run in enumerate(runs) for _ in run]
    assert running_sum(values, ordinal).tolist() == [
        float(sum(run[: k + 1])) for run in runs for k in range(len(run))
    ]
    expected = [run[k - 1] if k else None for run in runs for k in range(len(run))]
    assert [None if np.isnan(value) else value for value in shift_rows(values, ordinal, 1)] == expected
    expected_flags = [any(value > 0 for value in run[:k]) for run in runs for k in range(len(run))]
    assert any_before(values > 0, ordinal).tolist() == expected_flags


def test_gzip_member_carries_no_time(mimic_folder: Path):
    head = io.BytesIO((mimic_folder / "hosp" / "patients.csv.gz").read_bytes()).read(8)
    assert head[4:8] == b"\0\0\0\0"


# ---- codes that reveal the length of a stay


def test_ventilation_code_is_dated_early_and_reveals_the_later_course(block: PatientBlock):
    """As on a bill, a reader of the code on its date would know that the stay lasts for days."""
    codes, hours, died = block.procedures, block.lengths.hours, block.deaths.died
    is_long = np.isin(codes.code.astype(str), ["5A1955Z", "9672"])
    stays = np.unique(codes.stay[is_long])
    assert len(stays) > 100
    assert (hours[stays] >= 96).all()
    assert (codes.day[is_long] == 0).mean() > 0.4
    other_stays = np.setdiff1d(np.arange(len(hours)), stays)
    assert (hours[stays] > 168).mean() > 2 * (hours[other_stays] > 168).mean()
    assert died[stays].mean() > 3 * died[other_stays].mean()

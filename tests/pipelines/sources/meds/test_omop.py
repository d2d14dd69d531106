"""MEDS datasets converted from OMOP: read in the layouts of two converters, or refused."""

from pathlib import Path

import polars as pl
import pytest

from pipelines.corpus.tokens import parent_token
from pipelines.events.clock import NEVER
from pipelines.reading.code_names import find_dictionaries, write_code_names
from pipelines.sources.meds.code_names import described_codes
from schemas.cards import StepCard
from schemas.expectations import MEDS_SUITES
from schemas.expectations.validation import validate
from schemas.layout import Layout
from schemas.rules import DataRules
from tests.support.meds_tables import read_meds, write_shards
from tests.support.omop_tables import END, LAYOUTS, START, at, omop_dataset

RULES = DataRules(min_count=1, fit_on="all", top_labs=5)
CODES = {
    "meds_etl": {
        ("DX", "snomed", "38341003", "SNOMED/38341003"),
        ("DX", "icd10cm", "I10", "I10"),
        (
            "DX",
            "meds",
            "condition_occurrence//OMOP Extension/OMOP4873949",
            "condition_occurrence//OMOP Extension/OMOP4873949",
        ),
        ("DX", "snomed", "160903007", "SNOMED/160903007"),
        ("PR", "meds", "procedure_occurrence//SNOMED/40617009", "procedure_occurrence//SNOMED/40617009"),
        ("PR", "icd10pcs", "5A1955Z", "5A1955Z"),
        ("PR", "hcpcs", "G0378", "G0378"),
        ("PR", "cpt", "31500", "31500"),
        (
            "PR",
            "meds",
            "procedure_occurrence//Nebraska Lexicon/99",
            "procedure_occurrence//Nebraska Lexicon/99",
        ),
        ("MED", "rxnorm", "723", "RX723"),
        ("IMM", "cvx", "140", "140"),
        ("MED", "atc", "J01CA04", "J01CA04"),
        ("LAB", "loinc", "2160-0", None),
        ("ITEM", "meds", "measurement//SNOMED/271649006", "measurement//SNOMED/271649006"),
        ("ITEM", "meds", "visit_detail//NUCC/207R00000X", "visit_detail//NUCC/207R00000X"),
    },
    "OMOP_MEDS": {
        ("DX", "meds", "condition_occurrence//SNOMED//320128", "condition_occurrence//SNOMED//320128"),
        ("PR", "meds", "procedure_occurrence//SNOMED//4230911", "procedure_occurrence//SNOMED//4230911"),
        ("MED", "meds", "drug_exposure_start//RxNorm//1713332", "drug_exposure_start//RxNorm//1713332"),
        ("MED", "meds", "drug_exposure_end//RxNorm//1713332", "drug_exposure_end//RxNorm//1713332"),
        ("DX", "snomed", "160903007", "SNOMED/160903007"),
        ("LAB", "loinc", "2160-0", None),
    },
}


def read(folder: Path, layout: str, **options: object) -> Layout:
    return read_meds(omop_dataset(folder / "set", layout, **options), Layout(folder / "meds"), RULES)


def events_of(layout: Layout) -> pl.DataFrame:
    return pl.read_parquet(layout.events / "*.parquet")


def failed_rules(layout: Layout, *tables: str) -> dict[str, str]:
    """Return the blocking rules that fail, each with its message."""
    outcomes = [outcome for name in tables for outcome in validate(MEDS_SUITES[name](layout)).failed("ERROR")]
    return {outcome.rule.name: outcome.fault for outcome in outcomes}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_kind_of_code_follows_vocabulary_and_omop_table(layout: str, tmp_path: Path):
    events = events_of(read(tmp_path, layout))
    assert set(events.select("kind", "vocab", "code", "mapped").iter_rows()) == CODES[layout]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_diagnoses_and_procedures_are_known_after_visit(layout: str, tmp_path: Path):
    events = events_of(read(tmp_path, layout))
    has_code = pl.col("kind").is_in(["DX", "PR"])
    assert set(events.filter(has_code)["available_at"]) == {END}
    assert events.filter(~has_code).select((pl.col("available_at") == pl.col("time")).all()).item()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_visit_ends_and_sexes_are_read(layout: str, tmp_path: Path):
    meds_layout = read(tmp_path, layout)
    stays = pl.read_parquet(meds_layout.encounters)
    assert set(stays.select("start", "end").iter_rows()) == {(START, END)}
    people = pl.read_parquet(meds_layout.subjects)
    assert (set(people["sex"]), people["birth_date"].null_count()) == ({"F"}, 0)
    if layout == "meds_etl":
        assert set(stays.select("admission_type", "race").iter_rows()) == {("IP", "5")}


@pytest.mark.parametrize("layout", ["OMOP_MEDS", pytest.param("meds_etl", marks=pytest.mark.long)])
def test_a_dataset_of_either_layout_passes_every_blocking_check(layout: str, tmp_path: Path):
    meds_layout = write_shards(read(tmp_path, layout), RULES)
    write_code_names(meds_layout, find_dictionaries([]), *described_codes(tmp_path / "set"))
    assert failed_rules(meds_layout, *MEDS_SUITES) == {}


def test_end_of_condition_is_counted_and_not_a_diagnosis(tmp_path: Path):
    layout = read(tmp_path, "OMOP_MEDS")
    diagnoses = events_of(layout).filter(pl.col("code").str.contains("320128"))
    assert set(diagnoses["code"]) == {"condition_occurrence//SNOMED//320128"}
    assert (
        diagnoses.height
        == StepCard.read(layout.cards, "events").flows["rows"].dropped["end_of_condition"]
        == 40
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_code_with_vocabulary_name_has_no_parent_token(layout: str):
    tokens = [f"{kind}:{target}" for kind, _, _, target in CODES[layout] if target and "/" in target]
    parents = pl.DataFrame({"token": tokens}).select(parent_token(pl.col("token"))).to_series()
    assert parents.null_count() == len(tokens) > 0


def test_without_the_table_a_snomed_code_is_a_diagnosis(tmp_path: Path):
    events = events_of(read(tmp_path, "meds_etl", missing_columns=("table",)))
    snomed_events = events.filter(vocab="snomed")
    assert set(snomed_events["kind"]) == {"DX"}
    assert snomed_events["code"].n_unique() == 4
    assert set(snomed_events["available_at"]) == {END}


@pytest.mark.parametrize(
    ("start", "end", "ends"),
    [
        (at(0), at(0), at(13.9999999997222)),
        (at(1), at(0), at(13.9999999997222)),
        (at(0), at(-24), None),
        (at(0), None, None),
    ],
)
def test_visit_ends_with_day_when_end_is_start(start, end, ends, tmp_path: Path):
    folder = omop_dataset(tmp_path / "set", "meds_etl", subjects=3)
    file = folder / "data" / "train" / "0.parquet"
    visit = pl.col("table") == "visit"
    rows = pl.read_parquet(file).with_columns(
        time=pl.when(visit).then(pl.lit(start, pl.Datetime("us"))).otherwise("time"),
        end=pl.when(visit).then(pl.lit(end, pl.Datetime("us"))).otherwise("end"),
    )
    rows.write_parquet(file)
    layout = read_meds(folder, Layout(tmp_path / "meds"), RULES)
    assert set(pl.read_parquet(layout.encounters)["end"]) == {ends}
    diagnoses = events_of(layout).filter(code="I10")
    assert set(diagnoses["available_at"]) == {NEVER if ends is None else ends}


UNKNOWN = [
    ("sex_is_found_for_most_subjects", {"Gender/": "Geschlecht/"}, "GENDER//, Gender/"),
    ("end_is_said_for_most_encounters", {"Visit/": "Besuch/"}, "HOSPITAL_ADMISSION"),
    (
        "diagnosis_is_found_for_most_subjects",
        {"SNOMED/": "SCT/", "ICD10CM/": "Diagnose/", "OMOP Extension/": "X/"},
        "ICD10CM/, SNOMED/",
    ),
]


@pytest.mark.parametrize(
    ("rule", "spellings", "looked_for"),
    [
        pytest.param(*row, id=row[0], marks=pytest.mark.long if row[0].startswith("end") else ())
        for row in UNKNOWN
    ],
)
def test_unknown_spelling_of_most_codes_is_error_that_lists_known_codes(
    rule: str, spellings: dict[str, str], looked_for: str, tmp_path: Path
):
    layout = read(tmp_path, "meds_etl", missing_columns=("table",), **spellings)
    faults = failed_rules(layout, "subjects", "encounters", "events")
    assert set(faults) == {rule}
    assert "searched for: " in faults[rule]
    assert looked_for in faults[rule]


def test_lost_ends_of_visits_are_an_error(tmp_path: Path):
    layout = read(tmp_path, "meds_etl", missing_columns=("end",))
    assert set(failed_rules(layout, "encounters")) == {
        "end_is_said_for_most_encounters",
        "end_is_given_but_for_a_few",
    }

"""MEDS datasets that were OMOP: read for what they are in either converter's layout, or refused."""

from pathlib import Path

import polars as pl
import pytest

from pipelines.corpus.tokens import parent_token
from pipelines.events.clock import NEVER
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


def failing(layout: Layout, *tables: str) -> dict[str, str]:
    """Return the blocking rules that fail, each with what is said of it."""
    outcomes = [outcome for name in tables for outcome in validate(MEDS_SUITES[name](layout)).failed("ERROR")]
    return {outcome.rule.name: outcome.fault for outcome in outcomes}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_kind_of_a_code_is_that_of_its_vocabulary_and_of_the_table_it_is_from(
    layout: str, tmp_path: Path
):
    events = events_of(read(tmp_path, layout))
    assert set(events.select("kind", "vocab", "code", "mapped").iter_rows()) == CODES[layout]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_diagnoses_and_procedures_are_known_when_their_visit_is_over(layout: str, tmp_path: Path):
    events = events_of(read(tmp_path, layout))
    coded = pl.col("kind").is_in(["DX", "PR"])
    assert set(events.filter(coded)["available_at"]) == {END}
    assert events.filter(~coded).select((pl.col("available_at") == pl.col("time")).all()).item()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_visits_have_their_ends_and_subjects_their_sex(layout: str, tmp_path: Path):
    read_in = read(tmp_path, layout)
    stays = pl.read_parquet(read_in.encounters)
    assert set(stays.select("start", "end").iter_rows()) == {(START, END)}
    people = pl.read_parquet(read_in.subjects)
    assert (set(people["sex"]), people["birth_date"].null_count()) == ({"F"}, 0)
    if layout == "meds_etl":
        assert set(stays.select("admission_type", "race").iter_rows()) == {("IP", "5")}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_dataset_of_either_layout_passes_every_blocking_check(layout: str, tmp_path: Path):
    read_in = write_shards(read(tmp_path, layout), RULES)
    assert failing(read_in, *MEDS_SUITES) == {}


def test_the_end_of_a_condition_is_counted_and_no_diagnosis_of_its_own(tmp_path: Path):
    layout = read(tmp_path, "OMOP_MEDS")
    diagnoses = events_of(layout).filter(pl.col("code").str.contains("320128"))
    assert set(diagnoses["code"]) == {"condition_occurrence//SNOMED//320128"}
    assert (
        diagnoses.height
        == StepCard.read(layout.cards, "events").flows["rows"].dropped["end_of_condition"]
        == 40
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_code_that_names_its_vocabulary_backs_off_to_no_parent(layout: str):
    tokens = [f"{kind}:{mapped}" for kind, _, _, mapped in CODES[layout] if mapped and "/" in mapped]
    parents = pl.DataFrame({"token": tokens}).select(parent_token(pl.col("token"))).to_series()
    assert parents.null_count() == len(tokens) > 0


def test_without_the_table_a_snomed_code_is_a_diagnosis(tmp_path: Path):
    events = events_of(read(tmp_path, "meds_etl", without=("table",)))
    snomed = events.filter(vocab="snomed")
    assert set(snomed["kind"]) == {"DX"}
    assert snomed["code"].n_unique() == 4
    assert set(snomed["available_at"]) == {END}


@pytest.mark.parametrize(
    ("start", "end", "ends"),
    [
        (at(0), at(0), at(13.9999999997222)),
        (at(1), at(0), at(13.9999999997222)),
        (at(0), at(-24), None),
        (at(0), None, None),
    ],
)
def test_a_visit_that_ends_when_it_begins_ends_with_its_day_and_one_without_an_end_has_none(
    start, end, ends, tmp_path: Path
):
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


@pytest.mark.parametrize(("rule", "other", "looked_for"), UNKNOWN, ids=[row[0] for row in UNKNOWN])
def test_what_is_spelt_otherwise_for_most_is_an_error_that_says_what_was_looked_for(
    rule: str, other: dict[str, str], looked_for: str, tmp_path: Path
):
    layout = read(tmp_path, "meds_etl", without=("table",), **other)
    found = failing(layout, "subjects", "encounters", "events")
    assert set(found) == {rule}
    assert "looked for were" in found[rule]
    assert looked_for in found[rule]


def test_visits_whose_ends_are_lost_are_an_error(tmp_path: Path):
    layout = read(tmp_path, "meds_etl", without=("end",))
    assert set(failing(layout, "encounters")) == {
        "end_is_said_for_most_encounters",
        "end_is_given_but_for_a_few",
    }

"""Tests that every bad input gives a correct result, with counted drops, or one message and no partial output."""

import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipelines.cohorts.labels import write_labels
from pipelines.reading import tables as raw_reader
from pipelines.sources.mimic.steps import find_source
from schemas.cards import StepCard
from schemas.cohort import parse_cohort
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.bad_inputs.__main__ import PAGE, page
from tests.bad_inputs.cases import CASES
from tests.bad_inputs.clean import ROWS, write_clean
from tests.bad_inputs.damage import Damage, Row, nothing, rows
from tests.bad_inputs.outcomes import Case, CountedResult, ReferenceResult, Refusal, SameResult
from tests.support.commands import ROOT
from tests.support.compare import assert_agreement, run_all
from tests.support.raw_tables import DRUGS

RULES = PRESETS["default"]
STEPS = ("raw", "subjects", "buckets", "encounters", "events", "drug_lookup", "vocab", "seqset")
COHORTS = ("mimic_mortality", "mimic_readmission")
RESULT_FILES = {
    "subjects": "subjects.parquet",
    "encounters": "encounters.parquet",
    "events": "events/*.parquet",
    "vocab": "vocab.parquet",
    "shards": "seqset/*.parquet",
    "labels": "cohorts/*/labels.parquet",
}
ROW_VALUES = (r"\d{6,}", r"\d{4}-\d\d-\d\d", r"31415", *DRUGS[:1], *DRUGS[2:])


def make(raw: Path, data: Path) -> Layout:
    """Run every step from the raw tables to shards and labels."""
    layout = Layout(data)
    run_all(find_source(raw, raw / "vocab"), layout, RULES)
    for name in COHORTS:
        write_labels(parse_cohort(ROOT / "assets" / "cohorts" / f"{name}.yaml"), layout, RULES)
    return layout


def results(layout: Layout, kinds: tuple[str, ...]) -> dict[str, bytes]:
    """Return the bytes of the files of some kinds of results."""
    files = {
        str(path.relative_to(layout.root)): path.read_bytes()
        for kind in kinds
        for path in sorted(layout.root.glob(RESULT_FILES[kind]))
    }
    assert len(files) >= len(kinds)
    return files


def is_of_a_later_step(name: str, last: str) -> bool:
    """Return whether a file belongs to a step after `last` or to no step, such as a partial file."""
    return name.removeprefix("cards/").split("/")[0].split(".")[0] not in STEPS[: STEPS.index(last) + 1]


def everything(folder: Path, last: str) -> dict[str, bytes]:
    """Return the bytes of all files except those of the steps up to `last`."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if is_of_a_later_step(name, last)}


def count_of(layout: Layout, location: tuple[str, str, str], reason: str) -> int:
    step, table, part = location
    card = StepCard.read(layout.cards, step)
    return (card.counts if part == "counts" else getattr(card.flows[table], part)).get(reason, 0)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The good input and everything made from it."""
    folder = tmp_path_factory.mktemp("clean")
    write_clean(folder / "raw")
    make(folder / "raw", folder / "data")
    return folder


@pytest.fixture
def damaged_copy(clean: Path, tmp_path: Path, request: pytest.FixtureRequest):
    """Return a function that makes a damaged copy of the good input."""

    def damage_copy(damage: Damage, name: str = "damaged_copy") -> Path:
        shutil.copytree(clean / "raw", tmp_path / name / "raw")
        damage(tmp_path / name / "raw")
        return tmp_path / name

    return damage_copy


def assert_same_files(files: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Assert that both have the same files with the same bytes; a failure lists the names, not the bytes."""
    assert list(files) == list(expected)
    assert [name for name in files if files[name] != expected[name]] == []


def check_same(case: Case, outcome: SameResult | CountedResult, clean: Path, damaged_copy) -> None:
    folder = damaged_copy(case.damage)
    layout = make(folder / "raw", folder / "data")
    expected = Layout(clean / "data")
    if outcome.as_if is not nothing:
        reference = damaged_copy(outcome.as_if, "as_if")
        expected = make(reference / "raw", reference / "data")
    assert_same_files(results(layout, outcome.results), results(expected, outcome.results))
    if isinstance(outcome, CountedResult):
        clean_count, damaged_count = (
            count_of(at, outcome.location, outcome.reason) for at in (Layout(clean / "data"), layout)
        )
        assert damaged_count - clean_count == outcome.count


def check_refused(case: Case, outcome: Refusal, clean: Path, damaged_copy) -> None:
    folder = damaged_copy(case.damage)
    shutil.copytree(clean / "data", folder / "data")
    files = everything(folder / "data", outcome.last_step)
    with (
        case.during(folder) if case.during else nullcontext(),
        pytest.raises(NestError) as error,
    ):
        make(folder / "raw", folder / "data")
    assert everything(folder / "data", outcome.last_step) == files
    message = str(error.value).replace(str(folder), "")
    assert_message(message, case, outcome)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__ or error.value.__context__ is None


def assert_message(message: str, case: Case, outcome: Refusal) -> None:
    """Assert that a message is one line with file, column, count, fault and remedy, and no value of a row."""
    assert "\n" not in message
    assert (outcome.file or case.table) in message.split(":")[0]
    assert re.search(outcome.says, message), message
    assert re.search(outcome.mend, message), message
    if outcome.column is not None:
        assert f"column {outcome.column}" in message
    if outcome.count is not None:
        assert re.search(rf"\b{outcome.count:,} of {outcome.of or ROWS[case.table]:,} ", message), message
    assert not [match for pattern in ROW_VALUES for match in re.findall(pattern, message)]
    assert "polars" not in message.lower()


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.is_quick else pytest.mark.long) for case in CASES],
)
def test_bad_input_has_the_outcome_in_the_table(case: Case, clean: Path, damaged_copy):
    if isinstance(case.outcome, Refusal):
        check_refused(case, case.outcome, clean, damaged_copy)
    elif isinstance(case.outcome, ReferenceResult):
        folder = damaged_copy(case.damage)
        layout = make(folder / "raw", folder / "data")
        assert_agreement(layout, folder / "raw" / "hosp", folder / "raw" / "vocab", RULES)
    else:
        check_same(case, case.outcome, clean, damaged_copy)


@pytest.mark.docs
def test_docs_page_equals_the_generated_page():
    assert PAGE.read_text() == page(), "run `python -m tests.bad_inputs`"


def test_last_batch_is_handled_like_the_first(clean: Path, damaged_copy, monkeypatch):
    monkeypatch.setattr(raw_reader, "ROWS_PER_BATCH", 250)

    def last_cells(change: str) -> Damage:
        def change_last(records: list[Row]) -> list[Row]:
            for row in [row for row in records if row["hadm_id"]][-3:]:
                row["hadm_id"] = f"{row['hadm_id']}{change}"
            return records

        return rows("labevents", change_last)

    case = Case("late", "labevents", last_cells(".0"), SameResult(), "")
    check_same(case, case.outcome, clean, damaged_copy)
    folder = damaged_copy(last_cells(".5"), "late")
    with pytest.raises(NestError, match=r"column hadm_id: 3 of 3,502 values are not a whole number"):
        make(folder / "raw", folder / "data")

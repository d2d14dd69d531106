"""Every bad input ends in a right result, told drops included, or in one message; nothing half-made is left."""

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
from tests.bad_inputs.outcomes import Case, Counted, Derived, Refused, Same
from tests.support.commands import ROOT
from tests.support.compare import assert_agreement, run_all
from tests.support.raw_tables import DRUGS

RULES = PRESETS["default"]
STEPS = ("raw", "subjects", "buckets", "encounters", "events", "drug_lookup", "vocab", "seqset")
COHORTS = ("mimic_mortality", "mimic_readmission")
OF_RESULT = {
    "subjects": "subjects.parquet",
    "encounters": "encounters.parquet",
    "events": "events/*.parquet",
    "vocab": "vocab.parquet",
    "shards": "seqset/*.parquet",
    "labels": "cohorts/*/labels.parquet",
}
OF_A_ROW = (r"\d{6,}", r"\d{4}-\d\d-\d\d", r"31415", *DRUGS[:1], *DRUGS[2:])


def make(raw: Path, data: Path) -> Layout:
    """Run every step from the raw tables to shards and labels."""
    layout = Layout(data)
    run_all(find_source(raw, raw / "vocab"), layout, RULES)
    for name in COHORTS:
        write_labels(parse_cohort(ROOT / "assets" / "cohorts" / f"{name}.yaml"), layout, RULES)
    return layout


def results(layout: Layout, wanted: tuple[str, ...]) -> dict[str, bytes]:
    """Return the bytes of each kind of result wanted."""
    found = {
        str(path.relative_to(layout.root)): path.read_bytes()
        for kind in wanted
        for path in sorted(layout.root.glob(OF_RESULT[kind]))
    }
    assert len(found) >= len(wanted)
    return found


def is_of_a_later_step(name: str, last: str) -> bool:
    """Say whether a file is of a step after `last`, or of none: what is half-made or forgotten."""
    return name.removeprefix("cards/").split("/")[0].split(".")[0] not in STEPS[: STEPS.index(last) + 1]


def everything(folder: Path, last: str) -> dict[str, bytes]:
    """Return the bytes of every file but those of the steps up to `last`."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if is_of_a_later_step(name, last)}


def count_of(layout: Layout, where: tuple[str, str, str], reason: str) -> int:
    step, table, part = where
    card = StepCard.read(layout.cards, step)
    return (card.counts if part == "counts" else getattr(card.flows[table], part)).get(reason, 0)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The good input, and what is made from it."""
    folder = tmp_path_factory.mktemp("clean")
    write_clean(folder / "raw")
    make(folder / "raw", folder / "data")
    return folder


@pytest.fixture
def spoilt(clean: Path, tmp_path: Path, request: pytest.FixtureRequest):
    """Make a damaged copy of the good input."""

    def spoil(damage: Damage, name: str = "spoilt") -> Path:
        shutil.copytree(clean / "raw", tmp_path / name / "raw")
        damage(tmp_path / name / "raw")
        return tmp_path / name

    return spoil


def check_same(case: Case, outcome: Same | Counted, clean: Path, spoilt) -> None:
    folder = spoilt(case.damage)
    made = make(folder / "raw", folder / "data")
    expected = Layout(clean / "data")
    if outcome.as_if is not nothing:
        other = spoilt(outcome.as_if, "as_if")
        expected = make(other / "raw", other / "data")
    assert results(made, outcome.results) == results(expected, outcome.results)
    if isinstance(outcome, Counted):
        before, after = (count_of(at, outcome.where, outcome.reason) for at in (Layout(clean / "data"), made))
        assert after - before == outcome.count


def check_refused(case: Case, outcome: Refused, clean: Path, spoilt) -> None:
    folder = spoilt(case.damage)
    shutil.copytree(clean / "data", folder / "data")
    before = everything(folder / "data", outcome.after)
    with (
        case.during(folder) if case.during else nullcontext(),
        pytest.raises(NestError) as caught,
    ):
        make(folder / "raw", folder / "data")
    assert everything(folder / "data", outcome.after) == before
    said = str(caught.value).replace(str(folder), "")
    assert_said(said, case, outcome)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def assert_said(said: str, case: Case, outcome: Refused) -> None:
    """One line: the file, the column and the count where there is one, what is wrong, what to do, nothing of a row."""
    assert "\n" not in said
    assert (outcome.file or case.table) in said.split(":")[0]
    assert re.search(outcome.says, said), said
    assert re.search(outcome.mend, said), said
    if outcome.column is not None:
        assert f"column {outcome.column}" in said
    if outcome.count is not None:
        assert re.search(rf"\b{outcome.count:,} of {outcome.of or ROWS[case.table]:,} ", said), said
    assert not [found for pattern in OF_A_ROW for found in re.findall(pattern, said)]
    assert "polars" not in said.lower()


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=() if case.is_quick else pytest.mark.long) for case in CASES],
)
def test_a_bad_input_ends_as_the_table_says(case: Case, clean: Path, spoilt):
    if isinstance(case.outcome, Refused):
        check_refused(case, case.outcome, clean, spoilt)
    elif isinstance(case.outcome, Derived):
        folder = spoilt(case.damage)
        made = make(folder / "raw", folder / "data")
        assert_agreement(made, folder / "raw" / "hosp", folder / "raw" / "vocab", RULES)
    else:
        check_same(case, case.outcome, clean, spoilt)


def test_the_page_for_users_is_the_table():
    assert PAGE.read_text() == page(), "run `python -m tests.bad_inputs`"


def test_a_spelling_or_a_fault_of_the_last_batch_is_as_one_of_the_first(clean: Path, spoilt, monkeypatch):
    monkeypatch.setattr(raw_reader, "ROWS_PER_BATCH", 250)

    def last_cells(change: str) -> Damage:
        def change_last(found: list[Row]) -> list[Row]:
            for row in [row for row in found if row["hadm_id"]][-3:]:
                row["hadm_id"] = f"{row['hadm_id']}{change}"
            return found

        return rows("labevents", change_last)

    same = Case("late", "labevents", last_cells(".0"), Same(), "")
    check_same(same, same.outcome, clean, spoilt)
    folder = spoilt(last_cells(".5"), "late")
    with pytest.raises(NestError, match=r"column hadm_id: 3 of 3,502 values are not a whole number"):
        make(folder / "raw", folder / "data")

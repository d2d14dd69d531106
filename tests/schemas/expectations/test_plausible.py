"""What is plausible: each rule on counts rings where a share goes beyond its bounds, and few rows ring nothing."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from schemas import expectations
from schemas.expectations import validation
from schemas.expectations.usual import RECORD_STAYS, RECORDS
from schemas.expectations.validation import Outcome, validate
from schemas.suppress import SMALLEST_SHOWN
from tests.support.tiny_layout import DAY, Row, Tables, tables, write

Change = Callable[[Tables], object]
YEAR = timedelta(days=365)


def each(table: str, change: Callable[[Row], object], kind: str | None = None, most: int = 10_000) -> Change:
    """Return a change of all rows of a table, or of the first so many events of a kind."""

    def all_rows(rows: Tables) -> None:
        chosen = [row for row in rows[table] if kind in (None, row.get("kind"))]
        for row in chosen[:most]:
            change(row)

    return all_rows


def later(row: Row, by: timedelta, *columns: str) -> None:
    for column in columns:
        if row[column] is not None:
            row[column] += by


def shifted(kind: str, by: timedelta) -> Change:
    return each("events", lambda row: later(row, by, "time", "available_at"), kind)


def at(hours: bool) -> Callable[[Row], None]:
    """Return a change of an event's time to its day, or to its hour; known an hour later."""

    def change(row: Row) -> None:
        kept = {"minute": 0} if hours else {"hour": 0, "minute": 0}
        row["time"] = (row["time"] + (timedelta(0) if hours else DAY)).replace(**kept)
        row["available_at"] = row["time"] + timedelta(hours=1)

    return change


def again(table: str, number: str, kind: str | None = None) -> Change:
    """Return a change that appends every row once more under another number."""

    def append(rows: Tables) -> None:
        chosen = [row for row in rows[table] if kind in (None, row.get("kind"))]
        rows[table] += [{**row, number: row[number] + 100_000} for row in chosen]

    return append


def died_in_every_stay(row: Row) -> None:
    row.update({"died": True, "death_time": row["end"]})


FAULTS: list[tuple[str, Change, set[str]]] = [
    ("events", shifted("LAB", -YEAR), {"laboratory_values_lie_near_their_stays"}),
    ("events", shifted("LAB", YEAR), {"most_laboratory_values_lie_near_their_stays"}),
    ("events", shifted("MED", -YEAR), {"drugs_lie_near_their_stays", "most_drugs_lie_near_their_stays"}),
    ("events", shifted("PR", 30 * DAY), {"procedures_lie_near_their_stays"}),
    ("events", shifted("MED", -7 * timedelta(hours=1)), {"drugs_seldom_precede_their_stays"}),
    ("events", shifted("MED", 3 * DAY), {"drugs_seldom_follow_their_stays"}),
    ("events", shifted("LAB", -7 * timedelta(hours=1)), {"laboratory_values_seldom_precede_their_stays"}),
    ("events", shifted("LAB", 3 * DAY), {"laboratory_values_seldom_follow_their_stays"}),
    ("events", each("events", at(hours=False), "LAB"), {"laboratory_values_have_times_of_day"}),
    ("events", each("events", at(hours=False), "MED"), {"most_drugs_have_times_of_day"}),
    ("events", each("events", at(hours=True), "LAB"), {"laboratory_values_have_minutes"}),
    (
        "events",
        each("events", lambda row: row.update(available_at=row["time"]), "LAB"),
        {"most_laboratory_values_are_known_after_they_happen"},
    ),
    (
        "events",
        each("events", lambda row: later(row, 90 * DAY, "available_at"), "LAB"),
        {"laboratory_values_are_known_within_a_week", "most_laboratory_values_are_known_within_a_week"},
    ),
    (
        "events",
        each("subjects", lambda row: row.update(death_date=row["birth_date"])),
        {"events_precede_death"},
    ),
    (
        "events",
        each("subjects", lambda row: later(row, 70 * YEAR, "birth_date")),
        {"events_follow_birth", "most_events_follow_birth"},
    ),
    (
        "events",
        each("events", lambda row: row.update(value=-1e308), "LAB", 20),
        {"value_is_of_a_possible_size"},
    ),
    ("events", each("events", lambda row: row.update(value=1e10), "LAB", 1), {"value_is_of_a_usual_size"}),
    ("events", again("events", "rank", "LAB"), {"most_laboratory_values_are_recorded_once"}),
    ("events", again("events", "rank", "MED"), {"drugs_are_recorded_once"}),
    (
        "events",
        each("events", lambda row: row.update(code="O80", mapped="O80"), "DX"),
        {"codes_of_one_sex_fit_the_subject"},
    ),
    (
        "events",
        each("events", lambda row: row.update(encounter_id=None), "DX", 40),
        {"stays_have_diagnoses"},
    ),
    (
        "encounters",
        each("encounters", lambda row: later(row, 110 * YEAR, "end"), most=20),
        {"stays_last_under_ten_years", "most_stays_last_under_ten_years"},
    ),
    (
        "encounters",
        each("encounters", lambda row: later(row, 2 * YEAR, "end")),
        {"most_stays_last_under_a_year", "most_stays_seldom_overlap"},
    ),
    ("encounters", again("encounters", "encounter_id"), {"most_stays_are_recorded_once"}),
    (
        "encounters",
        each(
            "encounters",
            lambda row: later(row, -DAY * row["start"].hour / 24 - timedelta(minutes=20), "start"),
        ),
        {"stays_start_at_times_of_day", "most_stays_start_at_times_of_day", "stays_start_at_all_minutes"},
    ),
    (
        "encounters",
        each("encounters", died_in_every_stay),
        {"most_stays_are_mostly_survived", "deaths_end_the_last_stay"},
    ),
    (
        "encounters",
        each("encounters", lambda row: row.update(died=True, death_time=row["end"] + 9 * DAY)),
        {"most_deaths_lie_in_their_stays"},
    ),
    (
        "encounters",
        each("subjects", lambda row: row.update(death_date=row["birth_date"] + YEAR)),
        {"most_stays_precede_death"},
    ),
    ("encounters", each("encounters", lambda row: row.update(age_years=9.0)), {"stays_are_of_adults"}),
    (
        "encounters",
        each("encounters", lambda row: row.update(age_years=104.0)),
        {"stays_are_of_the_under_100"},
    ),
    ("encounters", each("encounters", lambda row: row.update(age_years=69.0)), {"most_ages_fit_birth_dates"}),
    (
        "subjects",
        each("subjects", lambda row: row.update(death_date=row["birth_date"])),
        {"subjects_are_mostly_alive"},
    ),
]


def failing(suite: str, change: Change | None, folder: Path) -> dict[str, Outcome]:
    rows = tables()
    if change:
        change(rows)
    found = expectations.TABLE_SUITES[suite](write(rows, folder))
    stored = [view for view in found.views if view.is_stored]
    return {outcome.rule.name: outcome for outcome in validation._run(found, stored) if not outcome.passed}


@pytest.mark.parametrize(
    ("suite", "change", "names"), FAULTS, ids=["-".join(sorted(n)) for _, _, n in FAULTS]
)
def test_a_fault_of_many_rows_rings(suite: str, change: Change, names: set[str], tmp_path: Path) -> None:
    assert names <= failing(suite, change, tmp_path).keys()


@pytest.mark.parametrize("suite", ["subjects", "encounters", "events"])
def test_a_sound_folder_is_plausible(suite: str, tmp_path: Path) -> None:
    assert failing(suite, None, tmp_path) == {}


def test_few_rows_ring_nothing_and_no_small_count_is_shown(tmp_path: Path) -> None:
    few = SMALLEST_SHOWN - 1
    early = each("events", lambda row: later(row, -YEAR, "time", "available_at"), "LAB", few)
    assert not any("near" in name for name in failing("events", early, tmp_path / "few"))
    more = each("events", lambda row: later(row, -YEAR, "time", "available_at"), "LAB", few + 1)
    outcome = failing("events", more, tmp_path / "more")["laboratory_values_lie_near_their_stays"]
    assert (outcome.unexpected, outcome.rows, outcome.shown) == (11, 60, ("11", "18.33%"))
    one = each("encounters", lambda row: later(row, 110 * YEAR, "end"), most=1)
    rings = failing("encounters", one, tmp_path / "one")
    assert "stays_last_under_a_year" not in rings
    assert rings["stays_last_under_ten_years"].shown == ("< 11", "–")


def copies(rows: Tables, *names: str) -> None:
    """Add three more of every subject, with their rows of some tables."""
    for name in names:
        rows[name] += [
            {**row, **{key: row[key] + 1000 * copy for key in ("subject_id", "encounter_id") if key in row}}
            for copy in (1, 2, 3)
            for row in rows[name]
        ]


@pytest.mark.parametrize(("last_with_one", "rings"), [(2, False), (1030, True)])
def test_a_part_of_the_stays_is_judged_by_a_kind_that_enough_of_all_have(
    last_with_one: int, rings: bool, tmp_path: Path
) -> None:
    def procedures_of_the_first(rows: Tables) -> None:
        copies(rows, "subjects", "encounters", "events")
        rows["events"] = [
            row for row in rows["events"] if row["kind"] != "PR" or row["subject_id"] <= last_with_one
        ]

    failed = failing("events", procedures_of_the_first, tmp_path)
    assert ("procedures_are_spread_over_the_subjects" in failed) == rings


def test_subjects_few_of_whom_have_stays_are_judged_by_no_part_of_them(tmp_path: Path) -> None:
    rings = failing("encounters", lambda rows: copies(rows, "subjects"), tmp_path)
    assert "stays_are_spread_over_the_subjects" not in rings


def test_an_observed_newborn_is_of_either_sex(tmp_path: Path) -> None:
    newborn = {"vocab": "icd9cm", "code": "V290", "mapped": None}
    rings = failing("events", each("events", lambda row: row.update(newborn), "DX"), tmp_path)
    assert "codes_of_one_sex_fit_the_subject" not in rings


def test_an_item_in_another_unit_is_named(tmp_path: Path) -> None:
    def many_in_another_unit(rows: Tables) -> None:
        labs = [row for row in rows["events"] if row["kind"] == "LAB"]
        rows["events"] += [
            {**row, "rank": 2, "time": row["time"] + timedelta(minutes=5)} for row in labs
        ]  # a hundred values and more
        each("events", lambda row: row.update(value=97.0), "LAB")(rows)

    found = failing("events", many_in_another_unit, tmp_path)
    assert found["medians_of_items_are_usual"].where == " for creatinine"
    assert found["most_values_of_items_are_possible"].labels == ("creatinine",)


def test_a_rule_on_counts_that_cannot_be_computed_fails_without_a_message(tmp_path: Path) -> None:
    suite = expectations.events(write(tables(), tmp_path))
    view = next(view for view in suite.views if view.name == "events_counted")
    crashed = type(view)(
        view.name, "SELECT code::INTEGER AS events FROM events", view.rules[:1], is_stored=True
    )
    found = validate(type(suite)(suite.name, suite.tables, (crashed,)))
    assert found.failed("ERROR")[0].shown == ("not computed", "–")


def test_records_without_times_of_day_are_no_error(tmp_path: Path) -> None:
    rows = tables()
    each("events", at(hours=False), "LAB")(rows)
    found = validate(expectations.events(write(rows, tmp_path), usual=RECORDS))
    assert found.passed("ERROR")
    assert RECORD_STAYS.at_midnight[1] is None

"""Tests that each plausibility rule fails when a share exceeds its bounds, and passes on few rows."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from schemas import expectations
from schemas.expectations import validation
from schemas.expectations.usual import RECORD_STAYS, RECORDS
from schemas.expectations.validation import RuleOutcome, validate
from schemas.suppress import SMALLEST_SHOWN
from tests.support.tiny_layout import DAY, Row, Tables, tables, write

Change = Callable[[Tables], object]
YEAR = timedelta(days=365)


def change_rows(
    table: str, change: Callable[[Row], object], kind: str | None = None, most: int = 10_000
) -> Change:
    """Return a change of up to `most` rows of a table, or of its events of a kind."""

    def all_rows(rows: Tables) -> None:
        matches = [row for row in rows[table] if kind in (None, row.get("kind"))]
        for row in matches[:most]:
            change(row)

    return all_rows


def shift_row(row: Row, by: timedelta, *columns: str) -> None:
    for column in columns:
        if row[column] is not None:
            row[column] += by


def shift_events(kind: str, by: timedelta) -> Change:
    return change_rows("events", lambda row: shift_row(row, by, "time", "available_at"), kind)


def truncate_time(hours: bool) -> Callable[[Row], None]:
    """Return a change that truncates an event's time to the day or hour, available an hour later."""

    def change(row: Row) -> None:
        fields = {"minute": 0} if hours else {"hour": 0, "minute": 0}
        row["time"] = (row["time"] + (timedelta(0) if hours else DAY)).replace(**fields)
        row["available_at"] = row["time"] + timedelta(hours=1)

    return change


def duplicate_rows(table: str, number: str, kind: str | None = None) -> Change:
    """Return a change that appends a copy of every row under another number."""

    def append(rows: Tables) -> None:
        matches = [row for row in rows[table] if kind in (None, row.get("kind"))]
        rows[table] += [{**row, number: row[number] + 100_000} for row in matches]

    return append


def died_in_every_stay(row: Row) -> None:
    row.update({"died": True, "death_time": row["end"]})


FAULTS: list[tuple[str, Change, set[str]]] = [
    ("events", shift_events("LAB", -YEAR), {"laboratory_values_lie_near_their_stays"}),
    ("events", shift_events("LAB", YEAR), {"most_laboratory_values_lie_near_their_stays"}),
    ("events", shift_events("MED", -YEAR), {"drugs_lie_near_their_stays", "most_drugs_lie_near_their_stays"}),
    ("events", shift_events("PR", 30 * DAY), {"procedures_lie_near_their_stays"}),
    ("events", shift_events("MED", -7 * timedelta(hours=1)), {"drugs_seldom_precede_their_stays"}),
    ("events", shift_events("MED", 3 * DAY), {"drugs_seldom_follow_their_stays"}),
    (
        "events",
        shift_events("LAB", -7 * timedelta(hours=1)),
        {"laboratory_values_seldom_precede_their_stays"},
    ),
    ("events", shift_events("LAB", 3 * DAY), {"laboratory_values_seldom_follow_their_stays"}),
    (
        "events",
        change_rows("events", truncate_time(hours=False), "LAB"),
        {"laboratory_values_have_times_of_day"},
    ),
    ("events", change_rows("events", truncate_time(hours=False), "MED"), {"most_drugs_have_times_of_day"}),
    ("events", change_rows("events", truncate_time(hours=True), "LAB"), {"laboratory_values_have_minutes"}),
    (
        "events",
        change_rows("events", lambda row: row.update(available_at=row["time"]), "LAB"),
        {"most_laboratory_values_are_known_after_they_happen"},
    ),
    (
        "events",
        change_rows("events", lambda row: shift_row(row, 90 * DAY, "available_at"), "LAB"),
        {"laboratory_values_are_known_within_a_week", "most_laboratory_values_are_known_within_a_week"},
    ),
    (
        "events",
        change_rows("subjects", lambda row: row.update(death_date=row["birth_date"])),
        {"events_precede_death"},
    ),
    (
        "events",
        change_rows("subjects", lambda row: shift_row(row, 70 * YEAR, "birth_date")),
        {"events_follow_birth", "most_events_follow_birth"},
    ),
    (
        "events",
        change_rows("events", lambda row: row.update(value=-1e308), "LAB", 20),
        {"value_is_of_a_possible_size"},
    ),
    (
        "events",
        change_rows("events", lambda row: row.update(value=1e10), "LAB", 1),
        {"value_is_of_a_usual_size"},
    ),
    ("events", duplicate_rows("events", "rank", "LAB"), {"most_laboratory_values_are_recorded_once"}),
    ("events", duplicate_rows("events", "rank", "MED"), {"drugs_are_recorded_once"}),
    (
        "events",
        change_rows("events", lambda row: row.update(code="O80", mapped="O80"), "DX"),
        {"codes_of_one_sex_fit_the_subject"},
    ),
    (
        "events",
        change_rows("events", lambda row: row.update(encounter_id=None), "DX", 40),
        {"stays_have_diagnoses"},
    ),
    (
        "encounters",
        change_rows("encounters", lambda row: shift_row(row, 110 * YEAR, "end"), most=20),
        {"stays_last_under_ten_years", "most_stays_last_under_ten_years"},
    ),
    (
        "encounters",
        change_rows("encounters", lambda row: shift_row(row, 2 * YEAR, "end")),
        {"most_stays_last_under_a_year", "most_stays_seldom_overlap"},
    ),
    ("encounters", duplicate_rows("encounters", "encounter_id"), {"most_stays_are_recorded_once"}),
    (
        "encounters",
        change_rows(
            "encounters",
            lambda row: shift_row(row, -DAY * row["start"].hour / 24 - timedelta(minutes=20), "start"),
        ),
        {"stays_start_at_times_of_day", "most_stays_start_at_times_of_day", "stays_start_at_all_minutes"},
    ),
    (
        "encounters",
        change_rows("encounters", died_in_every_stay),
        {"most_stays_are_mostly_survived", "deaths_end_the_last_stay"},
    ),
    (
        "encounters",
        change_rows("encounters", lambda row: row.update(died=True, death_time=row["end"] + 9 * DAY)),
        {"most_deaths_lie_in_their_stays"},
    ),
    (
        "encounters",
        change_rows("subjects", lambda row: row.update(death_date=row["birth_date"] + YEAR)),
        {"most_stays_precede_death"},
    ),
    ("encounters", change_rows("encounters", lambda row: row.update(age_years=9.0)), {"stays_are_of_adults"}),
    (
        "encounters",
        change_rows("encounters", lambda row: row.update(age_years=104.0)),
        {"stays_are_of_the_under_100"},
    ),
    (
        "encounters",
        change_rows("encounters", lambda row: row.update(age_years=69.0)),
        {"most_ages_fit_birth_dates"},
    ),
    (
        "subjects",
        change_rows("subjects", lambda row: row.update(death_date=row["birth_date"])),
        {"subjects_are_mostly_alive"},
    ),
]


def failing(suite: str, change: Change | None, folder: Path) -> dict[str, RuleOutcome]:
    rows = tables()
    if change:
        change(rows)
    suite_of_rows = expectations.TABLE_SUITES[suite](write(rows, folder))
    views = [view for view in suite_of_rows.views if view.is_stored]
    return {
        outcome.rule.name: outcome for outcome in validation._run(suite_of_rows, views) if not outcome.passed
    }


@pytest.mark.parametrize(
    ("suite", "change", "names"), FAULTS, ids=["-".join(sorted(n)) for _, _, n in FAULTS]
)
def test_fault_of_many_rows_fails_a_plausibility_rule(
    suite: str, change: Change, names: set[str], tmp_path: Path
) -> None:
    assert names <= failing(suite, change, tmp_path).keys()


@pytest.mark.parametrize("suite", ["subjects", "encounters", "events"])
def test_valid_tables_are_plausible(suite: str, tmp_path: Path) -> None:
    assert failing(suite, None, tmp_path) == {}


def test_fault_of_few_rows_passes_and_small_counts_are_suppressed(tmp_path: Path) -> None:
    count = SMALLEST_SHOWN - 1
    early = change_rows("events", lambda row: shift_row(row, -YEAR, "time", "available_at"), "LAB", count)
    assert not any("near" in name for name in failing("events", early, tmp_path / "few"))
    early_by_one_more = change_rows(
        "events", lambda row: shift_row(row, -YEAR, "time", "available_at"), "LAB", count + 1
    )
    outcome = failing("events", early_by_one_more, tmp_path / "more")[
        "laboratory_values_lie_near_their_stays"
    ]
    assert (outcome.num_broken, outcome.rows, outcome.shown) == (11, 60, ("11", "18.33%"))
    long_stay = change_rows("encounters", lambda row: shift_row(row, 110 * YEAR, "end"), most=1)
    rings = failing("encounters", long_stay, tmp_path / "one")
    assert "stays_last_under_a_year" not in rings
    assert rings["stays_last_under_ten_years"].shown == ("< 11", "–")


def copies(rows: Tables, *names: str) -> None:
    """Add three copies of every subject, with the rows of some tables."""
    for name in names:
        rows[name] += [
            {**row, **{key: row[key] + 1000 * copy for key in ("subject_id", "encounter_id") if key in row}}
            for copy in (1, 2, 3)
            for row in rows[name]
        ]


@pytest.mark.parametrize(("last_with_one", "rings"), [(2, False), (1030, True)])
def test_spread_over_subjects_is_checked_only_for_frequent_kinds(
    last_with_one: int, rings: bool, tmp_path: Path
) -> None:
    def procedures_of_the_first(rows: Tables) -> None:
        copies(rows, "subjects", "encounters", "events")
        rows["events"] = [
            row for row in rows["events"] if row["kind"] != "PR" or row["subject_id"] <= last_with_one
        ]

    failures = failing("events", procedures_of_the_first, tmp_path)
    assert ("procedures_are_spread_over_the_subjects" in failures) == rings


def test_spread_of_stays_is_not_checked_when_few_subjects_have_stays(tmp_path: Path) -> None:
    rings = failing("encounters", lambda rows: copies(rows, "subjects"), tmp_path)
    assert "stays_are_spread_over_the_subjects" not in rings


def test_newborn_observation_code_fits_both_sexes(tmp_path: Path) -> None:
    newborn = {"vocab": "icd9cm", "code": "V290", "mapped": None}
    rings = failing("events", change_rows("events", lambda row: row.update(newborn), "DX"), tmp_path)
    assert "codes_of_one_sex_fit_the_subject" not in rings


def test_item_in_another_unit_is_named(tmp_path: Path) -> None:
    def many_in_another_unit(rows: Tables) -> None:
        labs = [row for row in rows["events"] if row["kind"] == "LAB"]
        rows["events"] += [
            {**row, "rank": 2, "time": row["time"] + timedelta(minutes=5)} for row in labs
        ]  # over a hundred values
        change_rows("events", lambda row: row.update(value=97.0), "LAB")(rows)

    failures = failing("events", many_in_another_unit, tmp_path)
    assert failures["medians_of_items_are_usual"].extent == " for creatinine"
    assert failures["most_values_of_items_are_possible"].labels == ("creatinine",)


def test_count_rule_fails_without_a_value_when_not_computable(tmp_path: Path) -> None:
    suite = expectations.events(write(tables(), tmp_path))
    view = next(view for view in suite.views if view.name == "events_counted")
    broken_view = type(view)(
        view.name, "SELECT code::INTEGER AS events FROM events", view.rules[:1], is_stored=True
    )
    result = validate(type(suite)(suite.name, suite.tables, (broken_view,)))
    assert result.failed("ERROR")[0].shown == ("not computed", "–")


def test_records_without_times_of_day_cause_no_error(tmp_path: Path) -> None:
    rows = tables()
    change_rows("events", truncate_time(hours=False), "LAB")(rows)
    result = validate(expectations.events(write(rows, tmp_path), usual=RECORDS))
    assert result.passed("ERROR")
    assert RECORD_STAYS.at_midnight[1] is None

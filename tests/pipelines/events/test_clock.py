from datetime import date, datetime, timedelta

import polars as pl

from pipelines.events import clock

NOON = datetime(2150, 3, 1, 12)
LATER = NOON + timedelta(days=3)


def clock_times(row: dict, of: clock.Clock) -> tuple[datetime, datetime]:
    frame = pl.DataFrame([row], schema_overrides={name: pl.Datetime("us") for name in ("end", "storetime")})
    if "start" in row:
        frame = frame.with_columns(coded_at=clock.coded_at(is_open=pl.lit(row["is_open"])))
    return frame.select(**of).select("time", "available_at").row(0)


def stay(end: datetime | None, *, is_open: bool = False, **row: object) -> dict:
    return {"start": NOON, "end": end, "is_open": is_open, **row}


def test_diagnosis_happens_at_admission_and_is_known_at_discharge():
    assert clock_times(stay(LATER), clock.DIAGNOSIS) == (NOON, LATER)


def test_procedure_is_known_at_discharge_or_the_midnight_after_the_day():
    day, midnight = date(2150, 3, 1), datetime(2150, 3, 1)
    assert clock_times(stay(LATER, chartdate=day), clock.PROCEDURE) == (midnight, LATER)
    last_day = clock_times(stay(LATER, chartdate=LATER.date()), clock.PROCEDURE)
    assert last_day == (datetime(2150, 3, 4), datetime(2150, 3, 5))


def test_codes_of_a_stay_without_duration_are_known_at_admission():
    assert clock_times(stay(None), clock.DIAGNOSIS) == (NOON, NOON)
    day = date(2150, 2, 27)
    assert clock_times(stay(None, chartdate=day), clock.PROCEDURE) == (datetime(2150, 2, 27), NOON)


def test_codes_of_an_open_stay_are_never_known():
    assert clock_times(stay(None, is_open=True), clock.DIAGNOSIS) == (NOON, clock.NEVER)
    times = clock_times(stay(None, is_open=True, chartdate=date(2150, 3, 1)), clock.PROCEDURE)
    assert times == (datetime(2150, 3, 1), clock.NEVER)


def test_lab_result_is_known_when_stored_but_not_before_the_draw():
    assert clock_times({"charttime": NOON, "storetime": LATER}, clock.LABORATORY) == (NOON, LATER)
    assert clock_times({"charttime": LATER, "storetime": NOON}, clock.LABORATORY) == (LATER, LATER)
    assert clock_times({"charttime": NOON, "storetime": None}, clock.LABORATORY) == (NOON, NOON)


def test_administration_is_known_when_charted():
    assert clock_times({"charttime": NOON, "storetime": LATER}, clock.ADMINISTRATION) == (NOON, NOON)

from datetime import date, datetime, timedelta

import polars as pl

from pipelines import clock

NOON = datetime(2150, 3, 1, 12)
LATER = NOON + timedelta(days=3)


def clocked(row: dict, of: clock.Clock) -> tuple[datetime, datetime]:
    frame = pl.DataFrame([row], schema_overrides={name: pl.Datetime("us") for name in ("end", "storetime")})
    return frame.select(**of).select("time", "available_at").row(0)


def test_a_diagnosis_happens_at_admission_and_is_known_at_discharge():
    assert clocked({"start": NOON, "end": LATER}, clock.DIAGNOSIS) == (NOON, LATER)


def test_a_diagnosis_of_a_stay_without_an_end_is_known_at_admission():
    assert clocked({"start": NOON, "end": None}, clock.DIAGNOSIS) == (NOON, NOON)


def test_a_procedure_is_known_at_the_midnight_after_its_day():
    day = date(2150, 3, 1)
    assert clocked({"chartdate": day}, clock.PROCEDURE) == (datetime(2150, 3, 1), datetime(2150, 3, 2))


def test_a_result_is_known_when_it_is_stored_but_never_before_it_is_drawn():
    assert clocked({"charttime": NOON, "storetime": LATER}, clock.LABORATORY) == (NOON, LATER)
    assert clocked({"charttime": LATER, "storetime": NOON}, clock.LABORATORY) == (LATER, LATER)
    assert clocked({"charttime": NOON, "storetime": None}, clock.LABORATORY) == (NOON, NOON)


def test_an_administration_is_known_when_it_is_charted():
    assert clocked({"charttime": NOON, "storetime": LATER}, clock.ADMINISTRATION) == (NOON, NOON)

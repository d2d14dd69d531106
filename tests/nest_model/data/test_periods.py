import numpy as np
import pyarrow as pa
import pytest

from nest_model.data.periods import UNKNOWN, earlier_periods, periods_of
from schemas.contract import write_table
from schemas.tables.subject_years import SUBJECT_YEARS

FIRST, SECOND, THIRD = "2008 - 2010", "2011 - 2013", "2014 - 2016"


@pytest.mark.parametrize(
    ("counts", "earlier"),
    [
        ((50, 25, 25), [FIRST]),
        ((49, 26, 25), [FIRST, SECOND]),
        ((10, 10, 80), [FIRST, SECOND]),  # never the last
        ((0, 0, 9), [FIRST, SECOND]),
    ],
)
def test_earlier_periods_hold_half_of_the_training_rows(counts, earlier):
    period = np.repeat([FIRST, SECOND, THIRD, UNKNOWN], [*counts, 30]).astype(object)
    period = np.concatenate([period, np.array([FIRST, SECOND, THIRD], dtype=object)])  # test rows
    is_training = np.arange(len(period)) < len(period) - 3
    assert earlier_periods(period, is_training) == earlier


def test_a_row_has_the_period_of_its_patient(tmp_path):
    file = tmp_path / "subject_years.parquet"
    table = pa.table({"subject_id": [2, 3, 5], "years": [FIRST, None, THIRD]})
    write_table(table, file, SUBJECT_YEARS, made_by="the test")
    periods = periods_of(file, np.array([5, 2, 4, 3, 9, 5]))
    assert periods.tolist() == [THIRD, FIRST, UNKNOWN, UNKNOWN, UNKNOWN, THIRD]
    assert periods_of(file, np.array([2, 3])) is None, "one period only"
    assert periods_of(tmp_path / "none.parquet", np.array([2])) is None

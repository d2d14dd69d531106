"""Plausibility of measured values: compare the most common items with usual and possible values.

For each item, `usual_values.csv` has the unit, bounds on the median of any mixed group of patients, and bounds on
values that are possible at all. They are reference ranges of adults and children, widened far enough for the sickest
wards but not for another unit.
"""

import csv
from pathlib import Path

from schemas.expectations.suite import Rule, View, holds

TABLE = Path(__file__).with_name("usual_values.csv")
FEWEST_VALUES = 100  # values of an item, for a meaningful median
WARN_SHARE, ERROR_SHARE = 0.01, 0.50  # share of an item's values that are impossible

_MEASURED = """
    SELECT item, count(*) AS n, median(value) AS middle, any_value(median_low) AS low, any_value(median_high) AS high,
        count_if(value < least OR value > most) AS outside,
        count_if(usual.unit IS NOT NULL AND v.unit <> usual.unit) AS in_another_unit
    FROM events_sampled v JOIN ({usual}) usual USING (vocab, code)
    WHERE v.value IS NOT NULL AND (vocab = 'itemid' OR v.unit = usual.unit) GROUP BY item, vocab"""


def item_values() -> View:
    """Return the view of common items in the sample; a site may report a LOINC code in any unit, which it names."""
    rules = (
        _item_rule("medians_of_items_are_usual", "middle BETWEEN low AND high", "value"),
        _item_rule("values_of_items_are_possible", f"outside <= greatest(10, {WARN_SHARE} * n)", "value"),
        _item_rule("most_values_of_items_are_possible", f"outside <= {ERROR_SHARE} * n", "value", stops=True),
        _item_rule(
            "units_of_items_are_the_usual_ones", f"in_another_unit <= greatest(10, {WARN_SHARE} * n)", "unit"
        ),
    )
    query = _MEASURED.format(usual=_usual_values_sql())
    return View("items_measured", query, rules, private=False, is_stored=True, label="item")


def _item_rule(name: str, sql: str, column: str, *, stops: bool = False) -> Rule:
    applies = f"CASE WHEN n >= {FEWEST_VALUES} THEN {sql} END"
    return holds(name, applies, column, severity="ERROR" if stops else "WARN")


def _usual_values_sql() -> str:
    """Return the table of usual values as SQL."""
    with TABLE.open(newline="") as file:
        head, *rows = csv.reader(file)
    texts = ("vocab", "code", "item", "unit")

    def literal(column: str, text: str) -> str:
        return text if column not in texts else f"'{text}'" if text else "NULL"

    values = ", ".join(f"({', '.join(map(literal, head, row))})" for row in rows)
    return f"SELECT * FROM (VALUES {values}) AS usual({', '.join(head)})"

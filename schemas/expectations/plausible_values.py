"""What is plausible of measured values: the commonest items beside what people's values usually are, and can be.

`usual_values.csv` has for each item the unit, within which bounds the median of any mixed group of patients lies, and
which values can be measured in anybody at all. They are adults' and children's reference ranges, widened by us far
enough for the sickest wards; another unit lies beyond them.
"""

import csv
from pathlib import Path

from schemas.expectations.suite import Rule, View, holds

TABLE = Path(__file__).with_name("usual_values.csv")
FEWEST_VALUES = 100  # of an item, below which a median says little
WARN_SHARE, ERROR_SHARE = 0.01, 0.50  # of an item's values that can be nobody's

_MEASURED = """
    SELECT item, count(*) AS n, median(value) AS middle, any_value(median_low) AS low, any_value(median_high) AS high,
        count_if(value < least OR value > most) AS outside,
        count_if(usual.unit IS NOT NULL AND v.unit <> usual.unit) AS in_another_unit
    FROM events_sampled v JOIN ({usual}) usual USING (vocab, code)
    WHERE v.value IS NOT NULL AND (vocab = 'itemid' OR v.unit = usual.unit) GROUP BY item, vocab"""


def measured_items() -> View:
    """Return the view of each common item in the sample; a site may give a LOINC code in any unit, which it names."""
    rules = (
        _of_item("medians_of_items_are_usual", "middle BETWEEN low AND high", "value"),
        _of_item("values_of_items_are_possible", f"outside <= greatest(10, {WARN_SHARE} * n)", "value"),
        _of_item("most_values_of_items_are_possible", f"outside <= {ERROR_SHARE} * n", "value", stops=True),
        _of_item(
            "units_of_items_are_the_usual_ones", f"in_another_unit <= greatest(10, {WARN_SHARE} * n)", "unit"
        ),
    )
    return View(
        "items_measured", _MEASURED.format(usual=_usual()), rules, private=False, is_stored=True, label="item"
    )


def _of_item(name: str, sql: str, column: str, *, stops: bool = False) -> Rule:
    applies = f"CASE WHEN n >= {FEWEST_VALUES} THEN {sql} END"
    return holds(name, applies, column, severity="ERROR" if stops else "WARN")


def _usual() -> str:
    """Return the table as SQL."""
    with TABLE.open(newline="") as file:
        head, *rows = csv.reader(file)
    texts = ("vocab", "code", "item", "unit")

    def literal(column: str, text: str) -> str:
        return text if column not in texts else f"'{text}'" if text else "NULL"

    values = ", ".join(f"({', '.join(map(literal, head, row))})" for row in rows)
    return f"SELECT * FROM (VALUES {values}) AS usual({', '.join(head)})"

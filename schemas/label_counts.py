"""Suppress a cohort's counts of rows, patients and labels per split so that no small one can be derived."""

from collections.abc import Mapping, Sequence

from schemas.suppress import (
    SMALLEST_SHOWN,
    WITHHELD,
    is_small,
    names_to_withhold,
    suppress_parts,
    suppress_small,
)
from schemas.tables.attrition import AttritionStep, suppress_attrition
from schemas.tables.events import SPLITS


def suppress_label_counts(counts: Mapping[str, int], steps: Sequence[AttritionStep]) -> dict[str, str]:
    """Return the counts of a `<cohort>_labels` card as text.

    Parts that add up to a withheld number are withheld too: rows and patients per split (their total), labels per split
    (the split's rows). `positives_<split>` is protected together with its complement.

    Args:
        counts: the card's counts: `rows`, `subjects`, `rows_train`, `positives_train`, `class_IX_train` …
        steps: the cohort's attrition; its last row holds the totals.
    """
    last = suppress_attrition(steps)[-1]
    table = {"rows": last["index_rows"], "subjects": last["patients"]}
    withheld_splits = _splits_to_withhold(counts) if _is_disclosed(table["rows"]) else set(SPLITS)
    for split in SPLITS:
        table |= {
            name: WITHHELD if split in withheld_splits else f"{counts[name]:,}"
            for name in (f"rows_{split}", f"subjects_{split}")
        }
    for split in SPLITS:
        classes = {name: count for name, count in counts.items() if _is_class(name, split)}
        table |= dict.fromkeys(classes, WITHHELD) if split in withheld_splits else suppress_parts(classes)
        if f"positives_{split}" in counts:
            rows, positives = counts[f"rows_{split}"], counts[f"positives_{split}"]
            table[f"positives_{split}"] = (
                WITHHELD if split in withheld_splits else suppress_positives(positives, rows)
            )
    return table | {name: f"{count:,}" for name, count in counts.items() if name == "classes"}


def _splits_to_withhold(counts: Mapping[str, int]) -> set[str]:
    """Return the splits whose rows and patients are both withheld, since a split has no more patients than rows."""
    rows, subjects = ({split: counts[f"{unit}_{split}"] for split in SPLITS} for unit in ("rows", "subjects"))
    return names_to_withhold(rows, subjects)


def suppress_positives(positives: int, rows: int) -> str:
    """Return the positives among some rows as text; `< 11` only if even 10 positives would leave 11 negatives."""
    if (
        is_small(rows)
        or is_small(rows - positives)
        or (is_small(positives) and rows < 2 * SMALLEST_SHOWN - 1)
    ):
        return WITHHELD
    return suppress_small(positives)


def _is_class(name: str, split: str) -> bool:
    return name.startswith("class_") and name.endswith(f"_{split}")


def _is_disclosed(text: str) -> bool:
    return text[0].isdigit()

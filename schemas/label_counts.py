"""A cohort's counts as they may leave the data folder: rows, patients and labels per split, none small derivable."""

from collections.abc import Mapping, Sequence

from schemas.suppress import SMALLEST_SHOWN, WITHHELD, hidden_together, is_small, shown, shown_parts
from schemas.tables.attrition import Step, shown_attrition
from schemas.tables.events import SPLITS


def shown_label_counts(counts: Mapping[str, int], steps: Sequence[Step]) -> dict[str, str]:
    """Return the counts of a `<cohort>_labels` card as text.

    What adds up to a withheld number is withheld with it: rows and patients of the splits to all of them, labels of a
    split to the split's rows. `positives_<split>` is guarded against its complement.

    Args:
        counts: of the card, `rows`, `subjects`, `rows_train`, `positives_train`, `class_IX_train` …
        steps: the cohort's attrition, whose last row the totals are.
    """
    last = shown_attrition(steps)[-1]
    table = {"rows": last["index_rows"], "subjects": last["patients"]}
    withheld_splits = _hidden_splits(counts) if _is_shown(table["rows"]) else set(SPLITS)
    for split in SPLITS:
        table |= {
            name: WITHHELD if split in withheld_splits else f"{counts[name]:,}"
            for name in (f"rows_{split}", f"subjects_{split}")
        }
    for split in SPLITS:
        classes = {name: count for name, count in counts.items() if _is_class(name, split)}
        table |= dict.fromkeys(classes, WITHHELD) if split in withheld_splits else shown_parts(classes)
        if f"positives_{split}" in counts:
            rows, positives = counts[f"rows_{split}"], counts[f"positives_{split}"]
            table[f"positives_{split}"] = (
                WITHHELD if split in withheld_splits else shown_positives(positives, rows)
            )
    return table | {name: f"{count:,}" for name, count in counts.items() if name == "classes"}


def _hidden_splits(counts: Mapping[str, int]) -> set[str]:
    """Return the splits whose rows and patients are withheld: both, for no split has more patients than rows."""
    rows, subjects = ({split: counts[f"{unit}_{split}"] for split in SPLITS} for unit in ("rows", "subjects"))
    return hidden_together(rows, subjects)


def shown_positives(positives: int, rows: int) -> str:
    """Return the positives of some rows; `< 11` only where 10 of them would leave the negatives 11."""
    if (
        is_small(rows)
        or is_small(rows - positives)
        or (is_small(positives) and rows < 2 * SMALLEST_SHOWN - 1)
    ):
        return WITHHELD
    return shown(positives)


def _is_class(name: str, split: str) -> bool:
    return name.startswith("class_") and name.endswith(f"_{split}")


def _is_shown(text: str) -> bool:
    return text[0].isdigit()

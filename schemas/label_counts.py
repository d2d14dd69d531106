"""A cohort's counts as they may leave the data folder: rows, patients and labels per split, none small derivable."""

from collections.abc import Mapping, Sequence

from schemas.attrition import Step, shown_attrition
from schemas.events import SPLITS
from schemas.suppress import WITHHELD, is_small, shown, shown_parts


def shown_label_counts(counts: Mapping[str, int], steps: Sequence[Step]) -> dict[str, str]:
    """Return the counts of a `<cohort>_labels` card as text.

    What adds up to a withheld number is withheld with it: rows of the splits to the rows, labels of a split to the
    split's rows. `positives_<split>` is guarded against its complement.

    Args:
        counts: of the card, `rows`, `subjects`, `rows_train`, `positives_train`, `class_IX_train` …
        steps: the cohort's attrition, whose last row the totals are.
    """
    last = shown_attrition(steps)[-1]
    table = {"rows": last["index_rows"], "subjects": last["patients"]}
    for total in ("rows", "subjects"):
        parts = {f"{total}_{split}": counts[f"{total}_{split}"] for split in SPLITS}
        table |= _parts_of(table[total], parts)
    for split in SPLITS:
        rows, positives = f"rows_{split}", f"positives_{split}"
        classes = {name: count for name, count in counts.items() if _is_class(name, split)}
        table |= _parts_of(table[rows], classes)
        if positives in counts:
            guarded = is_small(counts[rows] - counts[positives]) or not _is_shown(table[rows])
            table[positives] = WITHHELD if guarded else shown(counts[positives])
    return table | {name: f"{count:,}" for name, count in counts.items() if name == "classes"}


def _is_class(name: str, split: str) -> bool:
    return name.startswith("class_") and name.endswith(f"_{split}")


def _is_shown(text: str) -> bool:
    return text[0].isdigit()


def _parts_of(total: str, parts: Mapping[str, int]) -> dict[str, str]:
    return shown_parts(parts) if _is_shown(total) else dict.fromkeys(parts, WITHHELD)

from itertools import pairwise

from schemas.label_counts import suppress_label_counts
from schemas.suppress import SMALL, WITHHELD
from schemas.tables.attrition import AttritionStep


def binary(train, val, test):
    """Return the counts of a binary task from (rows, positives) per split, with as many patients as rows."""
    splits = dict(zip(("train", "val", "test"), (train, val, test), strict=True))
    rows = sum(count for count, _ in splits.values())
    counts = {"rows": rows, "subjects": rows}
    for split, (count, positives) in splits.items():
        counts |= {f"rows_{split}": count, f"subjects_{split}": count, f"positives_{split}": positives}
    return counts


def attrition(*rows):
    drops = [0, *(previous - now for previous, now in pairwise(rows))]
    return [
        AttritionStep(str(place), count, count, drop)
        for place, (count, drop) in enumerate(zip(rows, drops, strict=True))
    ]


def test_large_counts_are_not_suppressed():
    counts = binary((155, 50), (34, 15), (56, 26))
    table = suppress_label_counts(counts, attrition(275, 245))
    assert table == {name: str(count) for name, count in counts.items()}


def test_positives_are_withheld_when_negatives_are_few():
    table = suppress_label_counts(binary((155, 150), (34, 15), (56, 26)), attrition(275, 245))
    assert table["positives_train"] == WITHHELD
    assert table["positives_val"] == "15"


def test_few_positives_are_suppressed():
    table = suppress_label_counts(binary((155, 9), (34, 0), (56, 26)), attrition(275, 245))
    assert [table[f"positives_{split}"] for split in ("train", "val", "test")] == [SMALL, "0", "26"]


def test_small_split_is_withheld_with_a_second_split():
    table = suppress_label_counts(binary((155, 50), (4, 3), (56, 26)), attrition(275, 215))
    assert [table[f"rows_{split}"] for split in ("train", "val", "test")] == ["155", WITHHELD, WITHHELD]
    assert [table[f"positives_{split}"] for split in ("train", "val", "test")] == ["50", WITHHELD, WITHHELD]


def test_all_counts_are_withheld_when_the_attrition_withholds_the_total():
    table = suppress_label_counts(binary((155, 50), (60, 15), (59, 26)), attrition(275, 274))
    assert set(table.values()) == {WITHHELD}


def test_small_classes_are_withheld_with_a_large_class():
    counts = binary((40, 0), (40, 0), (40, 0))
    counts = {name: count for name, count in counts.items() if not name.startswith("positives")} | {
        "classes": 2
    }
    counts |= {f"class_{name}_train": count for name, count in (("I", 3), ("II", 5), ("IX", 32))}
    table = suppress_label_counts(counts, attrition(120))
    assert [table[f"class_{name}_train"] for name in ("I", "II", "IX")] == [WITHHELD] * 3
    assert table["classes"] == "2"

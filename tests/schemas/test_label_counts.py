from itertools import pairwise

from schemas.label_counts import shown_label_counts
from schemas.suppress import SMALL, WITHHELD
from schemas.tables.attrition import Step


def binary(train, val, test):
    """Counts of (rows, positives) per split; as many patients as rows."""
    splits = dict(zip(("train", "val", "test"), (train, val, test), strict=True))
    rows = sum(count for count, _ in splits.values())
    counts = {"rows": rows, "subjects": rows}
    for split, (count, positives) in splits.items():
        counts |= {f"rows_{split}": count, f"subjects_{split}": count, f"positives_{split}": positives}
    return counts


def attrition(*rows):
    dropped = [0, *(before - now for before, now in pairwise(rows))]
    return [
        Step(str(place), count, count, drop)
        for place, (count, drop) in enumerate(zip(rows, dropped, strict=True))
    ]


def test_numbers_large_enough_are_shown_as_they_are():
    counts = binary((155, 50), (34, 15), (56, 26))
    table = shown_label_counts(counts, attrition(275, 245))
    assert table == {name: str(count) for name, count in counts.items()}


def test_few_negatives_withhold_the_positives_they_follow_from():
    table = shown_label_counts(binary((155, 150), (34, 15), (56, 26)), attrition(275, 245))
    assert table["positives_train"] == WITHHELD
    assert table["positives_val"] == "15"


def test_few_positives_are_under_eleven():
    table = shown_label_counts(binary((155, 9), (34, 0), (56, 26)), attrition(275, 245))
    assert [table[f"positives_{split}"] for split in ("train", "val", "test")] == [SMALL, "0", "26"]


def test_a_split_too_small_withholds_its_labels_and_the_split_it_would_follow_from():
    table = shown_label_counts(binary((155, 50), (4, 3), (56, 26)), attrition(275, 215))
    assert [table[f"rows_{split}"] for split in ("train", "val", "test")] == ["155", WITHHELD, WITHHELD]
    assert [table[f"positives_{split}"] for split in ("train", "val", "test")] == ["50", WITHHELD, WITHHELD]


def test_a_total_the_attrition_withholds_is_not_the_sum_of_what_is_shown():
    table = shown_label_counts(binary((155, 50), (60, 15), (59, 26)), attrition(275, 274))
    assert set(table.values()) == {WITHHELD}


def test_small_classes_whose_sum_tells_them_are_withheld_with_a_large_one():
    counts = binary((40, 0), (40, 0), (40, 0))
    counts = {name: count for name, count in counts.items() if not name.startswith("positives")} | {
        "classes": 2
    }
    counts |= {f"class_{name}_train": count for name, count in (("I", 3), ("II", 5), ("IX", 32))}
    table = shown_label_counts(counts, attrition(120))
    assert [table[f"class_{name}_train"] for name in ("I", "II", "IX")] == [WITHHELD] * 3
    assert table["classes"] == "2"

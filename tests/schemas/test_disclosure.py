"""Tests that no small count on a page can be narrowed down by adding up its tables."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from schemas.label_counts import suppress_label_counts
from schemas.suppress import disclosing, suppress_parts, suppress_small
from schemas.tables.attrition import AttritionStep, suppress_attrition
from tests.support.attacker import Attacker

COUNT = st.one_of(st.integers(0, 14), st.integers(0, 200))
SPLITS = ("train", "val", "test")


@given(st.lists(COUNT, min_size=1, max_size=8))
def test_small_part_cannot_be_narrowed_beside_the_total(counts):
    parts = {f"part {k}": count for k, count in enumerate(counts)}
    attacker = Attacker()
    attacker.see(suppress_parts(parts) | {"total": suppress_small(sum(counts))})
    attacker.know_sum("total", list(parts))
    assert attacker.narrowed(parts) == {}


def test_groups_with_a_small_sum_are_withheld_with_larger_groups():
    parts = {"A": 1, "B": 2, "C": 3, "D": 40, "E": 90}
    texts = suppress_parts(parts)
    assert texts == {"A": "withheld", "B": "withheld", "C": "withheld", "D": "withheld", "E": "90"}


@st.composite
def pages(draw):
    """Draw a cohort's attrition and label counts; the last row of the attrition is the total of the labels."""
    counts = {}
    for split in SPLITS:
        positives, negatives = draw(COUNT), draw(COUNT)
        rows = positives + negatives
        counts |= {f"rows_{split}": rows, f"positives_{split}": positives}
        counts[f"subjects_{split}"] = draw(st.integers(min(rows, 1), rows))
    for unit in ("rows", "subjects"):
        counts[unit] = sum(counts[f"{unit}_{split}"] for split in SPLITS)
    chain = [(counts["rows"], counts["subjects"])]
    for _ in range(draw(st.integers(1, 4))):
        rows, subjects = chain[0]
        num_dropped = draw(COUNT)
        chain.insert(0, (rows + num_dropped, subjects + draw(st.integers(0, num_dropped))))
    return counts, chain


def show_attrition(attacker, chain, displayed_rows):
    """Show an attrition table and the relations of its rows to the attacker; return the true counts."""
    truth = {}
    for k, ((rows, subjects), row) in enumerate(zip(chain, displayed_rows, strict=True)):
        truth |= {f"rows {k}": rows, f"subjects {k}": subjects}
        attacker.see({f"rows {k}": row["index_rows"], f"subjects {k}": row["patients"]})
        attacker.know_order(f"subjects {k}", f"rows {k}")
        if k:
            truth |= {f"dropped {k}": chain[k - 1][0] - rows, f"left {k}": chain[k - 1][1] - subjects}
            attacker.see({f"dropped {k}": row["dropped"]})
            attacker.know_sum(f"rows {k - 1}", [f"rows {k}", f"dropped {k}"])
            attacker.know_sum(f"subjects {k - 1}", [f"subjects {k}", f"left {k}"])
            attacker.know_order(f"left {k}", f"dropped {k}")
    return truth


@given(pages())
def test_small_count_cannot_be_narrowed_over_all_tables_of_a_cohort(page):
    counts, chain = page
    drops = [0, *(previous[0] - now[0] for previous, now in pairwise(chain))]
    steps = [
        AttritionStep(str(k), *pair, drop) for k, (pair, drop) in enumerate(zip(chain, drops, strict=True))
    ]
    attacker = Attacker()
    truth = show_attrition(attacker, chain, suppress_attrition(steps)) | counts
    attacker.see(suppress_label_counts(counts, steps))
    for unit in ("rows", "subjects"):
        attacker.know_sum(unit, [f"{unit}_{split}" for split in SPLITS])
        attacker.know_sum(f"{unit} {len(chain) - 1}", [unit])
    for split in SPLITS:
        truth[f"negatives_{split}"] = counts[f"rows_{split}"] - counts[f"positives_{split}"]
        attacker.know_sum(f"rows_{split}", [f"positives_{split}", f"negatives_{split}"])
        attacker.know_order(f"subjects_{split}", f"rows_{split}")
    assert attacker.narrowed(truth) == {}


def test_synthetic_counts_are_disclosed_only_inside_the_block():
    with disclosing(is_synthetic=True):
        assert suppress_parts({"A": 1, "B": 200}) == {"A": "1", "B": "200"}
        with disclosing(is_synthetic=False):
            assert suppress_small(3) == "< 11"
    assert suppress_small(3) == "< 11"

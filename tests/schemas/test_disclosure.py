"""No small count of a page can be narrowed by adding up its tables, whatever they hold."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from schemas.label_counts import shown_label_counts
from schemas.suppress import disclosing, shown, shown_parts
from schemas.tables.attrition import Step, shown_attrition
from tests.support.attacker import Attacker

COUNT = st.one_of(st.integers(0, 14), st.integers(0, 200))
SPLITS = ("train", "val", "test")


@given(st.lists(COUNT, min_size=1, max_size=8))
def test_no_small_part_can_be_narrowed_beside_its_total(counts):
    parts = {f"part {k}": count for k, count in enumerate(counts)}
    attacker = Attacker()
    attacker.see(shown_parts(parts) | {"total": shown(sum(counts))})
    attacker.know_sum("total", list(parts))
    assert attacker.narrowed(parts) == {}


def test_three_groups_under_eleven_cannot_be_added_up_to_six():
    parts = {"A": 1, "B": 2, "C": 3, "D": 40, "E": 90}
    texts = shown_parts(parts)
    assert texts == {"A": "withheld", "B": "withheld", "C": "withheld", "D": "withheld", "E": "90"}


@st.composite
def pages(draw):
    """A cohort's attrition and label counts: the last row of the one is the total of the other."""
    counts = {}
    for split in SPLITS:
        positives, negatives = draw(COUNT), draw(COUNT)
        rows = positives + negatives
        counts |= {f"rows_{split}": rows, f"positives_{split}": positives}
        counts[f"subjects_{split}"] = draw(st.integers(min(rows, 1), rows))
    for what in ("rows", "subjects"):
        counts[what] = sum(counts[f"{what}_{split}"] for split in SPLITS)
    chain = [(counts["rows"], counts["subjects"])]
    for _ in range(draw(st.integers(1, 4))):
        rows, subjects = chain[0]
        dropped = draw(COUNT)
        chain.insert(0, (rows + dropped, subjects + draw(st.integers(0, dropped))))
    return counts, chain


def known_of_attrition(attacker, chain, shown_rows):
    """Let a reader see an attrition table, and know how its rows hang together; return what it hides."""
    truth = {}
    for k, ((rows, subjects), row) in enumerate(zip(chain, shown_rows, strict=True)):
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
def test_no_small_count_can_be_narrowed_over_a_cohorts_attrition_splits_and_labels(page):
    counts, chain = page
    dropped = [0, *(before[0] - now[0] for before, now in pairwise(chain))]
    steps = [Step(str(k), *pair, drop) for k, (pair, drop) in enumerate(zip(chain, dropped, strict=True))]
    attacker = Attacker()
    truth = known_of_attrition(attacker, chain, shown_attrition(steps)) | counts
    attacker.see(shown_label_counts(counts, steps))
    for what in ("rows", "subjects"):
        attacker.know_sum(what, [f"{what}_{split}" for split in SPLITS])
        attacker.know_sum(f"{what} {len(chain) - 1}", [what])
    for split in SPLITS:
        truth[f"negatives_{split}"] = counts[f"rows_{split}"] - counts[f"positives_{split}"]
        attacker.know_sum(f"rows_{split}", [f"positives_{split}", f"negatives_{split}"])
        attacker.know_order(f"subjects_{split}", f"rows_{split}")
    assert attacker.narrowed(truth) == {}


def test_of_made_up_patients_everything_is_shown_and_only_inside_the_block():
    with disclosing(is_synthetic=True):
        assert shown_parts({"A": 1, "B": 200}) == {"A": "1", "B": "200"}
        with disclosing(is_synthetic=False):
            assert shown(3) == "< 11"
    assert shown(3) == "< 11"

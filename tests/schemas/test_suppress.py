"""Tests of suppression: an attacker who knows the rule and sees the output cannot derive a small number."""

from collections import defaultdict
from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from schemas.suppress import (
    SMALL,
    WITHHELD,
    disclosing,
    shown_scores,
    suppress_fraction,
    suppress_parts,
    suppress_small,
)
from schemas.tables.attrition import AttritionStep, attrition_csv, read_attrition, suppress_attrition


def table(*counts):
    rows = [counts[0][0], *(previous[0] - now[0] for previous, now in pairwise(counts))]
    drops = [0, *rows[1:]]
    return [AttritionStep(f"step {place}", *count, drops[place]) for place, count in enumerate(counts)]


def test_fraction_withholds_the_count_and_what_it_is_of():
    fractions = [(12, 363), (3, 363), (360, 363), (3, 8)]
    assert [suppress_fraction(*fraction) for fraction in fractions] == [
        "12 of 363", "< 11 of 363", "> 352 of 363", "< 11 of < 11",
    ]  # fmt: skip


def test_a_page_has_the_decimals_of_a_score_that_it_shows_and_all_of_other_numbers():
    scores = {"nest": {"auroc": {"value": 25 / 37, "low": 1 / 3, "high": None, "sd": 1e-7 / 3, "note": ""}}}
    content = {"tasks": [scores], "thresholds": (0.123456,), "learning_rate": 2e-7, "days": 365.25}
    shown = shown_scores(content)
    assert shown["tasks"] == [
        {"nest": {"auroc": {"value": 0.676, "low": 0.333, "high": None, "sd": 0.0, "note": ""}}}
    ]
    assert (shown["thresholds"], shown["learning_rate"], shown["days"]) == ([0.123456], 2e-7, 365.25)
    with disclosing(True):
        assert shown_scores(content) == content


def test_counts_of_one_to_ten_are_suppressed_and_zero_is_not():
    assert [suppress_small(count) for count in (0, 1, 10, 11, 1234)] == ["0", "< 11", "< 11", "11", "1,234"]


def test_difference_of_one_is_withheld():
    _, second = suppress_attrition(table((275, 100), (274, 100)))
    assert second["index_rows"] == WITHHELD
    assert second["dropped"] == WITHHELD
    assert second["percent"] == ""


def test_large_drop_is_withheld_after_a_withheld_row():
    *_, last = suppress_attrition(table((300, 300), (295, 295), (200, 200)))
    assert (last["index_rows"], last["dropped"]) == ("200", WITHHELD)


def test_attrition_without_small_counts_is_not_suppressed():
    rows = suppress_attrition(table((275, 100), (245, 100), (0, 0)))
    assert [row["index_rows"] for row in rows] == ["275", "245", "0"]
    assert [row["dropped"] for row in rows] == ["0", "30", "245"]
    assert rows[1]["percent"] == "10.91"


def _histories(rows, patients, steps):
    """Yield all possible sequences of row and patient counts, e.g. a step that drops no row drops no patient."""
    if not steps:
        yield ()
        return
    for now in range(rows + 1):
        fewest = min(1, now)
        for remaining in range(max(fewest, patients - (rows - now)), min(patients, now) + 1):
            if now or not remaining:
                for history in _histories(now, remaining, steps - 1):
                    yield ((now, remaining), *history)


def _assert_no_small_number_is_certain(groups):
    for facts in groups.values():
        for values in zip(*facts, strict=True):
            certain = set(values)
            assert len(certain) > 1 or not 0 < next(iter(certain)) < 11


def test_small_count_or_difference_of_an_attrition_cannot_be_derived():
    groups = defaultdict(list)
    small = [(rows, patients) for patients in (7, 8, 9) for rows in range(patients, 12)]
    for start in [(26, 24), (21, 21), (22, 21), (13, 13), (43, 21), *small]:
        for history in _histories(*start, 2):
            counts = [start, *history]
            output = tuple(tuple(row.values()) for row in suppress_attrition(table(*counts)))
            rows, patients = zip(*counts, strict=True)
            facts = [*rows, *patients]
            for series in (rows, patients):
                facts += [series[0] - series[1], series[1] - series[2], series[0] - series[2]]
            groups[output].append(facts)
    _assert_no_small_number_is_certain(groups)


def test_small_part_of_a_known_total_cannot_be_derived():
    for size, most in ((2, 60), (3, 30)):
        groups = defaultdict(list)
        for parts in product(range(most), repeat=size):
            if sum(parts) >= 11:
                output = tuple(suppress_parts(dict(zip("abc", parts, strict=False))).values())
                groups[sum(parts), output].append(parts)
        complete = {key: facts for key, facts in groups.items() if key[0] < most}
        _assert_no_small_number_is_certain(complete)


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 10_000)))
def test_disclosed_part_is_the_exact_count(parts):
    for name, text in suppress_parts(parts).items():
        assert text in (SMALL, WITHHELD, f"{parts[name]:,}")
        assert text != f"{parts[name]:,}" or not 0 < parts[name] < 11


def test_attrition_is_read_back_from_csv(tmp_path):
    steps = table((275, 100), (245, 99))
    (tmp_path / "attrition.csv").write_text(attrition_csv(steps))
    assert read_attrition(tmp_path / "attrition.csv") == steps

"""What is shown of small numbers: an attacker who knows the rule and sees the output must be left guessing."""

from collections import defaultdict
from itertools import pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from schemas.suppress import SMALL, WITHHELD, shown, shown_parts
from schemas.tables.attrition import Step, attrition_csv, read_attrition, shown_attrition


def table(*counts):
    rows = [counts[0][0], *(before[0] - now[0] for before, now in pairwise(counts))]
    dropped = [0, *rows[1:]]
    return [Step(f"step {place}", *count, dropped[place]) for place, count in enumerate(counts)]


def test_one_to_ten_are_shown_as_under_eleven_and_zero_as_zero():
    assert [shown(count) for count in (0, 1, 10, 11, 1234)] == ["0", "< 11", "< 11", "11", "1,234"]


def test_275_to_274_gives_no_1_away():
    _, second = shown_attrition(table((275, 100), (274, 100)))
    assert second["index_rows"] == WITHHELD
    assert second["dropped"] == WITHHELD
    assert second["percent"] == ""


def test_a_large_drop_after_a_withheld_row_is_withheld_too():
    *_, last = shown_attrition(table((300, 300), (295, 295), (200, 200)))
    assert (last["index_rows"], last["dropped"]) == ("200", WITHHELD)


def test_an_attrition_without_small_numbers_is_shown_whole():
    rows = shown_attrition(table((275, 100), (245, 100), (0, 0)))
    assert [row["index_rows"] for row in rows] == ["275", "245", "0"]
    assert [row["dropped"] for row in rows] == ["0", "30", "245"]
    assert rows[1]["percent"] == "10.91"


def _histories(rows, patients, steps):
    """Every way two falling counts can go: a step that drops no row drops no patient, and so on."""
    if not steps:
        yield ()
        return
    for now in range(rows + 1):
        fewest = min(1, now)
        for kept in range(max(fewest, patients - (rows - now)), min(patients, now) + 1):
            if now or not kept:
                for rest in _histories(now, kept, steps - 1):
                    yield ((now, kept), *rest)


def _assert_no_small_number_is_certain(groups):
    for facts in groups.values():
        for values in zip(*facts, strict=True):
            certain = set(values)
            assert len(certain) > 1 or not 0 < next(iter(certain)) < 11


def test_no_small_count_or_difference_of_an_attrition_can_be_worked_out():
    groups = defaultdict(list)
    small = [(rows, patients) for patients in (7, 8, 9) for rows in range(patients, 12)]
    for start in [(26, 24), (21, 21), (22, 21), (13, 13), (43, 21), *small]:
        for history in _histories(*start, 2):
            counts = [start, *history]
            output = tuple(tuple(row.values()) for row in shown_attrition(table(*counts)))
            rows, patients = zip(*counts, strict=True)
            facts = [*rows, *patients]
            for counted in (rows, patients):
                facts += [counted[0] - counted[1], counted[1] - counted[2], counted[0] - counted[2]]
            groups[output].append(facts)
    _assert_no_small_number_is_certain(groups)


def test_no_small_part_of_a_known_total_can_be_worked_out():
    for size, most in ((2, 60), (3, 30)):
        groups = defaultdict(list)
        for parts in product(range(most), repeat=size):
            if sum(parts) >= 11:
                output = tuple(shown_parts(dict(zip("abc", parts, strict=False))).values())
                groups[sum(parts), output].append(parts)
        complete = {key: facts for key, facts in groups.items() if key[0] < most}
        _assert_no_small_number_is_certain(complete)


@given(st.dictionaries(st.text(min_size=1), st.integers(0, 10_000)))
def test_a_part_that_is_shown_is_shown_as_it_is(parts):
    for name, text in shown_parts(parts).items():
        assert text in (SMALL, WITHHELD, f"{parts[name]:,}")
        assert text != f"{parts[name]:,}" or not 0 < parts[name] < 11


def test_a_written_attrition_reads_back(tmp_path):
    steps = table((275, 100), (245, 99))
    (tmp_path / "attrition.csv").write_text(attrition_csv(steps))
    assert read_attrition(tmp_path / "attrition.csv") == steps

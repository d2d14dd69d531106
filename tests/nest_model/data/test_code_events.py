import numpy as np
import pyarrow as pa
import pytest

from nest_model.data.code_events import CodeEvents, events_of
from schemas.tables.vocab import SPECIAL_KIND, SPECIALS


def vocabulary(*tokens: str) -> pa.Table:
    kinds, codes = zip(*(token.split(":") for token in tokens), strict=True)
    return pa.table(
        {
            "token": [*SPECIALS, *tokens],
            "kind": [*[SPECIAL_KIND] * len(SPECIALS), *kinds],
            "code": [*[None] * len(SPECIALS), *(code.split("_")[0] for code in codes)],
        }
    )


def members(events: CodeEvents) -> dict[str, set[int]]:
    """Return the tokens of each event, numbered from the first that is no special."""
    tokens_of_event: dict[str, set[int]] = {name: set() for name in events.names}
    for token, (first, end) in enumerate(zip(events.offsets[:-1], events.offsets[1:], strict=True)):
        for event in events.event[first:end]:
            tokens_of_event[events.names[event]].add(token - len(SPECIALS))
    return tokens_of_event


@pytest.mark.parametrize(
    ("kind", "code", "events"),
    [
        ("DX", "I509", ["DX I509", "DX I50"]),
        ("DX", "I10", ["DX I10"]),
        ("PR", "02703DZ", ["PR 027"]),
        ("MED", "C09AA05", ["MED C09AA05", "MED C09AA", "MED C09A", "MED C09", "MED C"]),
        ("MED", "RX4711", ["MED RX4711"]),
        ("LAB", "50912", []),
        ("DX", None, []),
    ],
)
def test_a_code_belongs_to_itself_and_what_it_rolls_up_to(kind, code, events):
    assert events_of(kind, code) == events


def test_events_of_a_vocabulary_hold_their_tokens_and_the_finest_stands_for_its_equals():
    events = CodeEvents.of(
        vocabulary("DX:I509", "DX:I501", "DX:E119", "PR:02703DZ", "PR:02713DZ", "LAB:1_Q3")
    )
    assert members(events) == {
        "DX I509": {0}, "DX I501": {1}, "DX I50": {0, 1}, "DX E119": {2}, "PR 027": {3, 4},
    }  # fmt: skip


def test_where_no_kind_rolls_up_every_token_is_an_event_and_every_measured_item_one():
    events = CodeEvents.of(vocabulary("ITEM:7", "ITEM:8", "LAB:1_Q3", "LAB:1_Q10"))
    assert members(events) == {"ITEM:7": {0}, "ITEM:8": {1}, "LAB:1": {2, 3}}


def test_a_choice_of_events_keeps_their_tokens():
    events = CodeEvents.of(vocabulary("DX:I509", "DX:I501", "DX:E119"))
    numbers = [events.names.index(name) for name in ("DX E119", "DX I50")]
    choice = events.select(np.array(numbers))
    assert choice.names == ("DX E119", "DX I50")
    assert members(choice) == {"DX E119": {2}, "DX I50": {0, 1}}


def test_diagnoses_and_procedures_are_coded_late_also_in_a_choice():
    events = CodeEvents.of(vocabulary("DX:I509", "LAB:1_Q3", "PR:02703DZ", "MED:C09AA05", "VIT:2_Q1"))
    expected = [*[False] * len(SPECIALS), True, False, True, False, False]
    assert events.is_coded_late.tolist() == expected
    assert events.select(np.array([0])).is_coded_late.tolist() == expected


def test_where_every_token_is_an_event_none_is_coded_late():
    assert not CodeEvents.of(vocabulary("ITEM:7", "LAB:1_Q3")).is_coded_late.any()


def test_kinds_that_are_no_events_are_named_unless_every_token_is_one():
    events = CodeEvents.of(vocabulary("DX:I509", "LAB:1_Q3", "VIT:2_Q1", "IMM:03", "MED:C09AA05"))
    assert events.other_kinds == ("IMM", "LAB", "VIT")
    assert events.select(np.array([0])).other_kinds == ("IMM", "LAB", "VIT")
    assert CodeEvents.of(vocabulary("ITEM:7", "LAB:1_Q3")).other_kinds == ()

"""A step's card: written whole or not at all, and one that is missing names the asset to run."""

from pathlib import Path

import pytest

from schemas.cards import Flow, StepCard, are_synthetic
from schemas.errors import ContractError, WriteError
from schemas.layout import Layout

FLOW = Flow(source_rows=5, kept_rows=3, dropped={"no_time": 2})
CARD = StepCard(step="events", contract="events/1", flows={"labevents": FLOW})


@pytest.fixture
def cards(tmp_path: Path) -> Path:
    folder = Layout(tmp_path / "mimic").cards
    folder.mkdir(parents=True)
    return folder


def test_a_card_comes_back_as_it_was_written_and_nothing_lies_beside_it(cards: Path) -> None:
    CARD.write(cards)
    assert StepCard.read(cards, "events") == CARD
    assert [path.name for path in cards.iterdir()] == ["events.card.json"]


@pytest.mark.parametrize(
    ("step", "asset"), [("events", "mimic_events"), ("mimic_mortality_labels", "mimic_mortality_labels")]
)
def test_a_card_that_is_not_there_names_the_asset_to_materialize(cards: Path, step: str, asset: str) -> None:
    with pytest.raises(ContractError, match=rf"{step}\.card\.json; materialize {asset} first"):
        StepCard.read(cards, step)


@pytest.mark.parametrize("written", [b"", b'{"step": "events"', b'{"step": "private text"}', b"\xff\xfe"])
def test_a_card_that_is_not_whole_names_the_asset_to_materialize(cards: Path, written: bytes) -> None:
    (cards / "events.card.json").write_bytes(written)
    with pytest.raises(ContractError, match="materialize mimic_events again") as caught:
        StepCard.read(cards, "events")
    assert "private text" not in str(caught.value)


def test_a_full_disk_is_one_line_and_leaves_the_earlier_card_alone(
    cards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CARD.write(cards)
    write_bytes = Path.write_bytes

    def half(path: Path, content: bytes) -> int:
        write_bytes(path, content[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(
        WriteError, match=r"events\.card\.json: cannot be written \(No space left on device\)"
    ):
        CARD.model_copy(update={"counts": {"events": 1}}).write(cards)
    assert [path.name for path in cards.iterdir()] == ["events.card.json"]
    assert StepCard.read(cards, "events") == CARD


@pytest.mark.parametrize(
    ("change", "is_synthetic"),
    [
        ({}, True),
        ({"raw": {"synthetic": False}}, False),
        ({"subjects": {"synthetic": False}}, False),
        ({"subjects": {"inputs": {"raw": "another"}}}, False),  # of the real input that was there before
        ({"mine_labels": {"inputs": {"gone": "b"}}}, False),
        ({"raw": None}, False),
    ],
)
def test_patients_are_made_up_only_where_every_card_says_so_and_is_of_the_present_input(
    tmp_path, change, is_synthetic
):
    cards = {
        "raw": {"content": "a"},
        "subjects": {"content": "b", "inputs": {"raw": "a"}},
        "mine_labels": {"inputs": {"subjects": "b"}},
    }
    for step, fields in cards.items():
        if change.get(step, {}) is not None:
            told = {"synthetic": True, **fields, **change.get(step, {})}
            StepCard(step=step, contract="none/1", **told).write(tmp_path)
    assert are_synthetic(tmp_path) is is_synthetic


def test_a_damaged_card_or_none_is_of_real_patients(tmp_path):
    assert not are_synthetic(tmp_path)
    StepCard(step="raw", contract="raw/1", synthetic=True).write(tmp_path)
    assert are_synthetic(tmp_path)
    (tmp_path / "events.card.json").write_text("{")
    assert not are_synthetic(tmp_path)

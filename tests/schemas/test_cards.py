"""Tests of step cards: written completely or not at all; a missing card names the asset to run."""

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


def test_card_is_read_back_and_leaves_no_other_file(cards: Path) -> None:
    CARD.write(cards)
    assert StepCard.read(cards, "events") == CARD
    assert [path.name for path in cards.iterdir()] == ["events.card.json"]


@pytest.mark.parametrize(
    ("step", "asset"), [("events", "mimic_events"), ("mimic_mortality_labels", "mimic_mortality_labels")]
)
def test_missing_card_names_the_asset_to_materialize(cards: Path, step: str, asset: str) -> None:
    with pytest.raises(ContractError, match=rf"{step}\.card\.json; materialize {asset} first"):
        StepCard.read(cards, step)


@pytest.mark.parametrize("content", [b"", b'{"step": "events"', b'{"step": "private text"}', b"\xff\xfe"])
def test_damaged_card_names_the_asset_to_materialize(cards: Path, content: bytes) -> None:
    (cards / "events.card.json").write_bytes(content)
    with pytest.raises(ContractError, match="materialize mimic_events again") as error:
        StepCard.read(cards, "events")
    assert "private text" not in str(error.value)


def test_full_disk_raises_one_line_and_leaves_the_earlier_card(
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
        ({"subjects": {"inputs": {"raw": "another"}}}, False),  # made from an earlier, real input
        ({"mine_labels": {"inputs": {"gone": "b"}}}, False),
        ({"raw": None}, False),
    ],
)
def test_patients_are_synthetic_only_if_every_card_is_and_is_current(tmp_path, change, is_synthetic):
    cards = {
        "raw": {"content": "a"},
        "subjects": {"content": "b", "inputs": {"raw": "a"}},
        "mine_labels": {"inputs": {"subjects": "b"}},
    }
    for step, fields in cards.items():
        if change.get(step, {}) is not None:
            values = {"synthetic": True, **fields, **change.get(step, {})}
            StepCard(step=step, contract="none/1", **values).write(tmp_path)
    assert are_synthetic(tmp_path) is is_synthetic


def test_missing_or_damaged_card_counts_as_real_patients(tmp_path):
    assert not are_synthetic(tmp_path)
    StepCard(step="raw", contract="raw/1", synthetic=True).write(tmp_path)
    assert are_synthetic(tmp_path)
    (tmp_path / "events.card.json").write_text("{")
    assert not are_synthetic(tmp_path)

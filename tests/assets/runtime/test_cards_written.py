"""Every step's card records the step's inputs and accounts for every row."""

from pathlib import Path

import dagster as dg
import pytest

from assets.resources import Workspace
from assets.sources.common import source_assets
from schemas.cards import StepCard

MIMIC_ASSETS = source_assets("mimic")


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StepCard]:
    folder = tmp_path_factory.mktemp("data")
    workspace = Workspace(data_dir=str(folder), synthetic_patients=60)
    assert dg.materialize(MIMIC_ASSETS, resources={"workspace": workspace}).success
    paths = sorted((folder / "mimic" / "cards").glob("*.card.json"))
    return {
        path.name.split(".")[0]: StepCard.read(Path(path.parent), path.name.split(".")[0]) for path in paths
    }


def test_every_step_card_has_hashes_of_inputs_config_and_code(cards):
    assert set(cards) == {asset.key.to_user_string().removeprefix("mimic_") for asset in MIMIC_ASSETS}
    for step, card in cards.items():
        assert card.code, step
        assert len(card.config) == len(card.key) == len(card.content) == 64, step
        inputs = card.hashes if step == "raw" else card.inputs
        assert inputs, step
        assert all(len(value.rpartition(" ")[2]) == 64 for value in inputs.values()), step
    assert cards["events"].inputs == {
        "raw": cards["raw"].content,
        "subjects": f"people {cards['subjects'].hashes['people']}",
        "encounters": cards["encounters"].content,
    }


def test_every_row_of_every_table_is_kept_or_dropped_with_a_reason(cards):
    table_names = {name for card in cards.values() for name in card.flows}
    tables = {
        "patients",
        "admissions",
        "diagnoses_icd",
        "procedures_icd",
        "emar",
        "labevents",
        "prescriptions",
    }
    assert table_names >= tables
    assert all(flow.reconciles for card in cards.values() for flow in card.flows.values())
    lab_flow = cards["events"].flows["labevents"]
    assert not lab_flow.model_copy(update={"kept_rows": lab_flow.kept_rows - 1}).reconciles

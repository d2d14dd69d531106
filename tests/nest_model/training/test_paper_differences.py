"""A model card and a docs page list the differences from the paper's NEST."""

from dataclasses import asdict

import pytest

from nest_model.config import ModelConfig
from nest_model.options import PretrainingOptions
from nest_model.report.pretraining import recipe_beside_paper
from nest_model.training.paper_differences import OPEN_POINTS, open_points_table, section
from nest_model.training.recipe import FINETUNING, PRETRAINING
from schemas.io.outputs import write_json
from schemas.markdown import markdown_table
from tests.support.commands import ROOT


def _lines(preset, is_finetuned=False, options="", **training):
    config = ModelConfig.preset(preset, 100, **PretrainingOptions.from_text(options).changes(preset))
    recipe = (FINETUNING if is_finetuned else PRETRAINING)[preset]
    return "\n".join(
        section(config, {"recipe": asdict(recipe), "preset": preset, **training}, is_finetuned=is_finetuned)
    )


def test_the_card_of_the_paper_model_lists_the_open_points():
    for is_finetuned in (False, True):
        text = _lines("paper", is_finetuned)
        assert open_points_table() in text
        assert all(all(row) for row in OPEN_POINTS)


def test_a_card_lists_every_difference_from_the_paper():
    text = _lines("paper", options="time2vec=none msm_weight=0")
    assert "| time2vec | none | hours+days |" in text
    assert "| msm_weight | 0 | 1 |" in text
    assert text.split(open_points_table())[0].count("\n|") == 4  # the table's head, its rule and these two
    assert "| frozen | swe | none |" in _lines("paper", is_finetuned=True, frozen=["swe"])
    assert "| leave_out_last_set | yes | not stated |" in _lines("paper", leave_out_last_set=True)
    tiny = _lines("tiny")
    assert open_points_table() not in tiny
    assert "| own_set_weight | 1 | 0 |" in tiny
    assert "| learning_rate | 0.002 | 5e-05 |" in tiny


def test_a_page_lists_what_the_card_lists_and_nothing_without_a_model(tmp_path):
    config, recipe = ModelConfig.preset("tiny", 100), asdict(FINETUNING["tiny"])
    write_json(
        tmp_path / "config.json", {"model": asdict(config), "training": {"recipe": recipe, "frozen": ["swe"]}}
    )
    rows = recipe_beside_paper(tmp_path, is_finetuned=True)
    assert {"field": "thinning", "here": "0.4 to 0.8", "the paper": "0 to 0"} in rows
    assert {"field": "readout", "here": "history", "the paper": "cls"} in rows
    assert {"field": "frozen", "here": "swe", "the paper": "none"} in rows
    assert markdown_table(rows) in _lines("tiny", is_finetuned=True, frozen=["swe"])
    assert recipe_beside_paper(tmp_path / "none", is_finetuned=True) == []


@pytest.mark.docs
def test_the_learning_page_shows_the_open_points():
    assert open_points_table().strip() in (ROOT / "docs" / "learning.md").read_text()

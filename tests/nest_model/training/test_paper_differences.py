"""A card and a page say where a model is not the paper's NEST."""

from dataclasses import asdict

import pytest

from nest_model.config import ModelConfig
from nest_model.options import PretrainingOptions
from nest_model.training.paper_differences import OPEN_POINTS, open_points_table, section
from nest_model.training.recipe import FINETUNING, PRETRAINING
from tests.support.commands import ROOT


def _lines(preset, is_finetuned=False, options="", **training):
    config = ModelConfig.preset(preset, 100, **PretrainingOptions.from_text(options).changes(preset))
    recipe = (FINETUNING if is_finetuned else PRETRAINING)[preset]
    return "\n".join(
        section(config, {"recipe": asdict(recipe), "preset": preset, **training}, is_finetuned=is_finetuned)
    )


def test_the_card_of_the_papers_model_has_what_the_paper_leaves_open_and_each_reason():
    for is_finetuned in (False, True):
        text = _lines("paper", is_finetuned)
        assert open_points_table() in text
        assert all(all(row) for row in OPEN_POINTS)


def test_a_card_tells_every_option_that_is_not_the_papers():
    text = _lines("paper", options="time2vec=none msm_weight=0")
    assert "| time2vec | none | hours+days |" in text
    assert "| msm_weight | 0 | 1 |" in text
    assert text.split(open_points_table())[0].count("\n|") == 4  # the table's head, its rule and these two
    assert "| frozen | swe | none |" in _lines("paper", is_finetuned=True, frozen=["swe"])
    tiny = _lines("tiny")
    assert open_points_table() not in tiny
    assert "| own_set_weight | 1 | 0 |" in tiny
    assert "| learning_rate | 0.002 | 5e-05 |" in tiny


@pytest.mark.docs
def test_the_page_on_learning_shows_what_the_paper_leaves_open():
    assert open_points_table().strip() in (ROOT / "docs" / "learning.md").read_text()

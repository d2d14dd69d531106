import dataclasses

import pytest

from nest_model.config import PRESETS, ModelConfig
from schemas.errors import NestError


@pytest.mark.parametrize("name", PRESETS)
def test_a_config_survives_a_json_round_trip(name):
    config = ModelConfig.preset(name, 100, set_position=None, time2vec="hours+days")

    assert ModelConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    "text",
    ['{"vocab_size": 100}', "[]", "{", ModelConfig(100).to_json().replace('"heads"', '"head"')],
)
def test_a_config_with_unknown_or_missing_keys_is_refused(text):
    with pytest.raises(NestError, match="model config"):
        ModelConfig.from_json(text)


def test_an_unknown_preset_is_refused_with_the_known_ones():
    with pytest.raises(NestError, match="tiny, small, paper"):
        ModelConfig.preset("huge", 100)


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": 5},
        {"d_model": 12, "heads": 4},  # a head of 3 has no pairs to rotate
        {"layers": 0},
        {"max_set_rows": 1},
        {"set_position": "days"},
        {"cse_position": "hours"},
        {"time2vec": "minutes"},
        {"token_mask_share": 1.5},
        {"msm_weight": -1.0},
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change):
    with pytest.raises(NestError, match=next(iter(change))):
        dataclasses.replace(ModelConfig(100), **change)

import dataclasses
import json

import pytest

from nest_model.config import PRESETS, ModelConfig
from nest_model.options import PretrainingOptions
from nest_model.systems import systems
from schemas.errors import NestError


@pytest.mark.parametrize("name", PRESETS)
def test_a_config_survives_a_json_round_trip(name):
    config = ModelConfig.preset(name, 100, set_position=None, time2vec="hours+days")

    assert ModelConfig.from_json(config.to_json()) == config


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "{",
        '{"vocab_size": 100, "shortcuts": 1}',
        ModelConfig(100).to_json().replace('"heads"', '"head"'),
        ModelConfig(100).to_json().replace('"collapsed_sets"', '"collapsed"'),
        ModelConfig(100).to_json().replace('"cross_set": true', '"cross_set": 1'),
    ],
)
def test_a_config_with_unknown_keys_or_unfit_values_is_refused(text):
    with pytest.raises(NestError, match="model config"):
        ModelConfig.from_json(text)


def test_a_config_of_an_older_version_takes_the_defaults_of_what_it_did_not_know():
    config = ModelConfig.preset("small", 100, readout="cls")
    values = json.loads(config.to_json())
    for name in ("set_wise", "cross_set", "shortcuts"):
        del values[name]

    assert ModelConfig.from_json(json.dumps(values)) == config
    assert ModelConfig.from_json('{"vocab_size": 100}') == ModelConfig(100)


@pytest.mark.parametrize("system", [name for name in systems() if name != "nest"])
def test_no_other_system_has_nests_ablations(system):
    config = ModelConfig.preset("tiny", 100, system=system, set_wise="mean_pool")
    assert (config.set_wise, config.cross_set) == ("attention", True)
    with pytest.raises(NestError, match=f"{system} has no set_wise, cross_set; leave out"):
        PretrainingOptions.from_text("set_wise=mean_pool cross_set=false").changes("tiny", system)


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
        {"set_wise": "max_pool"},
        {"set_wise": "mean_pool", "cross_set": False},
        {"cse_position": "hours"},
        {"time2vec": "minutes"},
        {"token_mask_share": 1.5},
        {"msm_weight": -1.0},
    ],
)
def test_a_config_that_cannot_be_built_is_refused(change):
    with pytest.raises(NestError, match=next(iter(change))):
        dataclasses.replace(ModelConfig(100), **change)

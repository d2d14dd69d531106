import dataclasses
import json

import pytest
import torch

from nest_model.config import PRESETS, ModelConfig
from nest_model.model.encoder import encoder_class
from nest_model.options import PretrainingOptions
from nest_model.systems import systems
from schemas.errors import NestError

FLAT = ("bert", "core_behrt", "cehr_bert", "motor", "longformer", "performer", "nystromformer")


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


@pytest.mark.parametrize("preset", ["matched", "matched_flops"])
@pytest.mark.parametrize("system", systems())
def test_matched_systems_have_nests_weights_and_context_or_half_the_blocks(system, preset):
    config = ModelConfig.preset(preset, 20_377, system=system)
    with torch.device("meta"):
        encoder = encoder_class(system)(config)
    weights = sum(
        weight.numel()
        for name, weight in encoder.named_parameters()
        if not name.startswith(encoder.unused_in_tasks)
    )

    is_halved = preset == "matched_flops" and system in FLAT
    of_nest = 58_126_848 if is_halved else 100_603_392
    assert weights == pytest.approx(of_nest, rel=0.006 if is_halved else 0.002)
    assert config.context == ModelConfig.preset(preset, 20_377).context


def test_the_papers_comparison_cuts_the_rows_of_other_systems():
    rows = {name: ModelConfig.preset("paper", 20_377, system=name).max_rows for name in systems()}
    assert rows == dict.fromkeys(FLAT, 2_048) | {"heart": 768} | dict.fromkeys(
        ("nest", "gt_behrt", "hi_behrt")
    )


def test_an_unknown_preset_is_refused_with_the_known_ones():
    with pytest.raises(NestError, match="tiny, small, paper, matched, matched_flops"):
        ModelConfig.preset("huge", 100)


@pytest.mark.parametrize(
    "change",
    [
        {"vocab_size": 5},
        {"d_model": 12, "heads": 4},  # a head of 3 has no pairs to rotate
        {"layers": 0},
        {"max_set_rows": 1},
        {"max_rows": 511},
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

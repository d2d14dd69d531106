"""Options of a preset: the same from flags and settings, and refused in one sentence before anything runs."""

from dataclasses import fields

import pytest

from nest_model.commands.parser import parser
from nest_model.config import PRESETS, ModelConfig
from nest_model.options import FIELDS, OF_DATA, FineTuningOptions, PretrainingOptions, take_options
from nest_model.recipe import Recipe
from nest_model.systems import BLOCKS
from schemas.errors import NestError

EVERY_PRETRAINING = {
    "epochs": "3",
    "learning_rate": "0.001",
    "rate_factors": "0.5,1.0,2.0",
    "position": "index",
    "set_position": "hours",
    "layers": "3",
    "set_wise": "attention",
    "cross_set": "True",
    "max_sets": "9",
    "max_set_rows": "17",
    "leave_out_last_set": "True",
    "patient_share": "0.25",
    "visit_types": "False",
    "time2vec": "hours+days",
    "time2vec_scale": "0.5",
    "mlm_weight": "0.5",
    "msm_weight": "2.0",
    "own_set_weight": "0.25",
    "token_mask_share": "0.15",
    "set_mask_share": "0.3",
}
EVERY_FINE_TUNING = {
    "epochs": "3",
    "learning_rate": "0.001",
    "rate_factors": "0.5,1.0,2.0",
    "readout": "cls",
    "freeze": "swe,cse",
    "shuffle_sets": "True",
}
COMMANDS = [
    ("pretrain", ("seqset", "subjects", "vocab", "out"), PretrainingOptions, EVERY_PRETRAINING),
    (
        "finetune",
        ("pretrained", "labels", "seqset", "out", "predictions"),
        FineTuningOptions,
        EVERY_FINE_TUNING,
    ),
]


@pytest.mark.parametrize(("command", "paths", "kind", "values"), COMMANDS)
def test_flags_and_settings_read_every_option_the_same(command, paths, kind, values):
    assert {*values, "fields"} == set(kind.model_fields)
    setting = kind.from_text(" ".join(f"{name}={value}" for name, value in values.items()))

    flags = [f"--{name}={value}" for name, value in setting.flags().items()]
    arguments = vars(parser().parse_args([command, *(f"--{path}=x" for path in paths), *flags]))

    assert kind.read({name: arguments[name] for name in values}) == setting == kind.read(values)
    assert setting.flags() == {name.replace("_", "-"): value for name, value in values.items()}


def test_a_switch_may_stand_alone():
    paths = [f"--{path}=x" for path in ("seqset", "subjects", "vocab", "out")]

    def switch(*flags: str) -> bool | None:
        return vars(parser().parse_args(["pretrain", *paths, *flags]))["leave_out_last_set"]

    assert switch() is None
    assert switch("--leave-out-last-set") is switch("--leave-out-last-set", "True") is True
    assert switch("--leave-out-last-set", "false") is False
    assert (
        PretrainingOptions(leave_out_last_set=True).changes("tiny") == {}
    )  # it is about the data, not the model


def test_options_change_only_the_fields_they_set():
    assert PretrainingOptions().changes("tiny") == {}
    of_nest = {name: value for name, value in EVERY_PRETRAINING.items() if name != "visit_types"}
    changes = PretrainingOptions.read(of_nest).changes("small")

    config = ModelConfig.preset("small", 100, **changes)

    assert (config.cse_position, config.max_sets, config.time2vec, config.time2vec_scale) == (
        "index",
        9,
        "hours+days",
        0.5,
    )
    assert config.loss_weights == {"mlm": 0.5, "msm": 2.0, "own": 0.25}
    assert (config.token_mask_share, config.set_mask_share, config.d_model) == (0.15, 0.3, 256)
    assert (config.layers, config.set_wise, config.cross_set) == (3, "attention", True)


def test_ablations_change_nests_blocks():
    changes = PretrainingOptions.from_text("set_wise=mean_pool layers=4").changes("tiny")
    assert changes == {"set_wise": "mean_pool", "layers": 4}
    assert PretrainingOptions.from_text("cross_set=false").changes("paper") == {"cross_set": False}


def test_set_position_none_drops_the_hours_of_the_presets_time2vec():
    options = PretrainingOptions.from_text("set_position=none")
    assert options.changes("paper") == {"set_position": None, "time2vec": "days"}
    assert options.changes("tiny") == {"set_position": None}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("time2vec=hours set_position=none", "time2vec hours distinguishes events of a set"),
        ("time2vec=none time2vec_scale=2", "time2vec_scale has nothing to scale: time2vec none"),
        ("set_position=hours set_wise=mean_pool", "set_position hours has nothing to order"),
        (
            "set_wise=mean_pool cross_set=false",
            "model config: set_wise mean_pool without cross_set leaves no block",
        ),
        ("mlm_weight=0 msm_weight=0", "mlm_weight and msm_weight are both 0"),
        ("mlm_weight=0 token_mask_share=0.3", "token_mask_share masks nothing while mlm_weight is 0"),
        ("msm_weight=0 set_mask_share=0.3", "set_mask_share masks nothing while msm_weight is 0"),
        ("set_mask_share=1", "set_mask_share 1 masks every set"),
        ("max_sets=1", "max_sets 1 keeps one set of each patient"),
        (
            "starts_at_shares=true msm_weight=0 own_set_weight=0",
            "starts_at_shares begins with a set head that nothing trains",
        ),
        (
            "tied_set_head=true msm_weight=0 own_set_weight=0",
            "tied_set_head ties a set head that nothing trains",
        ),
    ],
)
def test_contradicting_options_are_refused(preset, text, sentence):
    with pytest.raises(NestError) as error:
        PretrainingOptions.from_text(text).changes(preset)
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(".")


def test_a_tied_set_head_is_taken_with_either_loss_that_trains_it():
    for text in ("tied_set_head=true msm_weight=0 own_set_weight=1", "tied_set_head=true own_set_weight=0"):
        assert PretrainingOptions.from_text(text).changes("paper")["tied_set_head"] is True


def test_a_time2vec_scale_is_refused_without_time2vec():
    scale = PretrainingOptions.from_text("time2vec_scale=2")
    with pytest.raises(NestError, match="the preset tiny has no Time2Vec"):
        scale.changes("tiny")
    assert scale.changes("paper") == {"time2vec_scale": 2.0}


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        (PretrainingOptions, "time2vek=days", "time2vek is not an option; did you mean time2vec?"),
        (PretrainingOptions, "time2vec=weeks", "time2vec must be 'hours', 'days'"),
        (PretrainingOptions, "msm_weight=-1", "msm_weight must be greater than or equal to 0."),
        (PretrainingOptions, "msm_weight=nan", "msm_weight must be a finite number."),
        (PretrainingOptions, "token_mask_share=1.5", "token_mask_share must be less than or equal to 1."),
        (PretrainingOptions, "msm_weight", "msm_weight: has no value"),
        (PretrainingOptions, "max_sets=3 max-sets=4", "max_sets: given more than once"),
        (PretrainingOptions, "freeze=swe", "freeze is not an option"),
        (PretrainingOptions, "patient_share=0", "patient_share must be greater than 0."),
        (FineTuningOptions, "rate_factors=1,1", "rate_factors needs two different factors or more."),
        (FineTuningOptions, "rate_factors=1,half", "rate_factors must be a valid number"),
        (PretrainingOptions, "rate_factors=0,1", "rate_factors must be greater than 0."),
        (FineTuningOptions, "freeze=head", "freeze must be 'embedding', 'swe' or 'cse'"),
        (FineTuningOptions, "readout=mean", "readout must be 'cls', 'history' or 'mean_pool'"),
    ],
)
def test_unknown_options_and_values_are_refused(kind, text, sentence):
    with pytest.raises(NestError) as error:
        kind.from_text(text)
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


def test_all_blocks_can_be_frozen_named_in_any_order():
    options = FineTuningOptions.from_text("freeze=cse,embedding,swe")
    assert options.freeze == BLOCKS
    assert options.flags() == {"freeze": "embedding,swe,cse"}


def test_rates_are_tried_from_the_lowest_and_each_once():
    assert FineTuningOptions.from_text("rate_factors=3,1,3").rate_factors == (1.0, 3.0)


def test_an_unknown_preset_is_refused_with_the_nearest(capsys):
    paths = [f"--{name}=x" for name in ("seqset", "subjects", "vocab", "out")]
    with pytest.raises(SystemExit):
        parser().parse_args(["pretrain", *paths, "--model=smal"])
    assert "preset 'smal' is unknown; did you mean small?" in capsys.readouterr().err


def test_every_field_of_model_and_recipe_can_be_set_once():
    """One training or the other sets every field but those that follow from the data or an ablation."""
    every_field = {field.name for kind in (ModelConfig, Recipe) for field in fields(kind)}
    settable = {FIELDS.get(name, name) for name in PretrainingOptions.names()} - set(OF_DATA)
    of_tasks = {"dropout", "head_rate", "thinning"}
    not_set = {"vocab_size", "visit_types", "shuffle_seed", "shortcuts", "row_budget"}
    assert every_field - settable == not_set | of_tasks
    assert of_tasks < set(FineTuningOptions.names())
    assert len(PretrainingOptions.names()) == len(set(PretrainingOptions.names()))


def test_set_flags_and_a_setting_read_any_field_the_same():
    text = "layers=3 d_model=128 clip_norm=0.2 least_steps=300 max_rows=none"
    options = PretrainingOptions.from_text(text)
    command = ["pretrain", *(f"--{path}=x" for path in ("seqset", "subjects", "vocab", "out"))]
    values = vars(parser().parse_args([*command, "--set", "layers=3 d_model=128", "--set", text[21:]]))

    assert (
        take_options(PretrainingOptions, values) == options == PretrainingOptions.from_flags(options.flags())
    )
    assert options.recipe == {"clip_norm": 0.2, "least_steps": 300}
    assert options.changes("tiny") == {"layers": 3, "d_model": 128, "max_rows": None}


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (PretrainingOptions, "laiers=3", "laiers is not an option; did you mean layers?"),
        (PretrainingOptions, "d_modle=3", "d_modle is not an option; did you mean d_model?"),
        (PretrainingOptions, "d_model=wide", "d_model must be a valid integer"),
        (PretrainingOptions, "clip_norm=none", "clip_norm cannot be none"),
        (FineTuningOptions, "d_model=128", "d_model is not an option"),
        (FineTuningOptions, "dropout=1.5", "dropout must be less than 1"),
        (FineTuningOptions, "dropout=nan", "dropout must be"),
        (FineTuningOptions, "max_sets=0", "max_sets must be greater than or equal to 1"),
        (FineTuningOptions, "examples_per_step=0", "examples_per_step must be greater than or equal to 1"),
        (FineTuningOptions, "thinning=0.1,1.5", "thinning must be less than 1"),
        (
            FineTuningOptions,
            "thinning=0.5",
            "thinning needs two shares separated by a comma, such as 0.4,0.8.",
        ),
        (FineTuningOptions, "thinning=0.8,0.4", "thinning needs the smaller share first, such as 0.4,0.8."),
        (
            PretrainingOptions,
            "thinning=0.1,0.5 head_rate=2",
            "thinning, head_rate: a pretraining does not use it; give it to the other training, or leave it out.",
        ),
        (
            FineTuningOptions,
            "shares_embeddings=true",
            "shares_embeddings: a fine-tuning does not use it; give it to the other training, or leave it out.",
        ),
        (
            FineTuningOptions,
            "epochs=3 least_steps=100",
            "epochs and least_steps: the epochs are as many as you name",
        ),
        (PretrainingOptions, "weight_decay=inf", "weight_decay must be a finite number"),
        (FineTuningOptions, "dropout=0.1 dropout=0.2", "dropout: given more than once"),
    ],
)
def test_a_field_that_cannot_be_set_is_refused_with_the_nearest_name(kind, text, message):
    with pytest.raises(NestError) as error:
        kind.from_text(text)
    assert str(error.value).startswith(message)


def test_a_field_given_by_flag_and_by_set_is_refused():
    command = [
        "finetune",
        *(f"--{path}=x" for path in ("pretrained", "labels", "seqset", "out", "predictions")),
    ]
    values = vars(parser().parse_args([*command, "--epochs=2", "--set=epochs=3"]))
    with pytest.raises(NestError, match="epochs: given by its own flag and by --set"):
        take_options(FineTuningOptions, values)

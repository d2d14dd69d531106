"""Options of a training are refused before the data work if invalid, and passed to the commands."""

import pytest

from assets.models.common import flags
from assets.resources import Workspace
from assets.runtime.executor import refuse_options_of_sources
from nest_model.options import PretrainingOptions
from schemas.errors import NestError
from schemas.sources import sources


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"pretraining": "time2vek=days"},
            "NEST_PRETRAINING: time2vek is not an option; did you mean time2vec?",
        ),
        (
            {"pretraining": "mlm_weight=0 msm_weight=0"},
            "NEST_PRETRAINING: mlm_weight and msm_weight are both 0",
        ),
        (
            {"pretraining": "time2vec_scale=2", "model": "small"},
            "NEST_PRETRAINING: time2vec_scale has nothing to scale: the preset small has no Time2Vec",
        ),
        ({"finetuning": "freeze=head"}, "NEST_FINETUNING: freeze must be 'embedding', 'swe' or 'cse'."),
        (
            {"finetuning": "freeze=swe", "pretraining": "set_wise=mean_pool"},
            "NEST_FINETUNING: freeze swe: nest has no such blocks; it has embedding, cse.",
        ),
        (
            {"finetuning": "freeze=embedding,cse", "pretraining": "cross_set=false"},
            "NEST_FINETUNING: freeze cse: nest has no such blocks; it has embedding, swe.",
        ),
        (
            {"finetuning": "max_rows=100"},
            "NEST_FINETUNING: model config: max_rows must be null or at least max_set_rows",
        ),
        (
            {"finetuning": "max_set_rows=200", "pretraining": "max_rows=100 max_set_rows=50"},
            "NEST_FINETUNING: model config: max_rows must be null or at least max_set_rows",
        ),
    ],
)
def test_invalid_options_are_refused_when_the_settings_are_read(settings, sentence, tmp_path):
    with pytest.raises(NestError) as error:
        _ = Workspace(data_dir=str(tmp_path), **settings).settings
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    "settings",
    [
        {"finetuning": "freeze=embedding,swe,cse", "pretraining": "set_wise=mean_pool"},
        {"finetuning": "freeze=cse", "pretraining": "set_wise=mean_pool"},
        {"finetuning": "max_rows=100", "pretraining": "max_set_rows=50"},
        {"finetuning": "max_rows=100 max_set_rows=100"},
    ],
)
def test_options_that_fit_the_pretraining_are_taken(settings, tmp_path):
    assert Workspace(data_dir=str(tmp_path), **settings).settings.finetuning == settings["finetuning"]


def test_a_run_that_pretrains_on_a_source_refuses_options_that_contradict_it(tmp_path):
    """The encounters of PCORnet have no order inside; those of MIMIC-IV have."""
    workspace = Workspace(data_dir=str(tmp_path), pretraining="time2vec=hours")
    refuse_options_of_sources(workspace, {"mimic_nest": "mimic", "pcornet_events": "pcornet"})
    with pytest.raises(NestError, match="NEST_PRETRAINING: time2vec hours distinguishes events of a set"):
        refuse_options_of_sources(workspace, {"pcornet_events": "pcornet", "pcornet_nest": "pcornet"})


@pytest.mark.parametrize("model", ["tiny", "small", "paper", "matched"])
@pytest.mark.parametrize("source", sources())
def test_the_options_of_every_source_fit_every_preset(source, model, tmp_path):
    refuse_options_of_sources(Workspace(data_dir=str(tmp_path), model=model), {f"{source}_nest": source})


def test_options_of_a_run_become_command_line_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("NEST_PRETRAINING", "set_mask_share=0.3")
    workspace = Workspace(data_dir=str(tmp_path))
    assert workspace.settings.pretraining == "set_mask_share=0.3"
    config = Workspace(data_dir=str(tmp_path), pretraining="time2vec=days max_sets=9")
    options = PretrainingOptions.from_text(config.settings.pretraining)
    assert flags(options.flags()) == ["--max-sets", "9", "--time2vec", "days"]

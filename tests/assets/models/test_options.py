"""Options of a training are refused before the data work if invalid, and passed to the commands."""

import pytest

from assets.models.common import flags
from assets.resources import Workspace
from nest_model.options import PretrainingOptions
from schemas.errors import NestError


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
    ],
)
def test_invalid_options_are_refused_when_the_settings_are_read(settings, sentence, tmp_path):
    with pytest.raises(NestError) as error:
        _ = Workspace(data_dir=str(tmp_path), **settings).settings
    assert str(error.value).startswith(sentence)


def test_options_of_a_run_become_command_line_flags(tmp_path, monkeypatch):
    monkeypatch.setenv("NEST_PRETRAINING", "set_mask_share=0.3")
    workspace = Workspace(data_dir=str(tmp_path))
    assert workspace.settings.pretraining == "set_mask_share=0.3"
    config = Workspace(data_dir=str(tmp_path), pretraining="time2vec=days max_sets=9")
    options = PretrainingOptions.from_text(config.settings.pretraining)
    assert flags(options.flags()) == ["--max-sets", "9", "--time2vec", "days"]

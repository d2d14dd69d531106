import json

import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.model import checkpoint
from nest_model.model.checkpoint import ModelCard
from nest_model.model.systems.nest.encoder import NestModel
from schemas.errors import NestError
from schemas.io.outputs import MARK
from schemas.io.seal import sealed, unsealed
from tests.support.bit_damage import count_unnoticed

CONFIG = ModelConfig(20, d_model=16, heads=2, d_ff=8, layers=1)
CARD = ModelCard("nest", CONFIG, "a" * 64, {"seed": 1})


def save_model(folder, seed=0):
    torch.manual_seed(seed)
    model = NestModel(CONFIG)
    checkpoint.save(folder, model.state_dict(), CARD, "# card\n")
    return model


def test_load_restores_a_saved_config_and_weights(tmp_path):
    model = save_model(tmp_path)
    copy, card = checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)

    assert card.model == CONFIG
    for name, weight in model.state_dict().items():
        assert torch.equal(copy.state_dict()[name], weight)
    assert sorted(file.name for file in tmp_path.iterdir() if file.name != MARK) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]


def test_load_refuses_another_vocabulary(tmp_path):
    save_model(tmp_path)
    with pytest.raises(NestError, match=r"reads another vocabulary .aaaaaaaa….*train again"):
        checkpoint.load_pretrained(tmp_path, vocab_sha256="b" * 64)


def test_load_classifier_refuses_a_pretrained_model(tmp_path):
    save_model(tmp_path)
    with pytest.raises(NestError, match="fine-tune it first"):
        checkpoint.load_classifier(tmp_path, vocab_sha256="a" * 64)


def test_load_refuses_an_empty_folder(tmp_path):
    with pytest.raises(NestError, match="train one first"):
        checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)


def test_load_refuses_weights_of_another_run(tmp_path):
    save_model(tmp_path / "a")
    save_model(tmp_path / "b", seed=1)
    (tmp_path / "b" / "model.safetensors").replace(tmp_path / "a" / "model.safetensors")

    with pytest.raises(NestError, match="from different runs"):
        checkpoint.load_pretrained(tmp_path / "a", vocab_sha256="a" * 64)


def test_load_refuses_another_format(tmp_path):
    save_model(tmp_path)
    change_config(tmp_path, lambda values: values.update(format=0))

    with pytest.raises(NestError, match="format 0"):
        checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)


def change_config(folder, change):
    path = folder / "config.json"
    values = json.loads(unsealed(path.read_text()))
    change(values)
    path.write_text(sealed(json.dumps(values, indent=2)))


def test_load_reads_a_model_written_before_systems_had_names_as_a_nest(tmp_path):
    model = save_model(tmp_path)
    change_config(tmp_path, lambda values: values.update(format=values.pop("system") and 2))

    copy, card = checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)

    assert (type(copy), card) == (NestModel, CARD)
    assert all(torch.equal(weight, copy.state_dict()[name]) for name, weight in model.state_dict().items())


def test_load_reads_a_model_written_before_a_field_of_its_config_existed(tmp_path):
    model = save_model(tmp_path)

    def leave_out(values):
        for name in ("set_wise", "cross_set", "shuffle_seed"):
            del values["model"][name]

    change_config(tmp_path, leave_out)

    copy, card = checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)

    assert card == CARD
    assert all(torch.equal(weight, copy.state_dict()[name]) for name, weight in model.state_dict().items())
    change_config(tmp_path, lambda values: values["model"].update(set_wize="attention"))
    with pytest.raises(NestError, match=r"unknown keys \['set_wize'\]"):
        checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)


def test_load_reads_a_model_written_before_lists_ranked_by_presence(tmp_path):
    weights = {
        name: weight
        for name, weight in save_model(tmp_path).state_dict().items()
        if name != "set_head.log_presence_ratio"
    }
    checkpoint.save(tmp_path, weights, CARD, "# card\n")

    copy, _ = checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)

    cls_hidden = torch.ones(1, copy.config.d_model)
    assert torch.equal(copy.presence_scores(cls_hidden), copy.msm_logits(cls_hidden))
    assert all(torch.equal(weight, copy.state_dict()[name]) for name, weight in weights.items())


def test_load_refuses_a_system_that_does_not_exist(tmp_path):
    save_model(tmp_path)
    change_config(tmp_path, lambda values: values.update(system="nst"))

    with pytest.raises(
        NestError,
        match=r"config.json: system 'nst' is unknown \(do you mean 'nest'\?\); choose one of bert, .*nest",
    ):
        checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_load_refuses_a_model_with_a_flipped_bit(tmp_path, name):
    save_model(tmp_path)

    def load():
        checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)

    assert count_unnoticed(tmp_path / name, load, NestError) == 0


def test_save_on_a_full_disk_keeps_the_earlier_model(tmp_path, monkeypatch):
    save_model(tmp_path)
    old_weights = (tmp_path / "model.safetensors").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nest_model.files.save_file", full)
    with pytest.raises(NestError, match=r"No space left on device.*untouched") as error:
        save_model(tmp_path, seed=1)
    assert "\n" not in str(error.value)
    assert (tmp_path / "model.safetensors").read_bytes() == old_weights
    checkpoint.load_pretrained(tmp_path, vocab_sha256="a" * 64)

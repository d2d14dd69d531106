"""A model folder that is not what it says is refused with one message, before its model is built."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from nest_model import process
from nest_model.config import ModelConfig
from nest_model.files import sha256_of
from nest_model.model import checkpoint, weights
from nest_model.model.checkpoint import ModelCard
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.model.weights import refuse_too_large
from nest_model.training.state import StateFolder
from schemas.errors import NestError
from schemas.io.seal import sealed, unsealed
from tests.support.saved_model import change_config, change_shape, change_weights

CONFIG = ModelConfig(20, d_model=16, heads=2, d_ff=8, layers=1)
VOCABULARY = "a" * 64


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    checkpoint.save(
        tmp_path, NestModel(CONFIG).state_dict(), ModelCard("nest", CONFIG, VOCABULARY, {}), "# card\n"
    )
    return tmp_path


def sign(folder: Path) -> None:
    change_config(folder, weights_sha256=sha256_of(folder / "model.safetensors"))


def refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the message; no weight is allocated before it."""
    real = torch.nn.Parameter.__new__

    def on_no_memory(cls, data=None, requires_grad=True):
        assert data is None or data.device.type == "meta", "a weight was allocated"
        return real(cls, data, requires_grad)

    monkeypatch.setattr(torch.nn.Parameter, "__new__", on_no_memory)
    with pytest.raises(NestError) as error:
        checkpoint.load_pretrained(folder, vocab_sha256=VOCABULARY)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors.pop("norm.weight"), "config.json: norm.weight missing"),
        (lambda tensors: tensors.update(more=torch.zeros(1)), "more unknown to such a model"),
        (
            lambda tensors: tensors.update({"norm.weight": torch.zeros(8)}),
            r"norm.weight has shape \[8\], expected \[16\]",
        ),
        (
            lambda tensors: tensors.update({"norm.weight": torch.zeros(16).half()}),
            "norm.weight has type F16, expected F32",
        ),
        (lambda tensors: tensors["norm.weight"].fill_(torch.nan), "norm.weight hold NaN or infinite"),
        (lambda tensors: tensors["set_head.out.bias"][3:4].fill_(torch.inf), "set_head.out.bias hold NaN"),
    ],
    ids=["missing", "unexpected", "shape", "type", "NaN", "infinite"],
)
def test_load_refuses_weights_that_do_not_fit_the_config(
    change: Callable, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    change_weights(folder, change)
    assert re.search(message, refused(folder, monkeypatch))


@pytest.mark.parametrize("size", [0, 4, 200, -8])
def test_load_refuses_a_truncated_safetensors_file(size: int, folder: Path, monkeypatch: pytest.MonkeyPatch):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:size])
    sign(folder)
    assert "not a complete safetensors file; train the model again" in refused(folder, monkeypatch)


@pytest.mark.parametrize(
    "shape",
    [
        {"vocab_size": 10**12},
        {"d_model": 2 * 10**30},
        {"layers": 10**15},
        {"d_ff": 10**18},
    ],
    ids=str,
)
def test_load_refuses_a_model_larger_than_memory(shape: dict, folder: Path, monkeypatch: pytest.MonkeyPatch):
    change_shape(folder, **shape)
    assert "GiB are free. Use a smaller model" in refused(folder, monkeypatch)


def test_load_refuses_more_layers_than_tensors_before_building(folder: Path, monkeypatch: pytest.MonkeyPatch):
    change_shape(folder, layers=1_000, d_ff=1)
    assert "1,000 layers need more than" in refused(folder, monkeypatch)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ({"d_model": "16"}, "d_model: Input should be a valid integer"),
        ({"layers": 1.5}, "layers: Input should be a valid integer"),
        ({"time2vec": 3}, "time2vec: Input should be"),
        ({"shortcuts": []}, "not a JSON object"),
        ({"mlm_weight": float("nan")}, "must be finite"),
        ({"heads": True}, "heads: Input should be a valid integer"),
    ],
    ids=str,
)
def test_load_refuses_a_model_config_of_wrong_types(
    shape: dict, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    change_shape(folder, **shape)
    assert message in refused(folder, monkeypatch)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dropout": 1.5}, "dropout: Input should be less than 1"),
        ({"training": []}, "training: Input should be a valid dictionary"),
        ({"weights_sha256": 3}, "weights_sha256: Input should be a valid string"),
        ({"task": {"cohort": 1}}, "task: "),
        ({"more": 1}, "more: Extra inputs are not permitted"),
        ({"format": "x" * 10_000}, "another format, but this version reads 2 and 3"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_load_refuses_a_config_file_of_wrong_types(
    values: dict, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    change_config(folder, **values)
    refusal = refused(folder, monkeypatch)
    assert message in refusal
    assert len(refusal) < 1_000


@pytest.mark.parametrize(
    "missing", ["system", "model", "vocab_sha256", "weights_sha256", "training", "task", "dropout"]
)
def test_load_names_a_missing_config_key(missing: str, folder: Path, monkeypatch: pytest.MonkeyPatch):
    path = folder / "config.json"
    values = json.loads(unsealed(path.read_text()))
    del values[missing]
    path.write_text(sealed(json.dumps(values, indent=2)))
    assert f"config.json: {missing}: Field required" in refused(folder, monkeypatch)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe{", b"[" * 100_000, b"[]", b"3"])
def test_load_refuses_an_unreadable_config_in_one_line(
    content: bytes, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    (folder / "config.json").write_bytes(content)
    assert "config.json: not a model's config" in refused(folder, monkeypatch)


@pytest.mark.parametrize("time2vec", [None, "hours", "hours+days"])
def test_num_parameters_equals_the_built_model(time2vec: str | None):
    config = ModelConfig(33, d_model=24, heads=3, d_ff=40, layers=3, time2vec=time2vec)
    assert NestModel.num_parameters(config) == sum(
        weight.numel() for weight in NestModel(config).parameters()
    )


def test_load_keeps_the_global_random_state(folder: Path):
    torch.manual_seed(3)
    NestModel(CONFIG)
    expected = torch.rand(1)
    torch.manual_seed(3)
    checkpoint.load_pretrained(folder, vocab_sha256=VOCABULARY)
    assert torch.equal(torch.rand(1), expected)


def test_available_bytes_is_the_containers_limit_if_lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(process, "_CONTAINER", tmp_path)
    machine = process.available_bytes()
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert process.available_bytes() == 2000
    (tmp_path / "memory.max").write_text("max\n")
    assert process.available_bytes() == pytest.approx(machine, rel=0.5)
    monkeypatch.setattr(weights, "available_bytes", lambda: 4 * NestModel.num_parameters(CONFIG))
    refuse_too_large(NestModel.num_parameters(CONFIG), "this model")
    with pytest.raises(NestError, match=r"this model: a model of .* weights takes"):
        refuse_too_large(NestModel.num_parameters(CONFIG), "this model", weights.BYTES_IN_TRAINING)


def test_load_refuses_an_invalid_state_in_one_line(tmp_path: Path):
    states = StateFolder(tmp_path, "run")
    states.folder.mkdir(parents=True)
    file = states.folder / "made"
    save_file({"module.a": torch.zeros(2)}, file)
    file.rename(states.folder / f"00000000-{sha256_of(file)}.safetensors")
    with pytest.raises(NestError, match="not a state of a training; move it away"):
        states.load()

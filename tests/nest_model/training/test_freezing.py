"""Frozen weights stay as pretrained, bit for bit, also in a training that is stopped and resumed."""

import pytest
import torch
from safetensors.torch import load_file

from nest_model.commands.finetune import finetune
from nest_model.model.checkpoint import load_classifier, load_pretrained
from nest_model.recipe import Recipe
from nest_model.training.freezing import freeze_blocks
from nest_model.training.state import StateFolder
from nest_model.training.stop import Stopped
from schemas.contract import read_table
from schemas.tables.vocab import VOCAB, content_sha256
from tests.support.factories.ragged import ragged_batch
from tests.support.factories.world import StopAfter, make_world, pretrain_small, runtime

FIELDS = {"embedding": ("embedding", "time2vec"), "swe": ("set_wise",), "cse": ("cross_set",)}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def pretrained_folder(world, tmp_path_factory):
    out = tmp_path_factory.mktemp("pretrained")
    recipe = Recipe(1e-3, 1, 1, examples_per_step=6)
    pretrain_small(world, runtime(out), out, recipe, time2vec="hours+days", layers=2)
    return out


def _finetune(world, pretrained_folder, out, freeze, **options):
    stop, rate = options.pop("stop", None), options.pop("rate", 1e-2)
    finetune(
        pretrained_model=pretrained_folder,
        labels=world.labels,
        seqset=world.seqset,
        out=out,
        predictions=out / "report" / "predictions.parquet",
        seed=1,
        runtime=runtime(out, stop=stop, seconds_between_states=0.0),
        recipe={"epochs": 2, "learning_rate": rate, "weight_decay": 0.1, "decays": "everything"},
        freeze=freeze,
        **options,
    )
    return load_file(out / "model.safetensors")


def _is_frozen(name, freeze):
    if set(freeze) == set(FIELDS):
        return True  # the norm after the last block too
    return any(part in name.split(".") for block in freeze for part in FIELDS[block])


@pytest.mark.parametrize(
    "freeze",
    [("embedding",), ("swe",), ("cse",), ("swe", "cse"), ("embedding", "cse"), ("embedding", "swe", "cse")],
)
def test_frozen_weights_stay_as_pretrained_and_others_change(world, pretrained_folder, tmp_path, freeze):
    pretrained_weights = load_file(pretrained_folder / "model.safetensors")

    weights = _finetune(world, pretrained_folder, tmp_path, freeze)

    encoder = {
        name.removeprefix("encoder."): value for name, value in weights.items() if name.startswith("encoder.")
    }
    frozen = {name for name in encoder if _is_frozen(name, freeze)}
    assert frozen
    frozen.add("item_of_token")  # a buffer that is never trained
    assert {name for name, value in encoder.items() if torch.equal(value, pretrained_weights[name])} == frozen
    assert f"Left as pretrained: {', '.join(freeze)}." in (tmp_path / "README.md").read_text()


def test_a_stopped_training_with_frozen_weights_resumes_exactly(world, pretrained_folder, tmp_path):
    freeze = ("embedding", "swe")
    whole = _finetune(world, pretrained_folder, tmp_path / "whole", freeze)
    with pytest.raises(Stopped):
        _finetune(world, pretrained_folder, tmp_path / "parts", freeze, stop=StopAfter(3))
    (folder,) = (tmp_path / "parts" / "state").iterdir()
    state = StateFolder(folder.parent, folder.name).load()
    assert state is not None
    moments = [name for name in state.tensors if name.startswith("optimizer.")]
    assert moments
    assert not [name for name in moments if _is_frozen(name, freeze)]

    weights = _finetune(world, pretrained_folder, tmp_path / "parts", freeze)

    assert whole.keys() == weights.keys()
    assert all(torch.equal(value, weights[name]) for name, value in whole.items())


def test_frozen_weights_have_no_gradient_and_keep_other_gradients(world, pretrained_folder):
    gradients = []
    for freeze in ((), ("embedding", "swe")):
        encoder, _ = load_pretrained(
            pretrained_folder, vocab_sha256=content_sha256(read_table(world.vocab, VOCAB))
        )
        freeze_blocks(encoder, freeze)
        batch = ragged_batch([[3, 4], [2, 5, 1]], 0)
        encoder(batch)[batch.cls_rows].square().sum().backward()
        gradients.append({name: weight.grad for name, weight in encoder.named_parameters()})
    whole, partly = gradients
    assert {name for name, gradient in whole.items() if gradient is not None} - {
        name for name, gradient in partly.items() if gradient is not None
    } == {name for name in partly if _is_frozen(name, ("embedding", "swe"))}
    for name, gradient in partly.items():
        if gradient is not None:
            torch.testing.assert_close(gradient, whole[name], rtol=1e-6, atol=0)


def test_a_linear_probe_trains_the_head_alone(world, pretrained_folder, tmp_path):
    heads = [
        {name: weight for name, weight in weights.items() if not name.startswith("encoder.")}
        for weights in (
            _finetune(world, pretrained_folder, tmp_path / str(rate), ("embedding", "swe", "cse"), rate=rate)
            for rate in (1e-9, 1e-2)
        )
    ]
    assert heads[0].keys() == heads[1].keys() != set()
    assert not [name for name, weight in heads[0].items() if torch.equal(weight, heads[1][name])]


@pytest.mark.parametrize("readout", ["cls", "mean_pool"])
def test_finetuning_sets_the_readout(world, pretrained_folder, tmp_path, readout):
    _finetune(world, pretrained_folder, tmp_path, (), readout=readout)
    model, card = load_classifier(tmp_path, vocab_sha256=content_sha256(read_table(world.vocab, VOCAB)))
    assert card.model.readout == model.encoder.config.readout == readout

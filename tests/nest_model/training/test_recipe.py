"""The recipes of the presets, and the effect of their fields on the weights."""

import dataclasses
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from nest_model.config import PRESETS, ModelConfig
from nest_model.data.selection import Selection
from nest_model.data.vocabulary import read_tokens
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.recipe import Recipe
from nest_model.training.finetuning_task import FineTuning
from nest_model.training.objectives.mlm_msm import MaskedTokensAndSets
from nest_model.training.pretraining_data import PretrainingExamples, PretrainingPatients
from nest_model.training.recipe import FINETUNING, PRETRAINING, SEVERAL_CLASSES, finetuning_recipe
from nest_model.training.trainer import parameter_groups
from schemas.tables.labels import LabelType
from tests.support.factories.world import make_world, pretrain_small, runtime


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("world"))


def test_a_gpu_has_larger_micro_batches_and_the_same_result_fields():
    recipe = PRETRAINING["paper"]
    assert recipe.on_device("cpu") == recipe
    assert recipe.on_device("cuda").row_budget == 8 * recipe.row_budget
    assert recipe.on_device("cuda").result_fields() == recipe.result_fields()


def test_the_paper_preset_equals_the_paper():
    plain = Recipe(learning_rate=5e-5, epochs=30, patience=10)
    task = Recipe(
        learning_rate=1e-5, epochs=30, patience=3, weight_decay=1e-3, warmup_share=0.1, decay="cosine"
    )

    assert PRETRAINING["paper"] == plain
    assert FINETUNING["paper"] == SEVERAL_CLASSES["paper"] == task
    for recipe in (plain, task):
        ours = (recipe.decays, recipe.head_rate, recipe.clip_norm, recipe.thinning)
        assert ours == ("everything", 1.0, None, (0.0, 0.0))
        assert not recipe.starts_at_shares
        assert not recipe.shares_embeddings
    sizes = {"d_model": 768, "heads": 12, "d_ff": 2048, "layers": 6, "max_sets": 8}
    times = {"cse_position": "days_since_prior", "time2vec": "hours+days", "time2vec_scale": 1.0}
    shares = {"token_mask_share": 0.20, "set_mask_share": 0.40, "mlm_weight": 1.0, "msm_weight": 1.0}
    paper = ModelConfig.preset("paper", 100)
    assert paper == ModelConfig(100, **sizes, **times, **shares)
    assert (paper.set_position, paper.max_set_rows) == ("hours", 512)
    bare = ModelConfig(100)
    assert (bare.own_set_weight, bare.tied_set_head, bare.readout) == (0.0, False, "cls")
    assert bare.cse_position == "days_since_first"


def test_parameter_groups_hold_each_weight_once_by_decay_and_rate():
    module = nn.ModuleDict(
        {"table": nn.Embedding(4, 2), "old": nn.Linear(2, 2), "norm": nn.LayerNorm(2), "new": nn.Linear(2, 3)}
    )
    module["old"].bias.requires_grad_(False)
    task = SimpleNamespace(module=module, fresh_weights=list(module["new"].parameters()))
    recipe = Recipe(1e-3, 1, 1, weight_decay=0.1, decays="matrices", head_rate=3.0)
    names = {id(weight): name for name, weight in module.named_parameters()}

    members = {
        (group["weight_decay"], group["rate_share"]): {names[id(weight)] for weight in group["params"]}
        for group in parameter_groups(task, recipe)
    }

    assert members == {
        (0.0, 1.0): {"table.weight", "norm.weight", "norm.bias"},
        (0.1, 1.0): {"old.weight"},
        (0.1, 3.0): {"new.weight"},
        (0.0, 3.0): {"new.bias"},
    }
    (everything,) = parameter_groups(task, dataclasses.replace(recipe, decays="everything", head_rate=1.0))
    assert len(everything["params"]) == len(names) - 1
    assert (everything["weight_decay"], everything["rate_share"]) == (0.1, 1.0)


def test_the_msm_head_starts_at_the_constant_guess(world):
    patients = PretrainingPatients.read(world.seqset, world.subjects)
    config = ModelConfig.preset("tiny", len(read_tokens(world.vocab, patients.seqsets.vocab_sha256)))
    examples = PretrainingExamples.of(patients, config, patients_per_batch=36)
    encoder = NestModel(config)
    assert not encoder.set_head.out.bias.any()

    MaskedTokensAndSets(config).start_at_shares(encoder, examples)

    guess = encoder.set_head.out.bias.detach().softmax(0).numpy()
    expected = examples.popularity.mean_set
    assert guess[5:] / guess[5:].sum() == pytest.approx(expected[5:], rel=1e-5)


def test_the_lists_of_a_new_set_head_start_at_the_tokens_most_sets_hold(world):
    patients = PretrainingPatients.read(world.seqset, world.subjects)
    config = ModelConfig.preset("tiny", len(read_tokens(world.vocab, patients.seqsets.vocab_sha256)))
    examples = PretrainingExamples.of(patients, config, patients_per_batch=36)
    encoder = NestModel(config)
    MaskedTokensAndSets(config).start_at_shares(encoder, examples)
    encoder.embedding.weight.data.zero_()  # nothing but the guess is left
    cls_hidden = torch.randn(1, config.d_model, generator=torch.Generator().manual_seed(0))

    scores, logits = (guess(cls_hidden)[0, 5:] for guess in (encoder.presence_scores, encoder.msm_logits))

    holders, shares = examples.popularity.holders[5:], examples.popularity.shares[5:]
    assert list(holders[scores.argsort(descending=True)]) == sorted(holders, reverse=True)
    assert list(shares[logits.argsort(descending=True)]) == sorted(shares, reverse=True)
    assert list(shares.argsort()) != list(holders.argsort())


@pytest.mark.parametrize(("least", "most"), [(0.0, 0.0), (0.5, 0.5), (0.2, 0.8)])
def test_event_dropout_drops_a_share_within_the_bounds(least, most):
    events = 20_000
    selection = Selection.of_events(np.zeros(1, int), np.zeros(1, int), np.array([events]), np.arange(events))
    task = SimpleNamespace(_recipe=Recipe(1e-3, 1, 1, thinning=(least, most)))

    shares = [
        1 - len(FineTuning._with_event_dropout(task, selection, np.random.default_rng(seed)).events) / events
        for seed in range(40)
    ]

    assert all(least - 0.02 <= share <= most + 0.02 for share in shares)
    assert (max(shares) - min(shares) > 0.4) == (least < most)


def test_tightly_clipped_gradients_change_no_weight(world, tmp_path):
    clipped_weights, free = (
        _trained(world, tmp_path / name, clip) for name, clip in (("still", 1e-14), ("moved", None))
    )

    initial = _trained(world, tmp_path / "begun", 1e-14, learning_rate=1e-12)
    for name, weight in initial.items():
        assert torch.allclose(clipped_weights[name], weight, rtol=0, atol=1e-5), name
    assert any(not torch.allclose(free[name], weight, rtol=0, atol=1e-3) for name, weight in initial.items())


def _trained(world, out, clip, learning_rate=1e-3):
    recipe = Recipe(learning_rate, 1, 1, weight_decay=0.0, examples_per_step=6, clip_norm=clip)
    pretrain_small(world, runtime(out), out, recipe)
    return load_file(out / "model.safetensors")


def test_small_has_ten_to_twenty_million_weights_and_a_recipe_for_every_training():
    with torch.device("meta"):
        model = NestModel(ModelConfig.preset("small", 20_377))
    assert 10e6 < sum(weight.numel() for weight in model.parameters()) < 20e6
    for recipes in (PRETRAINING, FINETUNING, SEVERAL_CLASSES):
        assert recipes.keys() == PRESETS.keys()


FRESH_RATES = {"bool": 81, "number": 81, "class": 3, "list": 3, "time": 1}
"""By label type, in NEST's rate, as docs/notes/learning.md has them."""


@pytest.mark.parametrize("label_type", get_args(LabelType))
def test_fresh_weights_have_the_same_recipe_but_for_the_rate(label_type):
    assert FRESH_RATES.keys() == set(get_args(LabelType))
    for preset in PRESETS:
        pretrained, fresh = (
            finetuning_recipe("nest", preset, label_type, start) for start in ("pretrained", "fresh")
        )
        factor = FRESH_RATES[label_type] if preset in ("tiny", "small") else 1  # the paper names one rate
        assert fresh.learning_rate == pytest.approx(factor * pretrained.learning_rate, rel=1e-9)
        assert fresh == pretrained.with_changes(learning_rate=fresh.learning_rate)


def test_other_systems_have_one_rate():
    for start in ("pretrained", "fresh"):
        assert finetuning_recipe("hi_behrt", "tiny", "bool", start) == FINETUNING["tiny"]
        assert finetuning_recipe("hi_behrt", "tiny", "list", start) == SEVERAL_CLASSES["tiny"]

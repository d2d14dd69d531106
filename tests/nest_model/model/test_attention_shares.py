"""Attention profiles compared with weights computed row by row, and with their null models."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import pack
from nest_model.data.selection import whole_subjects
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.attention_nulls import NULLS, attention_beside_nulls, untrained_like
from nest_model.model import attention_shares
from nest_model.model.attention_shares import CLASSES, DAYS_BACK, FARTHEST, SETS_BACK, attention_profiles
from nest_model.model.layers import rotate
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.report.attention import kinds_sentence, sets_sentence
from schemas.tables.events import KINDS
from tests.support.factories.world import copy_world, make_world


@pytest.fixture(scope="module")
def seqsets(tmp_path_factory) -> SeqSets:
    root = tmp_path_factory.mktemp("world")
    return SeqSets.read(copy_world(make_world(root / "one", subjects=60), root / "two", set_two_kinds).seqset)


def set_two_kinds(row: dict) -> None:
    row["kinds"] = [KINDS.index("MED" if token % 3 else "LAB") for token in row["tokens"]]


@pytest.fixture(scope="module")
def model() -> NestModel:
    torch.manual_seed(0)
    config = ModelConfig.preset("tiny", 40, d_model=16, heads=2, d_ff=16, layers=2)
    model = NestModel(config)
    for layer in model.layers:  # far from even attention
        for block in (layer.set_wise, layer.cross_set):
            block.attention.query_key_value.weight.data *= 4
    return model


def everyone(seqsets: SeqSets):
    return whole_subjects(seqsets, np.arange(seqsets.subjects))


def weights_of(attention, rows, rotation, query_row: int) -> np.ndarray:
    """Return the attention weights [rows] of a query row by the formula, as the mean over heads."""
    query, key, _ = attention.query_key_value(rows).unflatten(-1, (3, attention.heads, -1)).unbind(1)
    if rotation is not None:
        query, key = rotate(query, rotation), rotate(key, rotation)
    scores = torch.einsum("hd,rhd->hr", query[query_row], key) / query.shape[-1] ** 0.5
    return scores.softmax(dim=1).mean(dim=0).numpy()


@torch.no_grad()
def naive(model: NestModel, seqsets: SeqSets) -> tuple[dict, dict, dict]:
    """Return, as `attention_profiles` does, (class, layer, patient) → [observed, by counting] of each query."""
    kinds, sets_back, days_back = {}, {}, {}
    for example in range(seqsets.subjects):
        selection = everyone(seqsets).take(np.array([example]))
        batch = pack(seqsets, selection, model.config)
        context, hidden_states = model.layer_context(batch), model.embed(batch)
        events = iter(selection.values(seqsets.kinds).tolist())
        is_cls = np.isin(np.arange(len(batch.tokens)), batch.cls_rows.numpy())
        classes = np.array([0 if cls else 1 + next(events) for cls in is_cls])
        for number, layer in enumerate(model.layers):
            inputs = layer.set_wise.attention_norm(hidden_states)
            rotation = context.set_rotation
            for first, end in zip(batch.set_offsets[:-1], batch.set_offsets[1:], strict=True):
                part = slice(int(first), int(end))
                part_rotation = None if rotation is None else rotation[part]
                weights = weights_of(layer.set_wise.attention, inputs[part], part_rotation, 0)
                collect(kinds, number, example, classes[part], weights)
            set_rows = layer.set_wise(hidden_states, context.set_plan, context.set_rotation)
            sets = layer.cross_set.attention_norm(set_rows[batch.cls_rows])
            if len(sets) > 1:
                weights = weights_of(layer.cross_set.attention, sets, context.subject_rotation, len(sets) - 1)
                back = np.minimum(np.arange(len(sets))[::-1], FARTHEST)
                collect(sets_back, number, example, back, weights)
                days = seqsets.days_since_first[selection.sets]
                collect(
                    days_back, number, example, np.array([day_class(days[-1] - day) for day in days]), weights
                )
            hidden_states = layer(hidden_states, batch.cls_rows, context)
    return kinds, sets_back, days_back


DAY_EDGES = (7, 45, 90, 365)


def day_class(days: float) -> int:
    """Return the class of a set this many days before the last one, by DAY_EDGES; the world's are 30 days apart."""
    return {0: 0, 30: 2, 60: 3}[round(days)]


def collect(sums: dict, layer: int, example: int, classes: np.ndarray, weights: np.ndarray) -> None:
    own_share = weights[classes == 0].sum()
    for name in set(classes.tolist()):
        is_class = classes == name
        by_count = own_share if name == 0 else (1 - own_share) * is_class.sum() / (len(classes) - 1)
        excess = np.array([weights[is_class].sum(), by_count]) - is_class.mean()
        sums.setdefault((name, layer, example), []).append(excess)


@pytest.mark.parametrize("row_budget", [1, 100, 10_000])
def test_attention_profiles_equal_the_formula_for_each_patient(model, seqsets, row_budget, monkeypatch):
    monkeypatch.setattr(attention_shares, "SETS_FOR_DAYS", 2)
    monkeypatch.setattr(attention_shares, "DAY_EDGES", DAY_EDGES)
    profiles = attention_profiles(model, seqsets, everyone(seqsets), row_budget=row_budget)

    for profile, expected in zip(profiles, naive(model, seqsets), strict=True):
        assert len({name for name, _, _ in expected}) >= 2
        sums = np.stack([profile.observed, profile.by_count])
        for (name, layer, example), excesses in expected.items():
            assert profile.query_counts[example, name] == len(excesses)
            assert sums[:, example, layer, name] == pytest.approx(np.sum(excesses, axis=0), abs=1e-4)
        assert profile.query_counts.sum() == sum(map(len, expected.values())) / len(model.layers)
        assert np.abs(profile.observed).max() > 0.02
        assert np.abs(profile.observed - profile.by_count)[..., 1:].max() > 0.02
        assert (profile.observed[..., 0] == profile.by_count[..., 0]).all()


def test_attention_by_days_is_of_patients_with_four_sets(model, seqsets):
    *_, days = attention_profiles(model, seqsets, everyone(seqsets), row_budget=100)
    assert np.diff(seqsets.subject_offsets).max() == 3
    assert days.query_counts.sum() == 0


@pytest.mark.parametrize(
    ("days", "name"),
    [(6.9, "< 7"), (7, "7 to 29"), (29.9, "7 to 29"), (30, "30 to 89"), (364, "90 to 364"), (365, "≥ 365")],
)
def test_an_edge_of_days_belongs_to_the_farther_class(days, name):
    batch = SimpleNamespace(subject_offsets=torch.tensor([0, 2]), sets=2)
    sets = attention_shares._Sets(batch, torch.tensor([0]), torch.tensor([0.0, days]).double())
    first, last = sets.classes()[:, len(SETS_BACK) :].argmax(dim=1).tolist()
    assert (DAYS_BACK[first], DAYS_BACK[last]) == (name, "0")


def test_attention_profiles_sum_examples_of_a_patient(model, seqsets):
    twice = everyone(seqsets).take(np.array([3, 4, 3]))
    once = everyone(seqsets).take(np.array([3, 4]))
    (double, *_), (single, *_) = (
        attention_profiles(model, seqsets, selection, row_budget=100) for selection in (twice, once)
    )

    assert double.query_counts.shape == single.query_counts.shape
    np.testing.assert_allclose(double.observed, single.observed * [[[2]], [[1]]], atol=1e-6)


def test_attention_profiles_of_even_attention_are_0(model, seqsets):
    for profile in attention_profiles(
        even_attention_model(model), seqsets, everyone(seqsets), row_budget=100
    ):
        assert np.abs(profile.observed).max() < 1e-5
        assert np.abs(profile.by_count).max() < 1e-5


def even_attention_model(model: NestModel) -> NestModel:
    even = NestModel(model.config)
    for layer in even.layers:
        for block in (layer.set_wise, layer.cross_set):
            block.attention.query_key_value.weight.data.zero_()
    return even


def beside_nulls(model: NestModel, seqsets: SeqSets, selection=None) -> dict:
    return attention_beside_nulls(model, seqsets, selection or everyone(seqsets), row_budget=1_000)


def test_an_untrained_model_does_not_differ_from_the_untrained_null(model, seqsets):
    results = beside_nulls(untrained_like(model, seed=1), seqsets)  # one of the draws

    means = [entry["less_untrained"] for part in results.values() for entry in part["means"].values()]
    assert len(means) > 3
    for mean in [*means, results["sets_back"]["distance"]["less_untrained"]]:
        assert mean["low"] <= 0 <= mean["high"]


def test_a_nearsighted_model_is_nearer_than_both_nulls(seqsets):
    results = beside_nulls(nearsighted_model(), seqsets)["sets_back"]

    for null in NULLS:
        assert results["distance"][f"less_{null}"]["high"] < 0
    assert results["means"]["1"]["less_by_count"]["low"] > 0
    assert "nearer than counting alone +" in sets_sentence(results)
    assert "nearer than an untrained model +" in sets_sentence(results)


def nearsighted_model() -> NestModel:
    """Return a model with equal queries and keys, so that only the rotation by the sets' positions matters."""
    config = ModelConfig.preset("tiny", 40, d_model=16, heads=2, d_ff=16, layers=2, cse_position="index")
    model = untrained_like(NestModel(config), seed=0)
    with torch.no_grad():
        model.embedding.weight[:] = 0
        model.embedding.weight[:, 0] = 1
        for layer in model.layers:
            layer.set_wise.attention.query_key_value.weight.zero_()
            weight = layer.cross_set.attention.query_key_value.weight
            weight.zero_()
            weight[:32, 0] = 1.5  # queries and keys are equal for all sets, so only the rotation differs
            for block in (layer.set_wise, layer.cross_set):
                block.attention.out.weight.zero_()
                block.feed_forward.out.weight.zero_()
    return model


def test_even_attention_does_not_differ_from_the_counting_null(model, seqsets):
    results = beside_nulls(even_attention_model(model), seqsets)

    for part in results.values():
        for mean in part["means"].values():
            assert abs(mean["less_by_count"]["value"]) < 1e-5
    sentence = kinds_sentence(results["kinds"])
    assert (
        "pays neither significantly more than in both nor significantly less than in both to Drugs"
        in sentence
    )
    assert "Laboratory values" in sentence


def test_layer_shares_and_means_are_over_all_patients(model, seqsets):
    results, profiles = (
        beside_nulls(model, seqsets),
        attention_profiles(model, seqsets, everyone(seqsets), row_budget=1_000),
    )

    for part, profile, names in zip(results.values(), profiles, (CLASSES, SETS_BACK, DAYS_BACK), strict=True):
        for name, mean in part["means"].items():
            k = names.index(name)
            expected = profile.observed[:, :, k].sum(axis=0) / profile.query_counts[:, k].sum()
            assert part["layers"]["observed"][name] == pytest.approx(expected, abs=1e-6)
            assert mean["observed"]["value"] == pytest.approx(expected.mean(), abs=1e-6)
            assert mean["observed"]["low"] < mean["observed"]["value"] < mean["observed"]["high"]
    back = profiles[1]
    far = (back.observed @ np.arange(FARTHEST + 1)).sum(axis=0).mean() / back.query_counts[:, 0].sum()
    assert results["sets_back"]["distance"]["observed"]["value"] == pytest.approx(far, abs=1e-6)


def test_untrained_like_keeps_the_global_random_state(model):
    torch.manual_seed(5)
    rng_state = torch.random.get_rng_state()
    first, repeat, second = (untrained_like(model, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), rng_state)
    assert torch.equal(first.embedding.weight, repeat.embedding.weight)
    assert not torch.equal(first.embedding.weight, second.embedding.weight)
    assert first.config == model.config


def test_attention_of_fewer_than_eleven_patients_is_suppressed(model, seqsets):
    multiple = np.flatnonzero(np.diff(seqsets.subject_offsets) > 1)
    ten, eleven = (everyone(seqsets).take(multiple[np.arange(50) % count]) for count in (10, 11))
    assert len(ten) == len(eleven) == 50, "rows do not make patients"

    results = beside_nulls(model, seqsets, ten)
    assert results["kinds"]["means"] == results["sets_back"]["means"] == {}
    assert results["sets_back"]["distance"] is None
    assert set(beside_nulls(model, seqsets, eleven)["sets_back"]["means"]) >= {"0", "1"}

"""The sums of weights against weights worked out one by one, and what may be said of them beside nulls."""

import numpy as np
import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import pack
from nest_model.data.selection import whole_subjects
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.attention_nulls import NULLS, attention_beside_nulls, untrained_like
from nest_model.model.attention_shares import CLASSES, FARTHEST, SETS_BACK, attention_profiles
from nest_model.model.encoder import NestModel
from nest_model.model.layers import rotate
from nest_model.report.attention import kinds_sentence, sets_sentence
from schemas.tables.events import KINDS
from tests.support.factories.world import changed_world, make_world


@pytest.fixture(scope="module")
def seqsets(tmp_path_factory) -> SeqSets:
    root = tmp_path_factory.mktemp("world")
    return SeqSets.read(
        changed_world(make_world(root / "one", subjects=60), root / "two", of_two_kinds).seqset
    )


def of_two_kinds(row: dict) -> None:
    row["kinds"] = [KINDS.index("MED" if token % 3 else "LAB") for token in row["tokens"]]


@pytest.fixture(scope="module")
def model() -> NestModel:
    torch.manual_seed(0)
    config = ModelConfig.preset("tiny", 40, d_model=16, heads=2, d_ff=16, layers=2)
    model = NestModel(config)
    for layer in model.layers:  # far from looking everywhere alike
        for block in (layer.set_wise, layer.cross_set):
            block.attention.query_key_value.weight.data *= 4
    return model


def everyone(seqsets: SeqSets):
    return whole_subjects(seqsets, np.arange(seqsets.subjects))


def weights_of(attention, rows, turned, asking: int) -> np.ndarray:
    """Return the weights [rows] of one row of a piece, the mean over heads, by the formula."""
    query, key, _ = attention.query_key_value(rows).unflatten(-1, (3, attention.heads, -1)).unbind(1)
    if turned is not None:
        query, key = rotate(query, turned), rotate(key, turned)
    scores = torch.einsum("hd,rhd->hr", query[asking], key) / query.shape[-1] ** 0.5
    return scores.softmax(dim=1).mean(dim=0).numpy()


@torch.no_grad()
def naive(model: NestModel, seqsets: SeqSets) -> tuple[dict, dict]:
    """Return, as `attention_profiles` does, (class, layer, patient) → [observed, by counting] of each query."""
    kinds, sets_back = {}, {}
    for example in range(seqsets.subjects):
        chosen = everyone(seqsets).take(np.array([example]))
        batch = pack(seqsets, chosen, model.config)
        attending, hidden = model.layer_context(batch), model.embed(batch)
        events = iter(chosen.values(seqsets.kinds).tolist())
        is_cls = np.isin(np.arange(len(batch.tokens)), batch.cls_rows.numpy())
        classes = np.array([0 if cls else 1 + next(events) for cls in is_cls])
        for number, layer in enumerate(model.layers):
            normed = layer.set_wise.attention_norm(hidden)
            turned = attending.set_rotation
            for first, end in zip(batch.set_offsets[:-1], batch.set_offsets[1:], strict=True):
                part = slice(int(first), int(end))
                of_part = None if turned is None else turned[part]
                weights = weights_of(layer.set_wise.attention, normed[part], of_part, 0)
                collect(kinds, number, example, classes[part], weights)
            after = layer.set_wise(hidden, attending.set_plan, attending.set_rotation)
            sets = layer.cross_set.attention_norm(after[batch.cls_rows])
            if len(sets) > 1:
                weights = weights_of(
                    layer.cross_set.attention, sets, attending.subject_rotation, len(sets) - 1
                )
                back = np.minimum(np.arange(len(sets))[::-1], FARTHEST)
                collect(sets_back, number, example, back, weights)
            hidden = layer(hidden, batch.cls_rows, attending)
    return kinds, sets_back


def collect(found: dict, layer: int, example: int, classes: np.ndarray, weights: np.ndarray) -> None:
    own = weights[classes == 0].sum()
    for name in set(classes.tolist()):
        mine = classes == name
        by_count = own if name == 0 else (1 - own) * mine.sum() / (len(classes) - 1)
        beyond = np.array([weights[mine].sum(), by_count]) - mine.mean()
        found.setdefault((name, layer, example), []).append(beyond)


@pytest.mark.parametrize("row_budget", [1, 100, 10_000])
def test_sums_of_each_patient_are_what_the_formula_gives_row_by_row(model, seqsets, row_budget):
    profiles = attention_profiles(model, seqsets, everyone(seqsets), row_budget=row_budget)

    for profile, expected in zip(profiles, naive(model, seqsets), strict=True):
        assert len({name for name, _, _ in expected}) >= 2
        sums = np.stack([profile.observed, profile.by_count])
        for (name, layer, example), beyond in expected.items():
            assert profile.query_counts[example, name] == len(beyond)
            assert sums[:, example, layer, name] == pytest.approx(np.sum(beyond, axis=0), abs=1e-4)
        assert profile.query_counts.sum() == sum(map(len, expected.values())) / len(model.layers)
        assert np.abs(profile.observed).max() > 0.02
        assert np.abs(profile.observed - profile.by_count)[..., 1:].max() > 0.02
        assert (profile.observed[..., 0] == profile.by_count[..., 0]).all()


def test_the_sets_of_one_patient_s_examples_are_added_up_to_one(model, seqsets):
    twice = everyone(seqsets).take(np.array([3, 4, 3]))
    once = everyone(seqsets).take(np.array([3, 4]))
    (double, _), (single, _) = (
        attention_profiles(model, seqsets, some, row_budget=100) for some in (twice, once)
    )

    assert double.query_counts.shape == single.query_counts.shape
    np.testing.assert_allclose(double.observed, single.observed * [[[2]], [[1]]], atol=1e-6)


def test_a_model_that_looks_everywhere_alike_is_beyond_nothing(model, seqsets):
    for profile in attention_profiles(even_like(model), seqsets, everyone(seqsets), row_budget=100):
        assert np.abs(profile.observed).max() < 1e-5
        assert np.abs(profile.by_count).max() < 1e-5


def even_like(model: NestModel) -> NestModel:
    even = NestModel(model.config)
    for layer in even.layers:
        for block in (layer.set_wise, layer.cross_set):
            block.attention.query_key_value.weight.data.zero_()
    return even


def beside_nulls(model: NestModel, seqsets: SeqSets, selection=None) -> dict:
    return attention_beside_nulls(model, seqsets, selection or everyone(seqsets), row_budget=1_000)


def test_an_untrained_model_is_surely_neither_above_nor_below_its_null(model, seqsets):
    found = beside_nulls(untrained_like(model, seed=1), seqsets)  # one of the draws

    means = [one["less_untrained"] for part in found.values() for one in part["means"].values()]
    assert len(means) > 3
    for mean in [*means, found["sets_back"]["distance"]["less_untrained"]]:
        assert mean["low"] <= 0 <= mean["high"]


def test_a_model_that_prefers_what_is_near_is_surely_nearer_than_both_nulls(seqsets):
    found = beside_nulls(nearsighted(), seqsets)["sets_back"]

    for null in NULLS:
        assert found["distance"][f"less_{null}"]["high"] < 0
    assert found["means"]["1"]["less_by_count"]["low"] > 0
    assert "nearer than counting alone +" in sets_sentence(found)
    assert "nearer than an untrained model +" in sets_sentence(found)


def nearsighted() -> NestModel:
    """Return a model whose queries and keys are all the same, so that the turn by the sets' places alone tells."""
    config = ModelConfig.preset("tiny", 40, d_model=16, heads=2, d_ff=16, layers=2, cse_position="index")
    model = untrained_like(NestModel(config), seed=0)
    with torch.no_grad():
        model.embedding.weight[:] = 0
        model.embedding.weight[:, 0] = 1
        for layer in model.layers:
            layer.set_wise.attention.query_key_value.weight.zero_()
            weight = layer.cross_set.attention.query_key_value.weight
            weight.zero_()
            weight[:32, 0] = (
                1.5  # of queries and keys: the same of each set, so that the turn alone tells them apart
            )
            for block in (layer.set_wise, layer.cross_set):
                block.attention.out.weight.zero_()
                block.feed_forward.out.weight.zero_()
    return model


def test_a_model_that_looks_everywhere_alike_but_at_itself_is_what_counting_alone_gives(model, seqsets):
    found = beside_nulls(even_like(model), seqsets)

    for part in found.values():
        for one in part["means"].values():
            assert abs(one["less_by_count"]["value"]) < 1e-5
    sentence = kinds_sentence(found["kinds"])
    assert "pays not significantly more or less to MED" in sentence
    assert "LAB" in sentence


def test_layers_and_means_are_of_the_sums_of_all_patients(model, seqsets):
    found, profiles = (
        beside_nulls(model, seqsets),
        attention_profiles(model, seqsets, everyone(seqsets), row_budget=1_000),
    )

    for part, profile, names in zip(found.values(), profiles, (CLASSES, SETS_BACK), strict=True):
        for name, mean in part["means"].items():
            k = names.index(name)
            expected = profile.observed[:, :, k].sum(axis=0) / profile.query_counts[:, k].sum()
            assert part["layers"]["observed"][name] == pytest.approx(expected, abs=1e-6)
            assert mean["observed"]["value"] == pytest.approx(expected.mean(), abs=1e-6)
            assert mean["observed"]["low"] < mean["observed"]["value"] < mean["observed"]["high"]
    back = profiles[1]
    far = (back.observed @ np.arange(FARTHEST + 1)).sum(axis=0).mean() / back.query_counts[:, 0].sum()
    assert found["sets_back"]["distance"]["observed"]["value"] == pytest.approx(far, abs=1e-6)


def test_untrained_weights_are_drawn_without_touching_torch_s_generator(model):
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first, again, other = (untrained_like(model, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(first.embedding.weight, again.embedding.weight)
    assert not torch.equal(first.embedding.weight, other.embedding.weight)
    assert first.config == model.config


def test_what_fewer_than_eleven_patients_have_is_not_told(model, seqsets):
    multiple = np.flatnonzero(np.diff(seqsets.subject_offsets) > 1)
    few, enough = (everyone(seqsets).take(multiple[np.arange(50) % count]) for count in (10, 11))
    assert len(few) == len(enough) == 50, "rows do not make patients"

    found = beside_nulls(model, seqsets, few)
    assert found["kinds"]["means"] == found["sets_back"]["means"] == {}
    assert found["sets_back"]["distance"] is None
    assert set(beside_nulls(model, seqsets, enough)["sets_back"]["means"]) >= {"0", "1"}

"""The sums of weights against weights worked out one by one."""

import numpy as np
import pytest
import torch

from nest_model.attended import CLASSES, FARTHEST, attended
from nest_model.batches import pack
from nest_model.config import ModelConfig
from nest_model.data import SeqSets
from nest_model.layers import rotate
from nest_model.model import NestModel
from nest_model.selection import whole_subjects
from tests.nest_model.tiny_world import make_world


@pytest.fixture(scope="module")
def seqsets(tmp_path_factory) -> SeqSets:
    return SeqSets.read(make_world(tmp_path_factory.mktemp("world"), subjects=60).seqset)


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
def naive(model: NestModel, seqsets: SeqSets) -> dict[str, dict[str, list[list[float]]]]:
    """Return, as `attended` does but example by example, what is beyond an even share: name → layer → values."""
    found = {"kinds": {}, "sets_back": {}}
    for example in range(seqsets.subjects):
        chosen = everyone(seqsets).take(np.array([example]))
        batch = pack(seqsets, chosen, model.config)
        attending, hidden = model.attending(batch), model.embed(batch)
        events = iter(chosen.values(seqsets.kinds).tolist())
        is_cls = np.isin(np.arange(len(batch.tokens)), batch.cls_rows.numpy())
        names = np.array(["[CLS]" if cls else CLASSES[1 + next(events)] for cls in is_cls])
        for number, layer in enumerate(model.layers):
            normed = layer.set_wise.attention_norm(hidden)
            turned = attending.set_rotation
            for first, end in zip(batch.set_offsets[:-1], batch.set_offsets[1:], strict=True):
                part = slice(int(first), int(end))
                of_part = None if turned is None else turned[part]
                weights = weights_of(layer.set_wise.attention, normed[part], of_part, 0)
                collect(found["kinds"], number, names[part], weights)
            after = layer.set_wise(hidden, attending.set_plan, attending.set_rotation)
            sets = layer.cross_set.attention_norm(after[batch.cls_rows])
            if len(sets) > 1:
                weights = weights_of(
                    layer.cross_set.attention, sets, attending.subject_rotation, len(sets) - 1
                )
                back = np.minimum(np.arange(len(sets))[::-1], FARTHEST).astype(str)
                collect(found["sets_back"], number, back, weights)
            hidden = layer(hidden, batch.cls_rows, attending)
    return found


def collect(found: dict, layer: int, names: np.ndarray, weights: np.ndarray) -> None:
    for name in set(names.tolist()):
        beyond = weights[names == name].sum() - (names == name).mean()
        found.setdefault(name, {}).setdefault(layer, []).append(beyond)


@pytest.mark.parametrize("row_budget", [1, 100, 10_000])
def test_sums_over_a_batch_are_what_the_formula_gives_row_by_row(model, seqsets, row_budget):
    found, expected = (
        attended(model, seqsets, everyone(seqsets), row_budget=row_budget),
        naive(model, seqsets),
    )

    for what in ("kinds", "sets_back"):
        assert len(found[what]) >= 2
        for name, values in found[what].items():
            assert values == pytest.approx(
                [np.mean(expected[what][name][layer]) for layer in range(2)], abs=1e-5
            )
        assert max(abs(value) for values in found[what].values() for value in values) > 0.02


def test_a_model_that_looks_everywhere_alike_is_beyond_nothing(model, seqsets):
    even = NestModel(model.config)
    for layer in even.layers:
        for block in (layer.set_wise, layer.cross_set):
            block.attention.query_key_value.weight.data.zero_()

    for classes in attended(even, seqsets, everyone(seqsets), row_budget=100).values():
        assert all(abs(value) < 1e-6 for values in classes.values() for value in values)


def test_what_fewer_than_eleven_have_is_not_told(model, seqsets):
    few = everyone(seqsets).take(np.arange(10))

    assert attended(model, seqsets, few, row_budget=100)["sets_back"] == {}

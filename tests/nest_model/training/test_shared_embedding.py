import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from nest_model.config import ModelConfig
from nest_model.data.code_groups import CodeGroups
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.training.losses import pretraining_loss
from nest_model.training.masking import mask_batch
from nest_model.training.shared_embedding import OWN_SHARE, fold_embedding, share_embedding
from tests.support import reference_model
from tests.support.factories.ragged import MAX_SET_ROWS, ragged_batch

TOKENS = pa.table(
    {
        "token": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "DX:I2510", "DX:I2511", "MED:C03CA01"]
        + [f"LAB:50912_Q{decile}" for decile in range(1, 11)],
        "kind": ["SPECIAL"] * 5 + ["DX"] * 2 + ["MED"] + ["LAB"] * 10,
        "code": [None] * 5 + ["I2510", "I2511", "C03CA01"] + ["50912"] * 10,
    }
)
CONFIG = ModelConfig(
    len(TOKENS),
    d_model=8,
    heads=2,
    d_ff=12,
    layers=2,
    max_set_rows=MAX_SET_ROWS,
    own_set_weight=1.0,
    tied_set_head=True,
)


def _dense(groups: CodeGroups) -> np.ndarray:
    dense = np.zeros((len(TOKENS), len(groups.names)))
    dense[groups.token, groups.group] = groups.factor
    return dense


def _model(seed: int = 0) -> NestModel:
    torch.manual_seed(seed)
    return NestModel(CONFIG).double()


def test_code_groups_hold_codes_and_place_deciles_on_a_line():
    groups = CodeGroups.of(TOKENS)
    dense, place = _dense(groups), {name: at for at, name in enumerate(groups.names)}

    assert not dense[:5].any()
    assert dense[5, place["category I25"]] == dense[6, place["category I25"]] == 1
    assert dense[7, place["ATC C03C"]] == 1
    assert dense[7].sum() == 5
    assert [int(dense[:, place[f"kind {kind}"]].sum()) for kind in ("DX", "MED", "LAB")] == [2, 1, 10]
    slope = dense[8:, place["slope LAB:50912"]]
    assert np.allclose(np.diff(slope), slope[1] - slope[0])
    assert slope.sum() == pytest.approx(0, abs=1e-5)
    assert (dense[8:, place["item LAB:50912"]] == 1).all()
    assert (dense[8:, [place[f"decile {decile}"] for decile in range(1, 11)]] == np.eye(10)).all()


def test_a_shared_embedding_sums_and_trains_both_parts():
    model = _model()
    own_embedding = model.embedding.weight.detach().clone()
    groups = CodeGroups.of(TOKENS)

    share_embedding(model.embedding, groups)
    model.double()
    group_embeddings = model.embedding.parametrizations.weight[0].groups

    expected = OWN_SHARE * own_embedding + torch.from_numpy(_dense(groups)) @ group_embeddings
    torch.testing.assert_close(model.embedding.weight, expected, rtol=0, atol=1e-12)
    model.embedding.weight[8].sum().backward()
    has_gradient = group_embeddings.grad.abs().sum(1).numpy() > 0
    assert (has_gradient == (_dense(groups)[8] != 0)).all()


def test_a_folded_model_equals_the_shared_model_and_the_reference_with_gradients():
    model, batch = _model(), ragged_batch([[3, 0, 8], [5], [1, 1]])
    batch.tokens[batch.tokens >= len(TOKENS)] = 6
    share_embedding(model.embedding, CodeGroups.of(TOKENS))
    model.double()
    model.embedding.parametrizations.weight[0].groups.data.normal_()
    weights = {name: weight.detach().clone() for name, weight in model.state_dict().items()}

    plain_weights = fold_embedding(model.embedding, weights, "embedding")
    plain = _model(1)
    plain.load_state_dict(plain_weights)

    masked_batch = mask_batch(batch, torch.Generator().manual_seed(0), CONFIG)
    with parametrize.cached():
        shared_losses = pretraining_loss(model, masked_batch)
    losses = pretraining_loss(plain, masked_batch)
    table = plain_weights["embedding.weight"].detach().clone().requires_grad_()
    hidden_states, mlm, msm, own_sets = reference_model.losses(
        plain_weights | {"embedding.weight": table}, CONFIG, batch, masked_batch
    )
    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(plain(masked_batch.batch), hidden_states, **close)
    torch.testing.assert_close(model(masked_batch.batch), hidden_states, **close)
    for actual in (losses, shared_losses):
        torch.testing.assert_close(
            torch.stack([actual.mlm, actual.msm, actual.own]), torch.stack([mlm, msm, own_sets]), **close
        )
    (table_gradient,) = torch.autograd.grad(mlm + msm + own_sets, table)
    shared_losses.total.backward()
    both_parts = model.embedding.parametrizations.weight
    torch.testing.assert_close(both_parts.original.grad, table_gradient, **close)
    group_gradient = torch.from_numpy(_dense(CodeGroups.of(TOKENS))).T @ table_gradient
    torch.testing.assert_close(both_parts[0].groups.grad, group_gradient, **close)


def test_a_vocabulary_without_groups_shares_nothing():
    model = _model()
    items = pa.table({"token": ["ITEM:1"], "kind": ["ITEM"], "code": ["1"]})

    share_embedding(model.embedding, CodeGroups.of(items))

    weights = dict(model.state_dict())
    assert type(model.embedding) is nn.Embedding
    assert fold_embedding(model.embedding, weights, "embedding") is weights

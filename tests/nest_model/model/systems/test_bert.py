"""BERT on packed rows against a plain padded encoder in float64."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nest_model.config import ModelConfig
from nest_model.model.systems.bert.encoder import Bert
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.training.masking import mask_batch
from nest_model.training.objectives.mlm import MaskedTokens
from tests.support import reference_model
from tests.support.factories.ragged import MAX_SET_ROWS, VOCAB_SIZE, ragged_batch, seeded, subjects
from tests.support.gradients import assert_near, gradients

CONFIG = ModelConfig.preset(
    "tiny", VOCAB_SIZE, system="bert", d_model=8, heads=2, d_ff=12, layers=2, max_set_rows=MAX_SET_ROWS,
    mlm_weight=0.5, token_mask_share=0.4,
)  # fmt: skip


@given(subjects, st.integers(0, 1000))
def test_packed_bert_equals_the_padded_reference_with_gradients(sizes, seed):
    batch = ragged_batch(sizes, seed)
    masked_batch = mask_batch(batch, torch.Generator().manual_seed(seed), CONFIG)
    model, objective = seeded(Bert, CONFIG, seed), MaskedTokens(CONFIG)
    plain = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}

    losses = objective.losses(model, masked_batch, objective.counts(masked_batch))
    losses["loss"].backward()
    hidden_states = reference_model.encode_flat(plain, CONFIG, masked_batch.batch)
    shares = (hidden_states[masked_batch.mlm_rows] @ plain["embedding.weight"].T).log_softmax(1)
    targets = shares[torch.arange(len(shares)), masked_batch.mlm_targets]
    mlm = -targets.sum() / max(len(targets), 1)
    (0.5 * mlm).backward()

    close = {"rtol": 0, "atol": 1e-12}
    read = model.read(masked_batch.batch, torch.arange(len(masked_batch.batch.tokens)))
    torch.testing.assert_close(read.hidden_states[read.place], hidden_states, **close)
    torch.testing.assert_close(losses["mlm"], mlm.detach(), **close)
    assert_near(gradients(model.named_parameters()), gradients(plain.items()), 1e-12)


@pytest.mark.parametrize(("layers", "parameters"), [(6, 100_603_392), (3, 58_126_848)])
def test_the_papers_sizes_have_the_parameters_of_nest_without_its_set_head(layers, parameters):
    config = ModelConfig.preset("paper", 20_377, system="bert", layers=layers)
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in Bert(config).parameters())
    assert Bert.num_parameters(config) == num_weights == parameters
    with torch.device("meta"):
        nest = NestModel(config)
    assert num_weights == sum(
        weight.numel() for name, weight in nest.named_parameters() if not name.startswith("set_head.")
    )

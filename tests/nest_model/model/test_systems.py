"""Every system's encoder keeps the promises that training, freezing and checkpoints build on."""

import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.model.encoder import Encoder
from nest_model.model.systems import encoder_class, names
from nest_model.options import BLOCKS
from nest_model.training.freezing import freeze_blocks
from tests.support.factories.ragged import MAX_SET_ROWS, VOCAB_SIZE, ragged_batch


@pytest.fixture(params=names())
def encoder(request) -> Encoder:
    torch.manual_seed(0)
    config = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=2, max_set_rows=MAX_SET_ROWS)
    encoder = encoder_class(request.param)(config)
    assert encoder.system == request.param
    return encoder


@pytest.mark.parametrize("readout", ["cls", "history"])
def test_each_patient_has_as_many_vectors_as_announced(encoder, readout):
    encoder.config = ModelConfig(**vars(encoder.config) | {"readout": readout})
    vectors = encoder.patients(ragged_batch([[3], [0, 2, 5]]))
    assert vectors.shape == (2, encoder.vectors_per_patient, 16)


def test_freezing_leaves_no_weight_of_a_block_and_all_others(encoder):
    blocks = encoder.parts()
    assert set(blocks) == set(BLOCKS)
    weights = [{id(weight) for part in parts for weight in part.parameters()} for parts in blocks.values()]
    assert len(set.union(*weights)) == sum(map(len, weights)), "no weight is in two blocks"
    freeze_blocks(encoder, BLOCKS)
    trained = {name for name, weight in encoder.named_parameters() if weight.requires_grad}
    assert {name for name in trained if not name.startswith(encoder.unused_in_tasks)} == {"norm.weight"}


def test_units_are_distinct_parts_of_the_encoder(encoder):
    weights = [id(weight) for unit in encoder.units() for weight in unit.parameters()]
    assert len(weights) == len(set(weights)) > 0
    assert set(weights) < {id(weight) for weight in encoder.parameters()}

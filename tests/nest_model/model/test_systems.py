"""Every system's encoder keeps the promises that training, freezing and checkpoints build on."""

import pytest
import torch

from nest_model.config import SYSTEMS, ModelConfig
from nest_model.model.encoder import Encoder
from nest_model.model.systems import encoder_class, names
from nest_model.options import BLOCKS
from nest_model.training.freezing import freeze_blocks
from schemas.errors import NestError
from tests.support.factories.ragged import MAX_SET_ROWS, VOCAB_SIZE, ragged_batch


@pytest.fixture(params=names())
def encoder(request) -> Encoder:
    torch.manual_seed(0)
    config = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=2, max_set_rows=MAX_SET_ROWS)
    encoder = encoder_class(request.param)(config)
    assert encoder.system == request.param
    return encoder


def test_people_can_read_of_every_system():
    assert names() == sorted(SYSTEMS)


def test_freezing_a_block_that_a_system_does_not_have_is_refused():
    encoder = encoder_class("bert")(ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=1))
    with pytest.raises(NestError, match="freeze swe: bert has no such blocks; it has embedding"):
        freeze_blocks(encoder, ["swe"])


def test_neighbours_in_a_batch_change_no_vector(encoder):
    batch = ragged_batch([[3], [0, 2, 5], [1, 1]])
    alone = [encoder.patients(batch.slice_subjects(place, place + 1)) for place in range(3)]
    torch.testing.assert_close(torch.cat(alone), encoder.patients(batch), rtol=0, atol=1e-5)


def test_the_announced_number_of_parameters_is_the_built_encoders(encoder):
    assert encoder.num_parameters(encoder.config) == sum(weight.numel() for weight in encoder.parameters())


@pytest.mark.parametrize("readout", ["cls", "history"])
def test_each_patient_has_as_many_vectors_as_announced(encoder, readout):
    encoder.config = ModelConfig(**vars(encoder.config) | {"readout": readout})
    vectors = encoder.patients(ragged_batch([[3], [0, 2, 5]]))
    assert vectors.shape == (2, encoder.vectors_per_patient, 16)


def test_freezing_leaves_out_the_weights_of_the_blocks_alone(encoder):
    blocks = encoder.parts()
    assert set(blocks) <= set(BLOCKS)
    weights = [{id(weight) for part in parts for weight in part.parameters()} for parts in blocks.values()]
    assert len(set.union(*weights)) == sum(map(len, weights)), "no weight is in two blocks"
    freeze_blocks(encoder, list(blocks))
    frozen = {id(weight) for weight in encoder.parameters() if not weight.requires_grad}
    assert frozen == set.union(*weights)


def test_units_are_distinct_parts_of_the_encoder(encoder):
    weights = [id(weight) for unit in encoder.units() for weight in unit.parameters()]
    assert len(weights) == len(set(weights)) > 0
    assert set(weights) < {id(weight) for weight in encoder.parameters()}

"""NEST as the paper asks it: each readout is the head it names, over products with a token."""

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from nest_model.config import ModelConfig
from nest_model.next_set.nest_backbone import NestBackbone
from nest_model.next_set.nest_readouts import NestReadout
from nest_model.next_set.questions import LearningData
from schemas.tables.vocab import UNK
from tests.support.factories.histories import baskets_of, histories_of
from tests.support.factories.ragged import VOCAB_SIZE, seeded_model

CONFIG = ModelConfig(VOCAB_SIZE, d_model=8, heads=2, d_ff=12, layers=2, max_set_rows=9, set_position=None)
SHOP = {1: [[1, 2], [3]], 2: [[4], [1, 9]], 3: [[2]]}
TOKENS = np.array([5, 6, 7, 8, UNK])  # of 1, 2, 3, 4 and 9


@pytest.mark.parametrize("readout", ["mask", "head", "cls"])
def test_products_stand_by_the_logits_of_their_tokens(readout: str):
    baskets = baskets_of(SHOP)
    model = seeded_model(CONFIG, dtype=torch.float32)
    backbone = NestBackbone(model, baskets.product_id, TOKENS, Fabric(accelerator="cpu", devices=1))
    recommender = NestReadout.of(LearningData(baskets, baskets), backbone, readout)
    histories = histories_of(baskets)

    ranking = recommender.rank(histories, 10)

    states = backbone.query_states(histories)
    with torch.no_grad():
        logits = {
            "mask": states.mask @ model.embedding.weight.T,
            "head": model.msm_logits(states.cls),
            "cls": states.cls @ model.embedding.weight.T,
        }[readout]
    order = np.argsort(-logits[:, 5:9].numpy(), axis=1)
    assert ranking.product_id[:, :4].tolist() == baskets.product_id[order].tolist()
    assert (ranking.product_id[:, 4:] == -1).all()  # 9 has no token
    assert recommender.nameable.tolist() == [1, 2, 3, 4]

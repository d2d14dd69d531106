"""Set fine-tuning learns: eight users by heart, a backbone only where it may, and the same lists again."""

from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from nest_model.config import ModelConfig
from nest_model.model import checkpoint
from nest_model.next_set import set_finetune
from nest_model.next_set.questions import Histories, LearningData
from nest_model.next_set.set_forms import NestSetOptions, SetOptions
from nest_model.next_set.system import Tools
from nest_model.training.telemetry import NullTelemetry
from tests.support.factories.baskets import VOCAB_SIZE, write_item_vocab
from tests.support.factories.histories import baskets_of, no_test_users
from tests.support.factories.ragged import seeded_model

CONFIG = ModelConfig(
    vocab_size=VOCAB_SIZE, d_model=8, heads=2, d_ff=12, layers=2, max_set_rows=9, set_position=None
)
PRODUCTS = range(1001, 1021)
EIGHT = {user: [[1001 + user, 1009 + user], [1001 + user], [1002, 1018 - user, 1019]] for user in range(1, 9)}
FORMS = ["generic", "copy", "hybrid"]


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Tools:
    root = tmp_path_factory.mktemp("model")
    sha256 = write_item_vocab(root / "vocab.parquet")
    model = seeded_model(CONFIG, dtype=torch.float32)
    checkpoint.save(root / "model", model.state_dict(), checkpoint.ModelCard("nest", CONFIG, sha256, {}), "")
    fabric = Fabric(accelerator="cpu", devices=1)
    return Tools(NullTelemetry(), lambda: fabric, Path("unused"), root / "model", root / "vocab.parquet")


def learning_data() -> LearningData:
    return no_test_users(baskets_of(EIGHT, product_id=PRODUCTS))


def questions_by_heart() -> Histories:
    """Return the histories before the training users' last baskets."""
    training = learning_data().training
    label = training.basket_offsets[1:] - 1
    return Histories(training.first(training.lengths - 1), training.days[label])


def options_of(**changes) -> NestSetOptions:
    fields = {"epochs": 200, "head_rate": 1e-2, "dropout": 0.0, "label_positions": 1, "batch": 8}
    return NestSetOptions(**fields | changes)


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=() if form == "hybrid" else pytest.mark.long) for form in FORMS]
)
def test_eight_users_are_learnt_by_heart(form: str, tools: Tools):
    recommender = set_finetune.fit(form, learning_data(), None, options_of(backbone_rate=1e-2), 0, tools)
    lists = recommender.rank(questions_by_heart(), 3).product_id
    labels = [sorted(EIGHT[user][-1]) for user in EIGHT]
    assert [sorted(ids) for ids in lists.tolist()] == labels


def test_a_backbone_of_rate_0_stays_as_it_is(tools: Tools):
    frozen = set_finetune.fit("hybrid", learning_data(), None, options_of(epochs=3), 0, tools)
    trainable = set_finetune.fit(
        "hybrid", learning_data(), None, options_of(epochs=3, backbone_rate=1e-3), 0, tools
    )
    weights = [
        recommender.scorer.backbone.model.layers[0].set_wise.attention.out.weight
        for recommender in (frozen, trainable)
    ]
    before = seeded_model(CONFIG, dtype=torch.float32).layers[0].set_wise.attention.out.weight
    assert torch.equal(weights[0], before)
    assert not torch.equal(weights[1], before)


def test_a_seed_gives_the_same_lists_again_and_leaves_the_global_draws(tools: Tools):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    rankings = [
        set_finetune.fit(
            "hybrid", learning_data(), None, options_of(epochs=2, dropout=0.3), seed, tools
        ).rank(questions_by_heart(), 5)
        for seed in (1, 1, 2)
    ]
    assert torch.equal(torch.rand(1), expected)
    np.testing.assert_array_equal(rankings[0].scores, rankings[1].scores)
    assert not np.array_equal(rankings[0].scores, rankings[2].scores)


def test_features_alone_need_no_backbone(tools: Tools):
    bare = Tools(tools.telemetry, tools.fabric, tools.scratch)
    options = SetOptions(epochs=1, label_positions=1)
    ranking = set_finetune.fit("features", learning_data(), None, options, 0, bare).rank(
        questions_by_heart(), 5
    )
    assert np.isfinite(ranking.scores).all()


def test_users_of_one_basket_leave_nothing_to_learn_and_all_to_rank(tools: Tools):
    training = learning_data().training
    alone = no_test_users(training.first(np.ones(8, dtype=np.int64)))
    recommender = set_finetune.fit("hybrid", alone, None, options_of(), 0, tools)
    assert np.isfinite(recommender.rank(questions_by_heart(), 5).scores).all()

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nest_model.next_set import bert as bert_module
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.bert import BertBackbone, BertRecommender, fit_bert
from nest_model.next_set.bert_model import BertBatch, BertModel
from nest_model.next_set.bert_options import BertOptions
from nest_model.next_set.bert_rows import FIRST, ProductTokens, latest, rows_of
from nest_model.next_set.metrics import score_rankings
from nest_model.next_set.questions import LearningData, Questions
from nest_model.next_set.ranking import NO_PRODUCT
from nest_model.next_set.system import Tools, load_system
from nest_model.training.device import launch_fabric
from nest_model.training.stop import Stopped
from nest_model.training.telemetry import NullTelemetry
from schemas.errors import NestError
from tests.support.factories.histories import (
    FIRST_PRODUCT,
    histories_of,
    indexed_baskets,
    last_basket_questions,
    no_test_users,
)

SMALL = BertOptions(d_model=32, heads=2, d_ff=48, layers=1, min_count=1, epochs=1)
PRODUCTS = 30


class Recorder(NullTelemetry):
    """Keeps the metrics of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[dict] = []

    def evaluation(self, epoch: int, metrics: dict, *, step: int | None = None) -> None:
        self.epochs.append(metrics)


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Tools:
    fabric = launch_fabric("cpu", threads=1)
    return Tools(NullTelemetry(), lambda: fabric, tmp_path_factory.mktemp("scratch"))


def staples_world(users: int, seed: int = 0) -> Baskets:
    """Return users who buy their own three staples in each of four to six baskets, and one product at random."""
    rng = np.random.default_rng(seed)
    shop = []
    for _ in range(users):
        staples = rng.permutation(PRODUCTS)[:3]
        baskets = [set(staples) | {int(rng.integers(PRODUCTS))} for _ in range(rng.integers(4, 7))]
        shop.append([sorted(basket) for basket in baskets])
    return indexed_baskets(shop, PRODUCTS)


@pytest.fixture(scope="module")
def world() -> Baskets:
    return staples_world(40)


@pytest.fixture(scope="module")
def recommender(world, tools) -> BertRecommender:
    return fit_bert(no_test_users(world), None, SMALL, 1, tools)


def model_of(baskets: Baskets, options: BertOptions = SMALL) -> tuple[BertModel, ProductTokens]:
    tokens = ProductTokens.of(baskets, options.min_count)
    torch.manual_seed(0)
    model = BertModel(options, torch.full((len(tokens) - FIRST,), 1 / (len(tokens) - FIRST))).eval()
    return model, tokens


def query_logits(model: BertModel, tokens: ProductTokens, baskets: Baskets) -> torch.Tensor:
    batch = BertBatch.of(rows_of(baskets, tokens, with_query=True), torch.device("cpu"))
    with torch.no_grad():
        return model.logits(model.states(batch, batch.offsets[1:] - 1))


def test_packed_users_score_as_one_user_at_a_time(world):
    model, tokens = model_of(world)
    together = query_logits(model, tokens, world)
    alone = [query_logits(model, tokens, world.take(np.array([user]))) for user in range(len(world))]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=1e-5)


def test_the_order_inside_a_basket_changes_nothing(world):
    model, tokens = model_of(world)
    rng = np.random.default_rng(0)
    order = np.lexsort((rng.random(len(world.items)), world.basket_of_line))
    other_order = replace(world, items=world.items[order])
    assert (other_order.items != world.items).any()
    expected = query_logits(model, tokens, world)
    torch.testing.assert_close(query_logits(model, tokens, other_order), expected, rtol=0, atol=1e-5)


def test_the_order_of_baskets_matters(world):
    model, tokens = model_of(world)
    there, back = indexed_baskets([[[0], [1], [2]]], PRODUCTS), indexed_baskets([[[2], [1], [0]]], PRODUCTS)
    difference = query_logits(model, tokens, there) - query_logits(model, tokens, back)
    assert difference.abs().max() > 1e-3


def test_parameters_are_those_of_the_blocks_the_table_and_the_head():
    d, d_ff, blocks, products = 32, 48, 4, PRODUCTS
    options = SMALL.model_copy(update={"layers": 2})
    block = 4 * d * d + 3 * d * d_ff + 2 * d
    expected = blocks * block + (FIRST + products) * d + d + products
    shares = torch.full((products,), 1 / products)
    count = {
        tied: sum(
            w.numel() for w in BertModel(options.model_copy(update={"tied": tied}), shares).parameters()
        )
        for tied in (True, False)
    }
    assert count == {True: expected, False: expected + products * d}


def test_heads_that_do_not_divide_the_width_are_refused():
    with pytest.raises(NestError, match="3 heads"):
        BertModel(SMALL.model_copy(update={"heads": 3}), torch.ones(4) / 4)


def test_the_first_training_epoch_leaves_lists_of_distinct_products(recommender, world):
    ranking = recommender.rank(histories_of(world), PRODUCTS + 5)
    ranking.refuse_invalid("bert")
    assert (ranking.product_id[:, :PRODUCTS] != NO_PRODUCT).all()
    assert (ranking.product_id[:, PRODUCTS:] == NO_PRODUCT).all()
    assert (np.diff(ranking.scores[:, :PRODUCTS]) <= 0).all()


def test_blocks_and_micro_batches_change_no_score(recommender, world, monkeypatch):
    expected = recommender.rank(histories_of(world), 10)
    monkeypatch.setattr(bert_module, "ROWS_AT_ONCE", 40)
    monkeypatch.setattr(bert_module, "LOGITS_AT_ONCE", 7 * PRODUCTS)
    ranking = recommender.rank(histories_of(world), 10)
    np.testing.assert_allclose(ranking.scores, expected.scores, rtol=0, atol=1e-5)
    order = np.random.default_rng(0).permutation(len(world))
    other_ranking = recommender.rank(histories_of(world.take(order)), 10)
    np.testing.assert_allclose(other_ranking.scores, expected.scores[order], rtol=0, atol=1e-5)


def test_a_step_does_not_depend_on_its_micro_batches(world, tools, monkeypatch):
    tables = []
    for budget in (16_384, 60):
        monkeypatch.setattr(bert_module, "ROWS_AT_ONCE", budget)
        options = SMALL.model_copy(update={"dropout": 0.0})
        tables.append(fit_bert(no_test_users(world), None, options, 1, tools).model.embedding.weight)
    torch.testing.assert_close(*tables, rtol=0, atol=1e-4)


def test_the_same_seed_gives_the_same_lists_and_another_gives_others(recommender, world, tools):
    histories = histories_of(world)
    same, other = (fit_bert(no_test_users(world), None, SMALL, seed, tools) for seed in (1, 2))
    expected = recommender.rank(histories, 10)
    assert (same.rank(histories, 10).scores == expected.scores).all()
    assert (same.rank(histories, 10).product_id == expected.product_id).all()
    assert (other.rank(histories, 10).scores != expected.scores).any()


def relabelled(world: Baskets) -> Baskets:
    """Return the same users with another last basket."""
    is_last = world.baskets_since[world.basket_of_line] == 0
    items = np.where(is_last, (world.items + 1) % PRODUCTS, world.items).astype(np.int32)
    return replace(world, items=items)


def test_labels_of_training_users_reach_no_weight_unless_allowed(world, tools):
    for without_labels in (True, False):
        options = SMALL.model_copy(update={"without_labels": without_labels})
        before, after = (
            fit_bert(no_test_users(shop), None, options, 1, tools).model.embedding.weight
            for shop in (world, relabelled(world))
        )
        assert torch.equal(before, after) == without_labels


@pytest.mark.long
def test_a_planted_world_is_learnt(tools):
    world, questions = staples_world(400), last_basket_questions(staples_world(40, seed=1))
    options = SMALL.model_copy(update={"epochs": 25, "dropout": 0.0, "learning_rate": 5e-3})
    ranking = fit_bert(no_test_users(world), None, options, 1, tools).rank(questions.histories, 10)
    first = fit_bert(no_test_users(world), None, SMALL, 1, tools).rank(questions.histories, 10)
    after, before = (
        score_rankings(each, questions, 3).values["recall_of_repeats"].mean() for each in (ranking, first)
    )
    assert after > 0.7 > 0.4 > before


def test_without_validation_all_epochs_run_and_the_last_is_kept(world, tools):
    recorder = Recorder()
    options = SMALL.model_copy(update={"epochs": 3, "patience": 1})
    fit_bert(no_test_users(world), None, options, 1, replace(tools, telemetry=recorder))
    assert len(recorder.epochs) == 3
    assert "val_ndcg" not in recorder.epochs[0]


def test_the_epoch_with_the_best_validation_is_kept(world, tools):
    recorder = Recorder()
    questions = last_basket_questions(staples_world(20, seed=2))
    options = SMALL.model_copy(update={"epochs": 4, "patience": 2, "learning_rate": 5e-2})
    bert = fit_bert(no_test_users(world), questions, options, 1, replace(tools, telemetry=recorder))
    ndcg = score_rankings(bert.rank(questions.histories, 10), questions, 10).values["ndcg"].mean()
    assert ndcg == pytest.approx(max(epoch["val_ndcg"] for epoch in recorder.epochs))


def test_few_validation_users_show_no_metric(world, tools):
    recorder = Recorder()
    questions = last_basket_questions(staples_world(5, seed=2))
    fit_bert(no_test_users(world), questions, SMALL, 1, replace(tools, telemetry=recorder))
    assert not [name for name in recorder.epochs[0] if name.startswith("val")]


def test_a_product_too_rare_to_name_is_never_listed(tools):
    users = [[[0, 1], [0, 1], [0]] for _ in range(6)] + [[[0, 2], [0]]]
    shop = indexed_baskets(users, 4)  # product 3 is nowhere, 2 in one basket
    bert = fit_bert(no_test_users(shop), None, SMALL.model_copy(update={"min_count": 2}), 1, tools)
    assert bert.nameable.tolist() == [FIRST_PRODUCT, FIRST_PRODUCT + 1]
    unseen = indexed_baskets([[[3]], [[2, 3], [1]]], 4)
    ranking = bert.rank(histories_of(unseen), 4)
    assert {*ranking.product_id.ravel().tolist()} == {FIRST_PRODUCT, FIRST_PRODUCT + 1, NO_PRODUCT}


def test_a_hundred_baskets_one_basket_and_none_are_ranked(recommender):
    users = [[[n % PRODUCTS] for n in range(100)], [[4]], []]
    ranking = recommender.rank(histories_of(indexed_baskets(users, PRODUCTS)), 10)
    ranking.refuse_invalid("bert")
    assert (ranking.product_id != NO_PRODUCT).all()


def test_a_basket_beyond_the_limit_of_tokens_is_not_read(world, tools):
    options = SMALL.model_copy(update={"max_tokens": 8})
    bert = fit_bert(no_test_users(world), None, options, 1, tools)
    both = histories_of(world), histories_of(latest(world, 6))
    whole, cut = (bert.rank(histories, 10) for histories in both)
    assert (whole.scores == cut.scores).all()


def test_nothing_to_learn_from_is_refused(tools):
    one_each = indexed_baskets([[[0, 1]], [[1]]], 2)
    with pytest.raises(NestError, match="without_labels=false"):
        fit_bert(no_test_users(one_each), None, SMALL, 1, tools)
    options = SMALL.model_copy(update={"without_labels": False})
    assert len(fit_bert(no_test_users(one_each), None, options, 1, tools).nameable) == 2


def test_a_backbone_has_a_row_for_each_product_and_shares_that_of_the_rare(tools):
    shop = indexed_baskets([[[0, 1], [0, 1], [0]]] * 6 + [[[0, 2], [0]]], 4)
    options = SMALL.model_copy(update={"min_count": 2})
    table = BertBackbone.fit(no_test_users(shop), None, options, 1, tools).product_table
    assert table.shape == (4, 32)
    assert table.dtype == torch.float32
    assert not table.requires_grad
    assert torch.equal(table[2], table[3])
    assert not torch.equal(table[0], table[1])


@pytest.mark.parametrize("readout", ["cls", "mask"])
def test_user_vectors_come_from_the_history_alone(recommender, world, readout):
    backbone = BertBackbone(recommender, readout)
    vectors = backbone.user_vectors(histories_of(world))
    assert vectors.shape == (len(world), 32)
    alone = backbone.user_vectors(histories_of(world.take(np.array([3]))))
    torch.testing.assert_close(vectors[3:4], alone, rtol=0, atol=1e-5)
    shorter = backbone.user_vectors(histories_of(world.first(world.lengths - 1)))
    assert (shorter - vectors).abs().amax(dim=1).min() > 1e-4


def test_user_vectors_are_read_at_cls_or_at_the_query(recommender, world):
    cls, mask = (
        BertBackbone(recommender, readout).user_vectors(histories_of(world)) for readout in ("cls", "mask")
    )
    batch = BertBatch.of(rows_of(world, recommender.tokens, with_query=True), torch.device("cpu"))
    with torch.no_grad():
        states = recommender.model.states(batch, torch.arange(len(batch.tokens)))
    torch.testing.assert_close(cls, states[batch.offsets[:-1]], rtol=0, atol=1e-5)
    torch.testing.assert_close(mask, states[batch.offsets[1:] - 1], rtol=0, atol=1e-5)


def test_the_system_fits_with_its_defaults_and_reads_no_target(world, tools):
    system = load_system("bert")
    assert system.traits.has_random_start
    first_questions = last_basket_questions(staples_world(12, seed=3))
    other_targets = Questions(
        first_questions.histories, first_questions.truth_offsets, first_questions.truth[::-1].copy(), {}
    )
    fit = system(SMALL, tools).fit(LearningData(world, world), None, 1)
    lists = [fit.rank(questions.histories, 10) for questions in (first_questions, other_targets)]
    assert (lists[0].scores == lists[1].scores).all()


def test_nothing_is_left_in_scratch(recommender, tools):
    assert not list(Path(tools.scratch).rglob("*"))


def test_the_share_of_lines_beyond_the_limit_is_printed(world, tools, caplog):
    options = SMALL.model_copy(update={"max_tokens": 8})
    with caplog.at_level("INFO", "nest"):
        fit_bert(no_test_users(world), None, options, 1, tools)
    corpus = no_test_users(world).histories
    cut = 1 - len(latest(corpus, 6).items) / len(corpus.items)
    message = f"bert: the latest 8 tokens leave out {100 * cut:.1f}% of the lines of the training users"
    assert caplog.messages.count(message) == 1


def test_a_stopped_fit_says_that_it_begins_again(world, tools, monkeypatch):
    def stop(*arguments, **options):
        raise Stopped("stopped")

    monkeypatch.setattr(bert_module.BertTask, "losses", stop)
    with pytest.raises(Stopped, match="begin again"):
        fit_bert(no_test_users(world), None, SMALL, 1, tools)
    assert not list(Path(tools.scratch).rglob("*"))

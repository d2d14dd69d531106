"""ReCANet: the layers are the published ones, training repeats itself, and a planted habit is learnt."""

import numpy as np
import pytest
import torch

from nest_model.next_set import recanet, validation_users
from nest_model.next_set.questions import LearningData
from nest_model.next_set.ranking import NO_PRODUCT
from nest_model.next_set.recanet_rows import question_rows
from nest_model.next_set.system import load_system
from tests.support.factories.histories import (
    baskets_of,
    cpu_tools,
    histories_of_users,
    no_test_users,
    questions_of_users,
    random_users,
)

PRODUCTS = list(range(1, 16))
SMALL = {"item_size": 6, "epochs": 2, "batch_rows": 100, "rate": 1e-2, "min_item_count": 2}
SYSTEMS = ["recanet", "recanet_inductive"]


def new_model(users: int = 3, item_size: int = 6, user_size: int = 4) -> recanet.ReCANetModel:
    torch.manual_seed(0)
    table = recanet.UserTable(np.arange(users), user_size)
    return recanet.ReCANetModel(recanet.keras_embedding(len(PRODUCTS), item_size), item_size, table)


def fit(name, tmp_path, training, *, data=None, validation=None, seed=1, **options):
    system = load_system(name)
    data = data or no_test_users(training)
    return system(system.Options(**SMALL | options), cpu_tools(tmp_path)).fit(data, validation, seed)


def test_parameters_are_those_of_the_closed_form():
    users, item, user, h = 3, 6, 4, recanet.HIDDEN
    count = sum(weight.numel() for weight in new_model(users, item, user).parameters())
    tables = len(PRODUCTS) * item + users * user
    dense = (item + user) * h + h + (h + 1) * h + h + 2 * (h * h + h) + h + 1
    assert count == tables + dense + 2 * 4 * (h * h + h * h + h)


def test_packed_rows_equal_padded_ones_with_a_mask():
    model = new_model()
    baskets = baskets_of(random_users(3, 15), PRODUCTS)
    batch = question_rows(baskets, np.ones(15, dtype=bool)).batch(np.arange(20), 7)
    features = torch.tensor([0, 1, 2])
    packed_logits = recanet.logits(model, batch, features, torch.device("cpu"))
    reference = torch.stack([padded_logit(model, batch, features, row, most_gaps=7) for row in range(20)])
    assert len(batch.row_counts) > 3
    torch.testing.assert_close(packed_logits, reference)


def padded_logit(model, batch, features, row, most_gaps):
    """Return a row's logit by torch's LSTM, from zeros on its left whose steps leave the state as it is."""
    starts = np.concatenate([[0], np.cumsum(batch.row_counts)])
    gaps = [batch.gaps[starts[t] + row] for t, rows in enumerate(batch.row_counts) if row < rows]
    padded_gaps = [0.0] * (most_gaps - len(gaps)) + gaps
    item, user = model.items.weight[batch.item[row]], model.users.table.weight[features[batch.label[row]]]
    context = torch.relu(model.combine(torch.cat([item, user])))
    steps = [torch.relu(model.step(torch.cat([context, torch.tensor([gap])]))) for gap in padded_gaps]
    for layer in model.layers:
        cell = torch.nn.LSTMCell(64, 64)
        weights = layer.input.weight, layer.recurrent, layer.input.bias, torch.zeros(256)
        cell.load_state_dict(
            dict(
                zip(
                    ("weight_ih", "weight_hh", "bias_ih", "bias_hh"),
                    map(torch.Tensor.detach, weights),
                    strict=True,
                )
            )
        )
        state, outputs = (torch.zeros(64), torch.zeros(64)), []
        for step, gap in zip(steps, padded_gaps, strict=True):
            state = cell(step, state) if gap else state
            outputs.append(state[0])
        steps = outputs
    return model.head(steps[-1])[0]


def test_layers_start_as_those_of_keras():
    layer = new_model(item_size=60).layers[0]
    bias = layer.input.bias.detach()
    assert bias[64:128].eq(1).all()
    assert bias.sum() == 64  # of the forget gate alone
    torch.testing.assert_close(layer.recurrent.T @ layer.recurrent, torch.eye(64))
    assert layer.input.weight.abs().max() <= np.sqrt(6 / (64 + 256))
    assert 0.045 < new_model().items.weight.abs().max() <= 0.05


@pytest.mark.parametrize("name", SYSTEMS)
def test_training_repeats_itself_for_a_seed_alone(name, tmp_path):
    training = baskets_of(random_users(40, 15), PRODUCTS)
    histories = histories_of_users(random_users(10, 15, seed=1, first=100), PRODUCTS)
    first, again, other = (fit(name, tmp_path, training, seed=seed).rank(histories, 5) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.product_id, again.product_id)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert np.nanmax(np.abs(first.scores - other.scores)) > 1e-3


@pytest.mark.parametrize(
    "name", [SYSTEMS[0], *(pytest.param(name, marks=pytest.mark.long) for name in SYSTEMS[1:])]
)
def test_a_product_of_every_basket_is_recommended(name, tmp_path):
    users = random_users(60, 15)
    everybody = {user: [[*basket, 20] for basket in baskets] for user, baskets in users.items()}
    products = [*PRODUCTS, 20]
    recommender = fit(name, tmp_path, baskets_of(everybody, products), epochs=15)
    top = recommender.rank(histories_of_users({200: [[1, 20], [2, 20], [3, 20]]}, products), 1)
    assert top.product_id.tolist() == [[20]]


@pytest.mark.parametrize("name", SYSTEMS)
def test_scores_do_not_depend_on_other_users_or_batches(name, tmp_path, monkeypatch):
    users = random_users(30, 15, seed=1, first=100)
    recommender = fit(name, tmp_path, baskets_of(random_users(40, 15), PRODUCTS))
    together = recommender.rank(histories_of_users(users, PRODUCTS), 6)
    monkeypatch.setattr(recanet, "_USERS_AT_A_TIME", 7)
    recommender._options = recommender._options.model_copy(update={"batch_rows": 13})
    apart = recommender.rank(histories_of_users(users, PRODUCTS), 6)
    np.testing.assert_allclose(together.scores, apart.scores, atol=1e-5)
    assert (together.product_id == apart.product_id).mean() > 0.99


def test_transductive_vectors_are_those_of_training_test_and_validation_users(tmp_path):
    training = baskets_of({1: [[1, 2], [1]], 2: [[2], [2]]}, PRODUCTS)
    data = LearningData(training, baskets_of({5: [[1], [1, 2]]}, PRODUCTS))
    validation = questions_of_users({3: [[1, 2], [2]]}, {3: [1]}, PRODUCTS)
    options = {"data": data, "validation": validation, "epochs": 1, "min_item_count": 1}
    model = fit("recanet", tmp_path, training, **options).model
    assert model.users.subject_id.tolist() == [1, 2, 3, 5]
    inductive = fit("recanet_inductive", tmp_path, training, **options).model
    assert isinstance(inductive.users, recanet.NoUserVector)


def test_users_without_a_vector_have_zeros():
    table = recanet.UserTable(np.array([3, 5]), 4)
    vectors = table(table.features(np.array([5, 4, 9]), lambda: None))
    torch.testing.assert_close(vectors[0], table.table.weight[1])
    assert vectors[1:].eq(0).all()


@pytest.mark.parametrize("name", SYSTEMS)
def test_rankings_hold_candidates_of_the_history_alone(name, tmp_path):
    training = baskets_of({1: [[1, 2], [1, 2], [1]], 2: [[1], [2, 3]]}, PRODUCTS)
    recommender = fit(name, tmp_path, training, epochs=1)
    ranking = recommender.rank(histories_of_users({8: [[1, 3, 15]], 9: [[1]] * 100}, PRODUCTS), 3)
    assert ranking.product_id.tolist() == [[1, NO_PRODUCT, NO_PRODUCT]] * 2
    assert recommender.nameable.tolist() == [1, 2]


def test_the_epoch_best_for_validation_users_is_taken(tmp_path, monkeypatch):
    training = baskets_of(random_users(40, 15), PRODUCTS)
    validation = questions_of_users({100: [[1, 2], [1]]}, {100: [1]}, PRODUCTS)
    worse = iter([0.5, 0.4, 0.3])
    monkeypatch.setattr(validation_users, "validation_scores", lambda *_: {"ndcg": next(worse), "recall": 0})
    best = fit("recanet_inductive", tmp_path, training, validation=validation, epochs=3)
    first = fit("recanet_inductive", tmp_path, training, epochs=1)
    histories = histories_of_users(random_users(5, 15, seed=3, first=300), PRODUCTS)
    np.testing.assert_array_equal(best.rank(histories, 5).scores, first.rank(histories, 5).scores)


def test_training_without_rows_leaves_a_model_that_ranks(tmp_path):
    recommender = fit("recanet_inductive", tmp_path, baskets_of({1: [[1, 2]], 2: [[1, 2]]}, PRODUCTS))
    assert set(recommender.rank(histories_of_users({7: [[1, 2]]}, PRODUCTS), 2).product_id[0].tolist()) == {
        1,
        2,
    }

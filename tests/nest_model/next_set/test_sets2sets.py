"""Sets2Sets: the pairs' term is the double loop's, the gate the spec's, training repeats itself and stays up."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from nest_model.next_set import sets2sets
from nest_model.next_set.systems.sets2sets import SYSTEM
from nest_model.training.telemetry import NullTelemetry
from tests.support.factories.histories import (
    baskets_of,
    cpu_tools,
    histories_of_users,
    last_basket_questions,
    no_test_users,
    random_users,
)

PRODUCTS = list(range(1, 16))
CPU = torch.device("cpu")


class Recorder(NullTelemetry):
    """Telemetry that keeps the NDCG of each epoch."""

    def __init__(self):
        super().__init__()
        self.ndcg = []

    def evaluation(self, step, values):
        self.ndcg.append(values["ndcg"])


def fit(tmp_path, users, products=PRODUCTS, seed=1, **options):
    options = SYSTEM.Options(**{"hidden": 6, "epochs": 2, "rate": 1e-2, "batch_users": 16} | options)
    data = no_test_users(baskets_of(users, products))
    return SYSTEM(options, cpu_tools(tmp_path)).fit(data, None, seed)


def test_loss_is_that_of_the_double_loop():
    logits = torch.tensor([[0.5, -1.0, 2.0, 0.0], [3.0, 0.1, 0.2, 0.3]], dtype=torch.float64)
    truth = torch.tensor([[1, 0, 1, 0], [0, 1, 0, 0]], dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0, 4.0, 0.0], dtype=torch.float64)
    losses = []
    for p, y in zip(logits.softmax(1).tolist(), truth.tolist(), strict=True):
        pairs = [math.exp(-(p[i] - p[j])) for i in range(4) if y[i] for j in range(4) if not y[j]]
        squares = sum(w * (p[i] - y[i]) ** 2 for i, w in enumerate(weights.tolist()))
        losses.append(squares + 10 * sum(pairs) / len(pairs))
    torch.testing.assert_close(
        sets2sets.set_loss(logits, truth, weights, 10.0), torch.tensor(losses, dtype=torch.float64).mean()
    )


def test_logits_are_those_of_the_formula():
    torch.manual_seed(0)
    model = sets2sets.DiagonalSets2Sets(torch.ones(4, dtype=torch.bool), 3)
    with torch.no_grad():
        model.gate_weight.copy_(torch.tensor([1.0, -2.0, 0.5, 3.0]))
        model.gate_bias.copy_(torch.tensor([0.1, 0.2, -0.3, 5.0]))
    history = [[0, 1], [2], [0, 2]]
    baskets = baskets_of({1: history, 2: [[1]]}, [0, 1, 2, 3])
    logits = model(sets2sets.HistoryBatch.of(baskets, CPU))[0]
    means = torch.stack([model.read.weight[basket].mean(0) for basket in history])
    outputs, state = model.encoder(means[None])
    latest = model.write.weight[[0, 2]].mean(0)
    weights = torch.softmax(outputs[0] @ model.query(torch.cat([latest, state[0, 0]])), 0)
    step = torch.relu(model.combine(torch.cat([latest, weights @ outputs[0]])))
    z = model.out(model.decoder(step[None], state[0]))[0]
    f = torch.tensor([2 / 3, 1 / 3, 2 / 3, 0])
    g = torch.sigmoid(model.gate_weight * f + model.gate_bias)
    torch.testing.assert_close(logits, torch.where(f > 0, z * (1 - g) + f * g, z))


def test_gates_and_logits_start_where_the_options_say():
    model = sets2sets.DiagonalSets2Sets(torch.ones(4, dtype=torch.bool), 3, start_gate=5.0, start_level=-8.0)
    logits = model(sets2sets.HistoryBatch.of(baskets_of({1: [[0, 1], [0]]}, [0, 1, 2, 3]), CPU))[0].detach()
    z, gate = logits.new_tensor([-8.0] * 4), 1 / (1 + math.exp(-5))
    f = logits.new_tensor([1, 0.5, 0, 0])
    torch.testing.assert_close(logits[:2], z[:2] * (1 - gate) + f[:2] * gate, atol=0.02, rtol=0)
    torch.testing.assert_close(logits[2:], z[2:], atol=2.0, rtol=0)


@pytest.mark.parametrize(
    ("power", "weights"), [(0.0, [1, 1, 1, 0]), (0.5, [1, 2, 4, 0]), (1.0, [1, 4, 16, 0])]
)
def test_weights_are_powers_of_the_rarity(power, weights):
    product_weights = sets2sets.product_weights(torch.tensor([16.0, 4.0, 1.0, 0.0]), power)
    assert product_weights.tolist() == weights


def test_training_does_not_forget_the_users_own_products(tmp_path):
    products = range(1, 401)
    recorder = Recorder()
    tools = replace(cpu_tools(tmp_path), telemetry=recorder)
    data = no_test_users(baskets_of(random_users(300, 400), products))
    shop = {
        user: baskets
        for user, baskets in random_users(80, 400, seed=1, first=1000).items()
        if len(baskets) > 1
    }
    SYSTEM(SYSTEM.Options(), tools).fit(data, last_basket_questions(baskets_of(shop, products)), 1)
    assert recorder.ndcg[-1] >= 0.9 * max(recorder.ndcg), recorder.ndcg
    assert recorder.ndcg[-1] >= 0.5, recorder.ndcg


def test_parameters_are_those_of_the_closed_form():
    products, h = 4, 3
    model = sets2sets.DiagonalSets2Sets(torch.ones(products, dtype=torch.bool), h)
    grus = 2 * (2 * 3 * h * h + 2 * 3 * h)
    count = products * (3 * h + 3) + grus + 2 * h * h + 2 * h * h + h
    assert sum(weight.numel() for weight in model.parameters()) == count


def test_training_repeats_itself_for_a_seed_alone(tmp_path):
    histories = histories_of_users(random_users(10, 15, seed=1, first=100), PRODUCTS)
    users = random_users(40, 15)
    first, again, other = (fit(tmp_path, users, seed=seed).rank(histories, 5) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.product_id, again.product_id)
    np.testing.assert_array_equal(first.scores, again.scores)
    assert np.abs(first.scores - other.scores).max() > 1e-3


def test_scores_do_not_depend_on_other_users(tmp_path, monkeypatch):
    recommender = fit(tmp_path, random_users(40, 15))
    histories = histories_of_users(random_users(30, 15, seed=1, first=100) | {200: [[1]] * 100}, PRODUCTS)
    together = recommender.rank(histories, 6)
    monkeypatch.setattr(sets2sets, "_USERS_AT_A_TIME", 7)
    apart = recommender.rank(histories, 6)
    np.testing.assert_allclose(together.scores, apart.scores, atol=1e-5)


def test_a_product_of_every_basket_is_recommended(tmp_path):
    users = {user: [[*basket, 20] for basket in baskets] for user, baskets in random_users(60, 15).items()}
    products = [*PRODUCTS, 20]
    recommender = fit(tmp_path, users, products, epochs=10)
    assert recommender.rank(
        histories_of_users({200: [[1, 20], [2, 20]]}, products), 1
    ).product_id.tolist() == [[20]]


def test_products_unseen_in_training_are_recommended_to_their_buyers_alone(tmp_path):
    recommender = fit(tmp_path, random_users(40, 15), [*PRODUCTS, 30])
    ranking = recommender.rank(histories_of_users({8: [[1, 30]], 9: [[1, 2]]}, [*PRODUCTS, 30]), 50)
    assert 30 in ranking.product_id[0]
    assert 30 not in ranking.product_id[1]


def test_the_label_is_in_no_history_of_training():
    baskets = baskets_of({1: [[1, 2], [3]], 2: [[2], [1], [2, 4]]}, [1, 2, 3, 4])
    [(batch, truth)] = sets2sets._batches(baskets, np.array([0, 1]), 64, CPU)
    assert truth.tolist() == [[0, 0, 1, 0], [0, 1, 0, 1]]
    assert batch.shares.tolist() == [[1, 1, 0, 0], [0.5, 0.5, 0, 0]]

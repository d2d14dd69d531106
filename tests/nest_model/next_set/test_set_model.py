"""The forms of set fine-tuning by hand: what each ranks, the mixture, the copy term and the losses."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nest_model.next_set.set_model import FIRST_GATE, UNREAD, HistoryProducts, Occurrences, SetModel, set_loss
from schemas.tables.vocab import UNK

TOKENS = np.array([5, UNK, 6, 7, UNK])
BIAS = torch.tensor([0.0, -6.0, 0, 0, 0, -1.0, -2.0, -3.0])
PURCHASES = HistoryProducts(
    user=torch.tensor([0, 0, 1]),
    item=torch.tensor([1, 2, 3]),
    features=torch.randn(3, 4, generator=torch.Generator().manual_seed(0)),
    log_share=torch.tensor([0.5, 0.25, 1.0]).log(),
    baskets=torch.tensor([4.0, 4.0, 2.0]),
)
INFINITE = -math.inf


def model_of(form: str, *, is_random: bool = False) -> SetModel:
    torch.manual_seed(0)
    model = SetModel(form, TOKENS, torch.randn(8, 6), BIAS, 4, dropout=0.0)
    if is_random:
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.3 * torch.randn_like(weight)
    return model


def test_generic_ranks_products_with_a_token_by_popularity_at_first():
    logits = model_of("generic")(torch.randn(2, 6), PURCHASES)
    assert logits.tolist() == [[-1, INFINITE, -2, -3, INFINITE]] * 2


def test_generic_is_the_projected_query_times_the_table():
    model, query = model_of("generic", is_random=True), torch.randn(2, 6)
    logits = model(query, PURCHASES)
    for product, token in ((0, 5), (2, 6), (3, 7)):
        expected = (query @ model.project.weight.T) @ model.table[token] + model.bias[token]
        torch.testing.assert_close(logits[:, product], expected)


@pytest.mark.parametrize("form", ["hybrid", "features"])
def test_training_starts_from_own_shares_blended_with_popularity(form: str):
    logits = model_of(form)(torch.randn(2, 6), PURCHASES)
    nine = math.exp(FIRST_GATE)
    expected = [
        [math.exp(-1), math.exp(-6) + nine * 0.5, math.exp(-2) + nine * 0.25, math.exp(-3), 0],
        [math.exp(-1), 0, math.exp(-2), math.exp(-3) + nine, 0],
    ]
    torch.testing.assert_close(logits.exp(), torch.tensor(expected))


def test_features_alone_does_not_read_the_query():
    model = model_of("features", is_random=True)
    assert torch.equal(model(torch.randn(2, 6), PURCHASES), model(torch.zeros(2, 6), PURCHASES))
    hybrid = model_of("hybrid", is_random=True)
    assert not torch.equal(hybrid(torch.randn(2, 6), PURCHASES), hybrid(torch.zeros(2, 6), PURCHASES))


def test_the_copy_term_equals_a_loop_over_the_occurrences():
    model, query = model_of("copy", is_random=True), torch.randn(2, 6)
    states, pair = torch.randn(4, 6), torch.tensor([0, 2, 2, 0])  # the second purchase is beyond the limits
    occurrences = Occurrences(pair, states)

    logits = model(query, PURCHASES, occurrences)

    copy_queries = model.copy(query)
    base = query @ model.project.weight.T @ model.table.T + model.bias
    for place, (user, item) in enumerate([(0, 1), (0, 2), (1, 3)]):
        scores = [
            copy_queries[user] @ states[line] / math.sqrt(6) for line in range(4) if pair[line] == place
        ]
        repeat = torch.stack(scores).logsumexp(0) - PURCHASES.baskets[place].log() if scores else UNREAD
        expected = torch.logaddexp(base[user, TOKENS[item]], model.gate + repeat)
        torch.testing.assert_close(logits[user, item], expected)


def test_the_copy_term_starts_at_the_share_of_baskets():
    occurrences = Occurrences(torch.tensor([0, 0, 1, 2]), torch.randn(4, 6))
    model = model_of("copy")
    logits = model(torch.randn(2, 6), PURCHASES, occurrences)
    assert float(logits[0, 1].detach().exp()) == pytest.approx(math.exp(-6) + 9 * 2 / 4)
    logits.masked_fill(logits == INFINITE, 0).sum().backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_the_softmax_loss_is_a_kl_divergence_up_to_a_constant():
    logits = torch.randn(3, 5)
    logits[:, 4] = INFINITE
    example, item = torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0])  # the second has no target

    loss = set_loss(logits, example, item, "softmax")

    even = torch.tensor([[0, 0.5, 0, 0.5], [1.0, 0, 0, 0]])
    divergence = F.kl_div(logits[[0, 2], :4].log_softmax(1), even, reduction="sum")
    assert float(loss) == pytest.approx(float(divergence) + math.log(2), rel=1e-5)


def test_bce_counts_every_ranked_product_once():
    logits = torch.randn(3, 5)
    logits[:, 4] = INFINITE
    example, item = torch.tensor([0, 0, 2]), torch.tensor([1, 3, 0])
    targets = torch.tensor([[0, 1.0, 0, 1], [1.0, 0, 0, 0]])
    expected = F.binary_cross_entropy_with_logits(logits[[0, 2], :4], targets, reduction="sum")
    assert float(set_loss(logits, example, item, "bce")) == pytest.approx(float(expected), rel=1e-5)

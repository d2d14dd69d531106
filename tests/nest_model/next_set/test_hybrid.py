"""ReCANet on an encoder: what it reads, what a control takes away, what is kept."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nest_model.next_set.hybrid import (
    EncodedUsers,
    ItemTable,
    OtherUsers,
    ZeroUsers,
    fit_hybrid,
    random_table,
)
from nest_model.next_set.hybrid_options import HybridOptions
from nest_model.next_set.labels import histories_before
from nest_model.next_set.questions import Histories
from tests.support.factories.histories import baskets_of, cpu_tools, no_test_users, random_users

D = 6
PRODUCTS = 12


class CountingEncoder:
    """An encoder whose vector says what was bought, and that remembers what it was asked."""

    def __init__(self) -> None:
        self.histories: list[Histories] = []
        self.product_table = torch.arange(PRODUCTS * D, dtype=torch.float32).reshape(PRODUCTS, D) / 50

    def user_vectors(self, histories: Histories) -> Tensor:
        self.histories.append(histories)
        baskets = histories.baskets
        vectors = np.zeros((len(histories), D), dtype=np.float32)
        np.add.at(vectors, (baskets.user_of_line, baskets.items % D), 1)
        return torch.from_numpy(vectors)


def shop():
    return baskets_of(random_users(20, PRODUCTS, seed=1), list(range(1, PRODUCTS + 1)))


def fit(encoder: CountingEncoder, folder: Path, **arguments: object):
    options = HybridOptions(epochs=2, batch_rows=64, min_item_count=0, label_positions=2)
    choices = {"items": "encoder", "users": "own", "options": options} | arguments
    return fit_hybrid(encoder, "key", no_test_users(shop()), None, seed=3, tools=cpu_tools(folder), **choices)


def test_encoder_reads_only_baskets_before_the_label(tmp_path: Path):
    encoder, baskets = CountingEncoder(), shop()
    fit(encoder, tmp_path)
    parts = [part.baskets for part in encoder.histories]
    users, read = (
        np.concatenate([getattr(part, name) for part in parts]).tolist() for name in ("subject_id", "lengths")
    )
    lengths = dict(zip(baskets.subject_id.tolist(), baskets.lengths.tolist(), strict=True))
    for user, length in zip(users, read, strict=True):
        assert length < lengths[user]  # at most up to the last label
    expected = [n - back for n in lengths.values() for back in (1, 2) if n - back >= 1]
    assert sorted(read) == sorted(expected)


def test_product_table_stays_frozen_unless_it_is_tuned(tmp_path: Path):
    frozen, trainable = (
        fit(
            CountingEncoder(),
            tmp_path / table,
            options=HybridOptions(epochs=2, min_item_count=0, table=table),
        ).model.items.rows.weight.detach()
        for table in ("frozen", "tuned")
    )
    assert torch.equal(frozen, CountingEncoder().product_table)
    assert not torch.equal(trainable, frozen)


def test_vectors_are_kept_for_the_same_encoder_and_histories_alone(tmp_path: Path):
    encoder, baskets = CountingEncoder(), shop()
    data = no_test_users(baskets)
    histories = histories_before(data, baskets, np.arange(20), baskets.lengths - 1)
    users = EncodedUsers(encoder, "one", tmp_path)
    first = users.features(baskets.subject_id, lambda: histories)
    again = users.features(baskets.subject_id, lambda: histories)
    assert len(encoder.histories) == 1
    assert torch.equal(first, again)
    assert torch.equal(first.float(), encoder.user_vectors(histories))  # cached vectors equal fresh ones
    encoder.histories.clear()
    EncodedUsers(encoder, "another checkpoint", tmp_path).features(baskets.subject_id, lambda: histories)
    shorter = histories_before(data, baskets, np.arange(20), baskets.lengths - 2)
    users.features(baskets.subject_id, lambda: shorter)
    assert len(encoder.histories) == 2


def test_random_table_has_the_norms_of_the_encoder_s_rows():
    table = CountingEncoder().product_table + 1
    rows = random_table(table, seed=5)
    assert torch.allclose(rows.norm(dim=1), table.norm(dim=1))
    assert torch.equal(rows, random_table(table, seed=5))
    assert not torch.allclose(rows, random_table(table, seed=6))


def test_other_user_is_never_the_user_and_does_not_depend_on_the_block(tmp_path: Path):
    baskets = shop()
    users = OtherUsers(EncodedUsers(CountingEncoder(), "key", tmp_path), no_test_users(baskets))
    users.vectors = torch.arange(float(len(users.subject_id)))[:, None]  # says whose vector it is
    other_users = (
        users.features(baskets.subject_id, lambda: pytest.fail("reads no history"))[:, 0].long().numpy()
    )
    assert not (users.subject_id[other_users] == baskets.subject_id).any()
    alone = [
        users.features(baskets.subject_id[[place]], lambda: pytest.fail("reads"))[0, 0] for place in range(20)
    ]
    assert other_users.tolist() == [int(place) for place in alone]
    assert len(set(other_users.tolist())) > 5


def test_other_user_s_vector_holds_nothing_of_a_last_basket(tmp_path: Path):
    baskets, encoder = shop(), CountingEncoder()
    baskets = baskets.first(np.where(np.arange(20) == 4, 1, baskets.lengths))
    users = OtherUsers(EncodedUsers(encoder, "key", tmp_path), no_test_users(baskets))
    (histories,) = encoder.histories
    lengths = dict(zip(baskets.subject_id.tolist(), baskets.lengths.tolist(), strict=True))
    expected = {user: length - 1 for user, length in lengths.items() if length > 1}
    assert len(expected) == 19  # of a user with one basket nothing can be read
    subject_id = histories.baskets.subject_id.tolist()
    assert dict(zip(subject_id, histories.baskets.lengths.tolist(), strict=True)) == expected
    assert users.vectors.shape == (len(expected), D)


def test_absent_user_is_a_vector_of_zeros_of_the_same_size():
    users = ZeroUsers(D)
    vectors = users(users.features(np.arange(3), lambda: pytest.fail("reads no history")))
    assert torch.equal(vectors, torch.zeros(3, D))


def test_user_vector_reaches_the_lists(tmp_path: Path):
    baskets = shop()
    histories = Histories(baskets, baskets.days[baskets.basket_offsets[1:] - 1] + 7)
    own, absent = (
        fit(CountingEncoder(), tmp_path / users, users=users).rank(histories, 5).scores
        for users in ("own", "none")
    )
    assert not np.allclose(own, absent, equal_nan=True)


def test_item_table_is_a_copy():
    table = torch.ones(3, 2)
    ItemTable(table, is_tuned=True).rows.weight.data.zero_()
    assert torch.equal(table, torch.ones(3, 2))

import numpy as np
import pytest

from nest_model.next_set.bert_masking import MaskedRows, mask_rows
from nest_model.next_set.bert_options import MASKINGS, Masking
from nest_model.next_set.bert_rows import CLS, FIRST, MASK, UNK, BertRows, ProductTokens, rows_of
from tests.support.factories.histories import indexed_baskets

PRODUCTS = 8


def random_rows(users: int = 40, min_count: int = 1) -> BertRows:
    rng = np.random.default_rng(0)
    shop = indexed_baskets(
        [
            [sorted(rng.permutation(PRODUCTS)[: rng.integers(1, 5)]) for _ in range(rng.integers(1, 6))]
            for _ in range(users)
        ],
        PRODUCTS,
    )
    return rows_of(shop, ProductTokens.of(shop, min_count), with_query=False)


def masked(rows: BertRows, masking: Masking, seed: int = 1, share: float = 0.3) -> MaskedRows:
    return mask_rows(rows, masking, share, np.random.default_rng(seed))


def targets_of(step: MaskedRows, user: int) -> list[int]:
    is_of_user = step.rows.user_of_row[step.target_rows] == user
    return sorted(step.target_tokens[is_of_user].tolist())


@pytest.mark.parametrize("masking", MASKINGS)
def test_targets_are_guessed_at_masks_and_every_user_has_one(masking):
    step = masked(random_rows(), masking)
    assert (step.rows.tokens[step.target_rows] == MASK).all()
    assert set(np.flatnonzero(step.rows.tokens == MASK)) == set(step.target_rows)
    assert set(step.rows.user_of_row[step.target_rows]) == set(range(40))
    assert (np.diff(step.target_rows) >= 0).all()


def test_masked_lines_are_the_only_ones_that_change():
    rows = random_rows()
    step = masked(rows, "item")
    is_hidden = step.rows.tokens == MASK
    assert (step.rows.tokens[~is_hidden] == rows.tokens[~is_hidden]).all()
    assert step.target_tokens.tolist() == rows.tokens[is_hidden].tolist()
    assert 0.25 < is_hidden.sum() / (rows.tokens >= FIRST).sum() < 0.4


def test_a_masked_target_is_visible_nowhere_else_in_its_line():
    rows = random_rows()
    step = masked(rows, "item")
    other_tokens = rows.tokens.copy()
    other_tokens[step.target_rows] = FIRST + (other_tokens[step.target_rows] - FIRST + 1) % PRODUCTS
    again = masked(BertRows(other_tokens, rows.positions, rows.offsets), "item")
    assert again.rows.tokens.tolist() == step.rows.tokens.tolist()
    assert (again.target_tokens != step.target_tokens).all()


def test_all_occurrences_of_a_masked_product_are_masked():
    step = masked(random_rows(), "all_occurrences")
    visible = set(zip(step.rows.user_of_row.tolist(), step.rows.tokens.tolist(), strict=True))
    user = step.rows.user_of_row[step.target_rows]
    assert not visible & set(zip(user.tolist(), step.target_tokens.tolist(), strict=True))


def test_a_basket_asked_for_leaves_one_mask_and_nothing_after_it():
    rows = random_rows()
    step = masked(rows, "last_basket")
    for user in range(len(rows)):
        mine = slice(*step.rows.offsets[user : user + 2])
        before = slice(*rows.offsets[user : user + 2])
        positions, tokens = rows.positions[before], rows.tokens[before]
        position = step.rows.positions[mine][-1]
        is_earlier = positions < position
        assert step.rows.tokens[mine].tolist() == [*tokens[is_earlier], MASK]
        assert step.rows.positions[mine].tolist() == [*positions[is_earlier], position]
        assert targets_of(step, user) == sorted(tokens[positions == position])
        assert position > 1 or positions.max() == 1


def test_every_basket_but_the_first_is_asked_for_in_some_step():
    rows = rows_of(
        shop := indexed_baskets([[[0], [1], [2], [3]]], 4), ProductTokens.of(shop, 1), with_query=False
    )
    positions = {masked(rows, "last_basket", seed).rows.positions[-1] for seed in range(40)}
    assert positions == {2, 3, 4}


def test_joint_asks_about_half_of_the_users_for_a_basket():
    rows = random_rows(users=200)
    step = masked(rows, "joint")
    whole = masked(rows, "item")
    is_cut = np.array(
        [step.rows.lengths[user] < whole.rows.lengths[user] for user in range(len(rows))], dtype=bool
    )
    assert 0.2 < is_cut.mean() < 0.6  # a last basket of one product cuts nothing


def test_an_unknown_product_is_no_target_and_its_basket_is_not_asked_for_alone():
    tokens = np.array([CLS, FIRST, UNK, CLS, UNK, FIRST + 1])
    rows = BertRows(tokens, np.array([0, 1, 2, 0, 1, 1]), np.array([0, 3, 6]))
    for seed in range(10):
        step = masked(rows, "last_basket", seed)
        assert targets_of(step, 0) == [FIRST]
        assert step.rows.tokens[:3].tolist() == [CLS, MASK, UNK]
        assert targets_of(step, 1) == [FIRST + 1]
        assert step.rows.tokens[3:].tolist() == [CLS, MASK]


@pytest.mark.parametrize("masking", MASKINGS)
def test_a_slice_holds_the_rows_and_targets_of_its_users(masking):
    step = masked(random_rows(), masking)
    parts = [step.slice(0, 13), step.slice(13, 40)]
    assert np.concatenate([part.rows.tokens for part in parts]).tolist() == step.rows.tokens.tolist()
    assert [len(part.rows) for part in parts] == [13, 27]
    for number, user in ((0, 5), (1, 30)):
        assert targets_of(parts[number], user - 13 * number) == targets_of(step, user)


def test_the_same_draws_mask_the_same():
    rows = random_rows()
    once, again, other = (masked(rows, "item", seed) for seed in (1, 1, 2))
    assert once.target_rows.tolist() == again.target_rows.tolist() != other.target_rows.tolist()

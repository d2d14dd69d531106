import numpy as np

from nest_model.next_set.bert_rows import CLS, FIRST, MASK, UNK, ProductTokens, latest, rows_of
from tests.support.factories.histories import indexed_baskets

SHOP = indexed_baskets([[[0, 2], [2], [1, 2]], [[0]]], products=4)


def test_tokens_follow_popularity_then_the_product_id():
    tokens = ProductTokens.of(SHOP, min_count=1)
    assert tokens.item_of_token.tolist() == [2, 0, 1]
    assert tokens.token_of_item.tolist() == [FIRST + 1, FIRST + 2, FIRST, UNK]
    assert len(tokens) == FIRST + 3


def test_a_product_in_too_few_baskets_is_unknown():
    tokens = ProductTokens.of(SHOP, min_count=2)
    assert tokens.item_of_token.tolist() == [2, 0]
    assert tokens.token_of_item[1] == UNK


def test_rows_are_cls_then_lines_at_their_baskets_place_then_the_query():
    rows = rows_of(SHOP, ProductTokens.of(SHOP, min_count=2), with_query=True)
    assert rows.tokens.tolist() == [CLS, FIRST + 1, FIRST, FIRST, UNK, FIRST, MASK, CLS, FIRST + 1, MASK]
    assert rows.positions.tolist() == [0, 1, 1, 2, 3, 3, 4, 0, 1, 2]
    assert rows.offsets.tolist() == [0, 7, 10]


def test_rows_of_a_training_user_have_no_query():
    rows = rows_of(SHOP, ProductTokens.of(SHOP, min_count=2), with_query=False)
    assert rows.positions.tolist() == [0, 1, 1, 2, 3, 3, 0, 1]
    assert MASK not in rows.tokens


def test_a_user_without_baskets_has_cls_and_the_query():
    nobody = SHOP.first(np.array([0, 1]))
    rows = rows_of(nobody, ProductTokens.of(SHOP, min_count=1), with_query=True)
    assert rows.positions[: rows.offsets[1]].tolist() == [0, 1]


def test_latest_cuts_the_oldest_baskets_whole():
    assert latest(SHOP, 3).lengths.tolist() == [2, 1]
    assert latest(SHOP, 4).lengths.tolist() == [2, 1]
    assert latest(SHOP, 5).lengths.tolist() == [3, 1]


def test_latest_always_keeps_the_last_basket():
    last = latest(SHOP, 1)
    assert last.lengths.tolist() == [1, 1]
    assert last.items.tolist() == [1, 2, 0]


def test_positions_count_from_the_first_basket_that_is_kept():
    rows = rows_of(latest(SHOP, 3), ProductTokens.of(SHOP, min_count=1), with_query=True)
    assert rows.positions[: rows.offsets[1]].tolist() == [0, 1, 2, 2, 3]


def test_taken_users_have_their_own_rows():
    rows = rows_of(SHOP, ProductTokens.of(SHOP, min_count=1), with_query=True)
    other_order = rows.take(np.array([1, 0]))
    assert other_order.tokens.tolist() == [*rows.tokens[7:], *rows.tokens[:7]]
    assert other_order.offsets.tolist() == [0, 3, 10]

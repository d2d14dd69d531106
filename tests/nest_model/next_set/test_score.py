"""Next-set prediction: nothing of the set asked for is seen, both models see the same, and the numbers are right."""

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from nest_model import __main__ as command_line
from nest_model.config import ModelConfig
from nest_model.data.packed import pack
from nest_model.data.selection import limit_context, whole_subjects
from nest_model.data.seqsets import SeqSets
from nest_model.next_set import pictures
from nest_model.next_set.pictures import WORDS
from nest_model.next_set.query import with_queries
from nest_model.next_set.score import compare
from nest_model.next_set.targets import NextSets, held_out, last_visible, read_held_out
from nest_model.training.guesses.frequent import most_frequent
from nest_model.training.masking import mask_sets
from nest_model.training.objectives import rank
from schemas.contract import read_table
from schemas.errors import InputError
from schemas.tables.vocab import VOCAB
from tests.support.factories.baskets import (
    HIDDEN,
    RARE,
    VOCAB_SIZE,
    order_id,
    read_baskets,
    write_item_vocab,
    write_shop,
)
from tests.support.factories.ragged import seeded_model

CONFIG = ModelConfig(
    vocab_size=VOCAB_SIZE, d_model=8, heads=2, d_ff=12, layers=2, max_set_rows=9, set_position=None
)
BASKETS = {
    1: [[5, 6], [5, 7], [5, 8, 9], HIDDEN],
    2: [[10], [], [10, 11], []],
    3: [[12, 13]],  # nothing before its only basket
    4: [HIDDEN],  # no basket at all
    5: [[14, RARE], [14, RARE, RARE, 15]],
}
basket = st.lists(st.integers(5, VOCAB_SIZE - 1), min_size=1, max_size=8, unique=True)
histories = st.dictionaries(
    st.integers(1, 6), st.lists(basket, min_size=2, max_size=4), min_size=1, max_size=4
)


def everyone(seqsets: SeqSets) -> np.ndarray:
    return np.arange(seqsets.subjects)


def truths(asked: NextSets) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {int(subject): set() for subject in asked.subject_id}
    for place, token in zip(asked.truth_subject, asked.truth_token, strict=True):
        found[int(asked.subject_id[place])].add(int(token))
    return found


def test_the_last_basket_that_holds_something_is_asked_for_from_all_before_it(tmp_path: Path):
    seqsets = read_baskets(tmp_path, BASKETS)

    asked = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)

    assert truths(asked) == {1: {5, 8, 9}, 2: {10, 11}, 5: {14, 15, VOCAB_SIZE + 1, VOCAB_SIZE + 2}}
    assert asked.left_out == {"no_visible_set": 1, "nothing_before": 1}
    ends = np.cumsum(np.diff(asked.history.event_offsets[asked.history.set_offsets]))
    seen = np.split(seqsets.tokens[asked.history.events], ends[:-1])
    assert [tokens.tolist() for tokens in seen] == [[5, 6, 5, 7], [10], [14, RARE]]
    assert (asked.history.event_counts[asked.history.set_offsets[1:] - 1] == 0).all()


def test_held_out_asks_for_the_hidden_basket_and_takes_its_truth_from_the_file(tmp_path: Path):
    seqsets = read_baskets(tmp_path / "seqset", BASKETS)
    write_item_vocab(tmp_path / "vocab.parquet")
    rows = [
        (order_id(1, 3), 1001),
        (order_id(1, 3), 999),
        (order_id(1, 3), 1003),
        (order_id(2, 2), 1004),
        (77, 1001),
    ]
    (tmp_path / "held_out.csv").write_text("order_id,product_id\n" + "".join(f"{o},{p}\n" for o, p in rows))

    asked = held_out(
        seqsets, everyone(seqsets), tmp_path, read_table(tmp_path / "vocab.parquet", VOCAB), VOCAB_SIZE
    )

    assert truths(asked) == {1: {5, 7, VOCAB_SIZE + 1}}
    assert asked.left_out == {"no_hidden_set": 3, "not_in_held_out": 1, "nothing_before": 0}
    assert seqsets.tokens[asked.history.events].tolist() == [5, 6, 5, 7, 5, 8, 9]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_held_out_is_read_in_every_form(suffix: str, tmp_path: Path):
    table = pa.table(
        {"order_id": [3, 3], "product_id": [8, 9], "add_to_cart_order": [1, 2], "reordered": [0, 1]}
    )
    text = "order_id,product_id,add_to_cart_order,reordered\n3,8,1,0\n3,9,2,1\n"
    path = tmp_path / f"held_out.{suffix}"
    match suffix:
        case "csv":
            path.write_text(text)
        case "csv.gz":
            path.write_bytes(gzip.compress(text.encode()))
        case _:
            pq.write_table(table, path)
    order, product = read_held_out(tmp_path)
    assert (order.tolist(), product.tolist()) == ([3, 3], [8, 9])


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("held_out.csv", b"order_id,product_id\n1,secret\n", "integer columns"),
        ("held_out.csv", b"order_id,product_id\n1,\n", "1 of 2 ids are missing"),
        ("held_out.csv", b"order_id\n1\n", "cannot be read"),
        ("held_out.csv", b"", "cannot be read"),
        (
            "held_out.csv.gz",
            gzip.compress(b"order_id,product_id\n1,2\n" * 500, mtime=0)[:40],
            "cannot be read",
        ),
        ("held_out.parquet", b"secret", "cannot be read"),
        ("other.csv", b"", "no such file"),
    ],
)
def test_a_bad_held_out_is_one_message_without_a_value(name: str, content: bytes, said: str, tmp_path: Path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="held_out") as raised:
        read_held_out(tmp_path)
    assert said in str(raised.value)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_the_yardstick_counts_then_prefers_the_recent_then_fills_up_with_everybody_s(tmp_path: Path):
    seqsets = read_baskets(tmp_path, {1: [[5, 6, RARE], [6, 7], [8, RARE], [20]], 2: [[9], [9]]})
    history = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE).history
    counts = np.zeros(VOCAB_SIZE, dtype=np.int64)
    counts[[1, 8, 15, 16, 9]] = 100, 50, 40, 40, 30

    chosen = most_frequent(seqsets, history, counts, 6)

    assert chosen.tolist() == [
        [6, 8, 7, 5, 15, 16],  # twice; once, the latest first; everybody's, less the own 8
        [9, 8, 15, 16, 5, 6],
    ]


@settings(max_examples=30, deadline=None)
@given(histories, st.integers(1, 12))
def test_the_yardstick_names_each_token_once_and_the_most_bought_first(baskets, k: int):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        seqsets = read_baskets(Path(folder), baskets)
    asked = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)
    chosen = most_frequent(seqsets, asked.history, np.ones(VOCAB_SIZE, dtype=np.int64), k)
    for user, tokens in zip(sorted(baskets), chosen.tolist(), strict=True):
        bought = [token for basket in baskets[user][:-1] for token in basket]
        times = [bought.count(token) for token in tokens]
        assert len(set(tokens)) == k
        assert times == sorted(times, reverse=True)
        assert sum(times) == sum(sorted(map(bought.count, set(bought)), reverse=True)[:k])


def queries(seqsets: SeqSets, asked: NextSets):
    return with_queries(pack(seqsets, asked.history, CONFIG), CONFIG.max_set_rows)


def test_the_query_is_to_the_model_what_a_masked_last_set_is(tmp_path: Path):
    seqsets = read_baskets(tmp_path, {1: [[5, 6], [7], [5, 8, 9]], 2: [[10, 11], [12]]})
    model = seeded_model(CONFIG)
    batch = queries(seqsets, last_visible(seqsets, everyone(seqsets), VOCAB_SIZE))
    asked = batch.cls_rows[batch.subject_offsets[1:] - 1]

    whole = pack(seqsets, whole_subjects(seqsets, everyone(seqsets)), CONFIG)
    for seed in range(1000):  # until chance masks the last sets and no other
        masked = mask_sets(whole, torch.Generator().manual_seed(seed), CONFIG)
        if masked.masked_sets.sets.tolist() == (whole.subject_offsets[1:] - 1).tolist():
            break
    expected, rows = model(masked.batch), masked.batch.cls_rows[masked.masked_sets.sets]

    found = model(batch)
    torch.testing.assert_close(found[asked], expected[rows], rtol=0, atol=0)
    torch.testing.assert_close(found[asked + 1], expected[rows + 1], rtol=0, atol=0)


def test_what_the_basket_held_and_what_came_after_reach_no_query(tmp_path: Path):
    first = read_baskets(tmp_path / "a", {1: [[5, 6], [7], [5, 8, 9], HIDDEN]})
    other = read_baskets(tmp_path / "b", {1: [[5, 6], [7], [12], []]})
    batches = [
        queries(seqsets, last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)) for seqsets in (first, other)
    ]
    for name in vars(batches[0]):
        assert torch.equal(*(getattr(batch, name) for batch in batches)), name


def test_a_hidden_set_is_never_masked(tmp_path: Path):
    seqsets = read_baskets(tmp_path, BASKETS)
    whole = pack(seqsets, whole_subjects(seqsets, everyone(seqsets)), CONFIG)
    always = ModelConfig(**{**vars(CONFIG), "set_mask_share": 1.0})
    masked = mask_sets(whole, torch.Generator().manual_seed(0), always)
    hidden = {int(place) for place in np.flatnonzero(seqsets.flags)}
    assert hidden
    assert not hidden & set(masked.masked_sets.sets.tolist())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_ndcg_is_scikit_learn_s(seed: int):
    rng = np.random.default_rng(seed)
    sets, vocab_size = 4, 40
    scores = rng.permuted(np.tile(np.arange(5, vocab_size, dtype=float), (sets, 1)), axis=1)
    truth = rng.random((sets, vocab_size - 5)) < rng.uniform(0.05, 0.9)
    truth[:, 0] = True
    guesses = torch.from_numpy(np.argsort(-scores, axis=1)[:, :10] + 5)
    target_sets, target_tokens = np.nonzero(truth)

    found = rank(guesses, torch.from_numpy(target_sets), torch.from_numpy(target_tokens + 5))

    for place in range(sets):
        expected = ndcg_score(truth[[place]].astype(float), scores[[place]], k=10)
        assert float(found.ndcg[place]) == pytest.approx(expected)


def test_scores_worked_by_hand_with_the_difference_user_by_user(tmp_path: Path):
    seqsets = read_baskets(tmp_path, {1: [[5], [5, 6]], 2: [[7], [8, RARE]]})
    asked = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)
    guesses = {"nest_mask": torch.tensor([[5, 6], [9, 8]]), "most_frequent": torch.tensor([[5, -1], [7, -1]])}

    found = compare(guesses, asked, min_users=1)

    recall = {name: of["recall_at_10"].value for name, of in found.items()}
    assert recall == {"nest_mask": 0.75, "most_frequent": 0.25, "nest_mask_less_most_frequent": 0.5}
    assert set(np.unique(found["nest_mask"]["recall_at_10"].samples)) <= {0.5, 0.75, 1.0}


@pytest.mark.parametrize("users", [10, 11])
def test_under_eleven_users_no_score_is_told_and_table_and_picture_say_so(users: int, tmp_path: Path):
    seqsets = read_baskets(tmp_path, {user: [[5], [5, 6 + user]] for user in range(users)})
    asked = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)
    guesses = {name: torch.full((users, 10), 5) for name in WORDS}

    found = compare(guesses, asked)

    told = {name: {metric: one.json() for metric, one in of.items()} for name, of in found.items()}
    values = {one[part] for of in told.values() for one in of.values() for part in ("value", "low", "high")}
    assert (values == {None}) is (users < 11)
    table = pictures.rows({"models": told})
    assert [row["Recall@10"] == "withheld" for row in table] == [users < 11] * len(WORDS)
    assert pictures.overview({"models": told}).startswith(b"\x89PNG")


def test_both_models_read_the_history_that_is_left_after_the_limits(tmp_path: Path):
    seqsets = read_baskets(tmp_path, {1: [[5], [6], [7], [8]]})
    asked = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)
    history, _ = limit_context(asked.history, max_sets=2, max_set_rows=9)
    assert seqsets.tokens[history.events].tolist() == [7]
    assert most_frequent(seqsets, history, np.zeros(VOCAB_SIZE, dtype=np.int64), 1).tolist() == [[7]]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A shop whose users buy one product of their own and an even one in every other basket; a model of it."""
    root = tmp_path_factory.mktemp("shop")
    baskets: dict[int, list[list[int] | str]] = {
        user: [sorted({5 + user % 15, 20 + number % 2}) for number in range(6)] for user in range(1, 61)
    }
    for user in range(50, 61):
        baskets[user].append(HIDDEN)
    split = {user: "test" if user >= 50 else "val" if user >= 45 else "train" for user in baskets}
    write_shop(root, baskets, split)
    (root / "held_out.csv").write_text(
        "order_id,product_id\n"
        + "".join(f"{order_id(user, 6)},{1001 + user % 15}\n" for user in range(50, 61))
    )
    paths = [
        "--seqset",
        root / "seqset",
        "--subjects",
        root / "subjects.parquet",
        "--vocab",
        root / "vocab.parquet",
    ]
    arguments = [
        "pretrain",
        *paths,
        "--out",
        root / "model",
        "--set-position",
        "none",
        "--max-sets",
        "20",
        "--epochs",
        "2",
    ]
    assert command_line.main([*map(str, arguments), "--device", "cpu", "--threads", "1"]) == 0
    return root


@pytest.mark.parametrize("target", ["last_visible", "held_out"])
def test_the_command_writes_every_metric_with_an_interval(target: str, pretrained: Path, tmp_path: Path):
    root = pretrained
    arguments = ["next-set", "--model", root / "model", "--seqset", root / "seqset", "--target", target]
    arguments += ["--subjects", root / "subjects.parquet", "--vocab", root / "vocab.parquet", "--raw", root]
    arguments += ["--out", tmp_path, "--device", "cpu", "--threads", "1"]
    assert command_line.main([*map(str, arguments)]) == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["target"] == target
    assert metrics["users"] == "11"
    assert set(metrics["models"]) == {
        "most_frequent", "nest_cls", "nest_mask", "nest_head",
        "nest_cls_less_most_frequent", "nest_mask_less_most_frequent", "nest_head_less_most_frequent",
    }  # fmt: skip
    for scores in metrics["models"].values():
        for score in scores.values():
            assert -1 <= score["low"] <= score["value"] <= score["high"] <= 1
    assert metrics["models"]["most_frequent"]["recall_at_10"]["value"] > 0.9


def test_a_model_of_baskets_has_no_order_inside_a_set(pretrained: Path):
    config = json.loads((pretrained / "model" / "config.json").read_text())["model"]
    assert config["set_position"] is None
    assert config["max_sets"] == 20

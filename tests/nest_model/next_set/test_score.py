"""Next-set prediction: the target set is hidden, both models use the same history, and the scores are right."""

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
    3: [[12, 13]],  # no earlier basket
    4: [HIDDEN],  # no visible basket
    5: [[14, RARE], [14, RARE, RARE, 15]],
}
basket = st.lists(st.integers(5, VOCAB_SIZE - 1), min_size=1, max_size=8, unique=True)
histories = st.dictionaries(
    st.integers(1, 6), st.lists(basket, min_size=2, max_size=4), min_size=1, max_size=4
)


def everyone(seqsets: SeqSets) -> np.ndarray:
    return np.arange(seqsets.subjects)


def truths(questions: NextSets) -> dict[int, set[int]]:
    tokens_by_subject: dict[int, set[int]] = {int(subject): set() for subject in questions.subject_id}
    for place, token in zip(questions.truth_subject, questions.truth_token, strict=True):
        tokens_by_subject[int(questions.subject_id[place])].add(int(token))
    return tokens_by_subject


def test_last_visible_asks_for_the_last_non_empty_basket(tmp_path: Path):
    seqsets = read_baskets(tmp_path, BASKETS)

    questions = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)

    assert truths(questions) == {1: {5, 8, 9}, 2: {10, 11}, 5: {14, 15, VOCAB_SIZE + 1, VOCAB_SIZE + 2}}
    assert questions.left_out == {"no_visible_set": 1, "nothing_before": 1}
    ends = np.cumsum(np.diff(questions.history.event_offsets[questions.history.set_offsets]))
    history_tokens = np.split(seqsets.tokens[questions.history.events], ends[:-1])
    assert [tokens.tolist() for tokens in history_tokens] == [[5, 6, 5, 7], [10], [14, RARE]]
    assert (questions.history.event_counts[questions.history.set_offsets[1:] - 1] == 0).all()


def test_held_out_asks_for_the_hidden_basket_with_truth_from_file(tmp_path: Path):
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

    questions = held_out(
        seqsets, everyone(seqsets), tmp_path, read_table(tmp_path / "vocab.parquet", VOCAB), VOCAB_SIZE
    )

    assert truths(questions) == {1: {5, 7, VOCAB_SIZE + 1}}
    assert questions.left_out == {"no_hidden_set": 3, "not_in_held_out": 1, "nothing_before": 0}
    assert seqsets.tokens[questions.history.events].tolist() == [5, 6, 5, 7, 5, 8, 9]


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
    ("name", "content", "message"),
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
def test_an_invalid_held_out_raises_an_error_without_values(
    name: str, content: bytes, message: str, tmp_path: Path
):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="held_out") as error:
        read_held_out(tmp_path)
    assert message in str(error.value)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None


def test_most_frequent_prefers_count_then_recency_then_global_count(tmp_path: Path):
    seqsets = read_baskets(tmp_path, {1: [[5, 6, RARE], [6, 7], [8, RARE], [20]], 2: [[9], [9]]})
    history = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE).history
    counts = np.zeros(VOCAB_SIZE, dtype=np.int64)
    counts[[1, 8, 15, 16, 9]] = 100, 50, 40, 40, 30

    most_bought = most_frequent(seqsets, history, counts, 6)

    assert most_bought.tolist() == [
        [6, 8, 7, 5, 15, 16],  # bought twice; once, latest first; then global counts without the user's own 8
        [9, 8, 15, 16, 5, 6],
    ]


@settings(max_examples=30, deadline=None)
@given(histories, st.integers(1, 12))
def test_most_frequent_lists_distinct_tokens_by_count(baskets, k: int):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        seqsets = read_baskets(Path(folder), baskets)
    questions = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)
    most_bought = most_frequent(seqsets, questions.history, np.ones(VOCAB_SIZE, dtype=np.int64), k)
    for user, tokens in zip(sorted(baskets), most_bought.tolist(), strict=True):
        bought = [token for basket in baskets[user][:-1] for token in basket]
        times = [bought.count(token) for token in tokens]
        assert len(set(tokens)) == k
        assert times == sorted(times, reverse=True)
        assert sum(times) == sum(sorted(map(bought.count, set(bought)), reverse=True)[:k])


def queries(seqsets: SeqSets, questions: NextSets):
    return with_queries(pack(seqsets, questions.history, CONFIG), CONFIG.max_set_rows)


def test_query_equals_a_masked_last_set_for_the_model(tmp_path: Path):
    seqsets = read_baskets(tmp_path, {1: [[5, 6], [7], [5, 8, 9]], 2: [[10, 11], [12]]})
    model = seeded_model(CONFIG)
    batch = queries(seqsets, last_visible(seqsets, everyone(seqsets), VOCAB_SIZE))
    query_rows = batch.cls_rows[batch.subject_offsets[1:] - 1]

    whole = pack(seqsets, whole_subjects(seqsets, everyone(seqsets)), CONFIG)
    for seed in range(1000):  # until only the last sets are masked
        masked_sets = mask_sets(whole, torch.Generator().manual_seed(seed), CONFIG)
        if masked_sets.masked_sets.sets.tolist() == (whole.subject_offsets[1:] - 1).tolist():
            break
    expected, rows = model(masked_sets.batch), masked_sets.batch.cls_rows[masked_sets.masked_sets.sets]

    output = model(batch)
    torch.testing.assert_close(output[query_rows], expected[rows], rtol=0, atol=0)
    torch.testing.assert_close(output[query_rows + 1], expected[rows + 1], rtol=0, atol=0)


def test_query_does_not_depend_on_the_target_basket_or_later_sets(tmp_path: Path):
    first = read_baskets(tmp_path / "a", {1: [[5, 6], [7], [5, 8, 9], HIDDEN]})
    other_baskets = read_baskets(tmp_path / "b", {1: [[5, 6], [7], [12], []]})
    batches = [
        queries(seqsets, last_visible(seqsets, everyone(seqsets), VOCAB_SIZE))
        for seqsets in (first, other_baskets)
    ]
    for name in vars(batches[0]):
        assert torch.equal(*(getattr(batch, name) for batch in batches)), name


def test_a_hidden_set_is_never_masked(tmp_path: Path):
    seqsets = read_baskets(tmp_path, BASKETS)
    whole = pack(seqsets, whole_subjects(seqsets, everyone(seqsets)), CONFIG)
    always = ModelConfig(**{**vars(CONFIG), "set_mask_share": 1.0})
    masked_sets = mask_sets(whole, torch.Generator().manual_seed(0), always)
    hidden_sets = {int(place) for place in np.flatnonzero(seqsets.flags)}
    assert hidden_sets
    assert not hidden_sets & set(masked_sets.masked_sets.sets.tolist())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_ndcg_equals_scikit_learn(seed: int):
    rng = np.random.default_rng(seed)
    sets, vocab_size = 4, 40
    scores = rng.permuted(np.tile(np.arange(5, vocab_size, dtype=float), (sets, 1)), axis=1)
    truth = rng.random((sets, vocab_size - 5)) < rng.uniform(0.05, 0.9)
    truth[:, 0] = True
    guesses = torch.from_numpy(np.argsort(-scores, axis=1)[:, :10] + 5)
    target_sets, target_tokens = np.nonzero(truth)

    ranking = rank(guesses, torch.from_numpy(target_sets), torch.from_numpy(target_tokens + 5))

    for place in range(sets):
        expected = ndcg_score(truth[[place]].astype(float), scores[[place]], k=10)
        assert float(ranking.ndcg[place]) == pytest.approx(expected)


def test_scores_and_paired_difference_equal_a_case_by_hand(tmp_path: Path):
    seqsets = read_baskets(tmp_path, {1: [[5], [5, 6]], 2: [[7], [8, RARE]]})
    questions = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)
    guesses = {"nest_mask": torch.tensor([[5, 6], [9, 8]]), "most_frequent": torch.tensor([[5, -1], [7, -1]])}

    scores = compare(guesses, questions, min_users=1)

    recall = {name: by_metric["recall_at_10"].value for name, by_metric in scores.items()}
    assert recall == {"nest_mask": 0.75, "most_frequent": 0.25, "nest_mask_less_most_frequent": 0.5}
    assert set(np.unique(scores["nest_mask"]["recall_at_10"].samples)) <= {0.5, 0.75, 1.0}


@pytest.mark.parametrize("users", [10, 11])
def test_scores_are_withheld_in_table_and_figure_under_eleven_users(users: int, tmp_path: Path):
    seqsets = read_baskets(tmp_path, {user: [[5], [5, 6 + user]] for user in range(users)})
    questions = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)
    guesses = {name: torch.full((users, 10), 5) for name in WORDS}

    scores = compare(guesses, questions)

    metrics = {
        name: {metric: value.json() for metric, value in by_metric.items()}
        for name, by_metric in scores.items()
    }
    values = {
        value[part]
        for by_metric in metrics.values()
        for value in by_metric.values()
        for part in ("value", "low", "high")
    }
    assert (values == {None}) is (users < 11)
    table = pictures.rows({"models": metrics})
    assert [row["Recall@10"] == "withheld" for row in table] == [users < 11] * len(WORDS)
    assert pictures.overview({"models": metrics}).startswith(b"\x89PNG")


def test_both_models_use_the_history_after_the_context_limits(tmp_path: Path):
    seqsets = read_baskets(tmp_path, {1: [[5], [6], [7], [8]]})
    questions = last_visible(seqsets, everyone(seqsets), VOCAB_SIZE)
    history, _ = limit_context(questions.history, max_sets=2, max_set_rows=9)
    assert seqsets.tokens[history.events].tolist() == [7]
    assert most_frequent(seqsets, history, np.zeros(VOCAB_SIZE, dtype=np.int64), 1).tolist() == [[7]]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a shop whose users each buy one personal product and alternate between two others, with its model."""
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
def test_the_command_writes_every_metric_with_an_interval(target: str, shop: Path, tmp_path: Path):
    root = shop
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


def test_basket_model_has_no_position_inside_a_set(shop: Path):
    config = json.loads((shop / "model" / "config.json").read_text())["model"]
    assert config["set_position"] is None
    assert config["max_sets"] == 20

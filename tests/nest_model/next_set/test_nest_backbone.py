"""NEST over baskets: the same rows as from the shards, no influence between users, and unfit models refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from nest_model.config import ModelConfig
from nest_model.data.packed import pack
from nest_model.data.selection import Selection, limit_context
from nest_model.model import checkpoint
from nest_model.model.systems.bert.encoder import Bert
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.next_set import nest_backbone
from nest_model.next_set.nest_backbone import NO_ITEM, NestBackbone, token_of
from nest_model.next_set.query import with_queries
from nest_model.next_set.questions import Histories
from nest_model.training.masking import mask_sets
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.tables.vocab import MASK, UNK, VOCAB
from tests.support.factories.baskets import FIRST, HIDDEN, VOCAB_SIZE, read_baskets, write_item_vocab
from tests.support.factories.histories import baskets_of, histories_of
from tests.support.factories.ragged import seeded, seeded_model

CONFIG = ModelConfig(
    vocab_size=VOCAB_SIZE,
    d_model=8,
    heads=2,
    d_ff=12,
    layers=2,
    max_set_rows=4,
    max_sets=4,
    set_position=None,
)
PRODUCTS = np.array([999, *range(1001, 1021)])  # 999 has no token, 1001 is token 5, …
HISTORIES = {
    1: [[1001, 1002], [1003], [1001, 1004, 1005]],
    2: [[1006, 1007, 1008, 1009, 1010], [1008]],
    3: [[1001], [1002], [1003], [1004], [999, 1005]],
}
TOKENS = {user: [[max(1, p - 996) for p in b] for b in baskets] for user, baskets in HISTORIES.items()}
TOKENS[3][4] = [UNK, 9]


@pytest.fixture(scope="module")
def fabric() -> Fabric:
    return Fabric(accelerator="cpu", devices=1)


def backbone_of(config: ModelConfig, fabric: Fabric, **options) -> NestBackbone:
    tokens = np.where(PRODUCTS == 999, UNK, PRODUCTS - 1001 + FIRST)
    return NestBackbone(seeded_model(config, dtype=torch.float32), PRODUCTS, tokens, fabric, **options)


def histories(baskets=HISTORIES) -> Histories:
    return histories_of(baskets_of(baskets, product_id=PRODUCTS.tolist()))


def shard_batch(folder: Path, config: ModelConfig, baskets=TOKENS):
    """Pack the same histories from shards, with a hidden set for the query."""
    seqsets = read_baskets(folder, {user: [*sets, HIDDEN] for user, sets in baskets.items()})
    gaps = np.diff(seqsets.days_since_first, prepend=np.float32(0))
    gaps[seqsets.days_since_first == 0] = 0
    seqsets = replace(seqsets, days_since_prior=gaps)
    offsets = seqsets.subject_offsets
    selection = Selection.of_sets(seqsets, offsets[:-1], offsets[1:] - 1)
    selection, _ = limit_context(selection, max_sets=config.max_sets, max_set_rows=config.max_set_rows)
    return with_queries(pack(seqsets, selection, config), config.max_set_rows)


@pytest.mark.parametrize("position", ["days_since_first", "days_since_prior", "index"])
def test_histories_pack_as_the_same_shards_do(position: str, fabric: Fabric, tmp_path: Path):
    config = replace(CONFIG, cse_position=position)
    expected = shard_batch(tmp_path, config)

    packed_histories = backbone_of(config, fabric).pack(histories())

    unread_columns = {"gaps", "days_of_year"}
    assert not unread_columns & NestModel.depends_on
    for name, column in vars(expected).items():
        if name not in unread_columns:
            assert torch.equal(getattr(packed_histories.batch, name), column), name


def test_every_line_knows_its_product(fabric: Fabric):
    packed_histories = backbone_of(CONFIG, fabric).pack(histories())
    items = packed_histories.item_of_row
    assert PRODUCTS[items[(packed_histories.user_of_row == 2) & (items != NO_ITEM)]].tolist() == [
        1003,
        1004,
        999,
        1005,
    ]
    lines = items != NO_ITEM
    tokens = backbone_of(CONFIG, fabric).token_of_product[items[lines]]
    assert torch.equal(tokens, packed_histories.batch.tokens[lines])
    assert (packed_histories.batch.tokens[packed_histories.query_cls_rows + 1] == MASK).all()
    assert not lines[packed_histories.query_cls_rows + 1].any()


def test_a_query_equals_a_masked_last_set(fabric: Fabric, tmp_path: Path):
    config = replace(CONFIG, max_set_rows=9, max_sets=9)
    baskets = {1: TOKENS[1], 3: TOKENS[3]}
    whole = {user: [*sets, [17, 18]] for user, sets in baskets.items()}
    seqsets = read_baskets(tmp_path, whole)
    offsets = seqsets.subject_offsets
    batch = pack(seqsets, Selection.of_sets(seqsets, offsets[:-1], offsets[1:] - 1), config)
    last = (batch.subject_offsets[1:] - 1).tolist()
    for seed in range(5000):  # until only the last sets are masked
        masked_batch = mask_sets(batch, torch.Generator().manual_seed(seed), config)
        if masked_batch.masked_sets.sets.tolist() == last:
            break
    backbone = backbone_of(config, fabric)
    rows = masked_batch.batch.cls_rows[masked_batch.masked_sets.sets]
    expected = backbone.model(masked_batch.batch)

    states = backbone.query_states(histories({user: HISTORIES[user] for user in baskets}))

    torch.testing.assert_close(states.cls, expected[rows], rtol=0, atol=1e-6)
    torch.testing.assert_close(states.mask, expected[rows + 1], rtol=0, atol=1e-6)


def test_a_weighted_query_row_equals_as_many_rows(fabric: Fabric):
    backbone = backbone_of(CONFIG, fabric, query_rows=6)
    packed_histories = backbone.pack(histories({1: HISTORIES[1]}))
    rows, last = packed_histories.batch, int(packed_histories.query_cls_rows[0])
    repeats = torch.ones(len(rows.tokens), dtype=torch.int64)
    repeats[last + 1] = 5
    ends = torch.cat([torch.zeros(1, dtype=torch.int64), repeats.cumsum(0)])
    literal = replace(
        rows,
        tokens=rows.tokens.repeat_interleave(repeats),
        hours=rows.hours.repeat_interleave(repeats),
        key_bias=torch.zeros(int(ends[-1]), dtype=torch.float64),
        set_offsets=ends[rows.set_offsets],
    )
    plain = replace(backbone.config, shortcuts=replace(backbone.config.shortcuts, merged_duplicates=False))
    backbone.model.config = plain
    torch.testing.assert_close(
        backbone.model(literal)[last : last + 2], backbone.model(rows)[last : last + 2], rtol=0, atol=1e-5
    )


def test_neighbours_and_blocks_change_nothing(fabric: Fabric, monkeypatch: pytest.MonkeyPatch):
    backbone = backbone_of(CONFIG, fabric)
    together = backbone.query_states(histories())
    alone = [backbone.query_states(histories({user: HISTORIES[user]})) for user in HISTORIES]
    torch.testing.assert_close(together.mask, torch.cat([states.mask for states in alone]), rtol=0, atol=1e-5)
    monkeypatch.setattr(nest_backbone, "ROW_BUDGET", 3)
    torch.testing.assert_close(backbone.query_states(histories()).cls, together.cls, rtol=0, atol=1e-5)


def test_user_vectors_are_of_the_query_or_of_the_last_basket(fabric: Fabric):
    query, last = (backbone_of(CONFIG, fabric, user_vector=name) for name in ("query", "last"))
    later = replace(histories(), query_days=histories().query_days + 30)
    torch.testing.assert_close(query.user_vectors(histories()), query.query_states(histories()).cls)
    assert not torch.allclose(query.user_vectors(histories()), query.user_vectors(later))
    assert not torch.allclose(query.user_vectors(histories()), last.user_vectors(histories()))


def test_a_product_without_a_token_has_the_row_of_unknown(fabric: Fabric):
    backbone = backbone_of(CONFIG, fabric)
    weight = backbone.model.embedding.weight
    assert torch.equal(backbone.product_table[0], weight[UNK])
    assert torch.equal(backbone.product_table[3], weight[FIRST + 2])
    assert backbone.has_token.tolist() == [False, *[True] * 20]


def test_the_share_of_a_history_beyond_the_limits_is_counted(fabric: Fabric):
    cut = backbone_of(CONFIG, fabric).cut(histories())
    assert cut.baskets_share == pytest.approx(2 / 10)  # of user 3's five baskets three are read
    assert cut.lines_share == pytest.approx(4 / 18)  # and of user 2's first basket three of five products


def test_tokens_of_products_are_read_from_the_vocabulary(tmp_path: Path):
    write_item_vocab(tmp_path / "vocab.parquet")
    words = read_table(tmp_path / "vocab.parquet", VOCAB)
    assert token_of(np.array([1003, 999, 5, 1001]), words).tolist() == [7, UNK, UNK, 5]


def save_model(folder: Path, config: ModelConfig, vocab_sha256: str) -> Path:
    model = seeded_model(config, dtype=torch.float32)
    card = checkpoint.ModelCard("nest", config, vocab_sha256, {})
    checkpoint.save(folder, model.state_dict(), card, "")
    return folder


@pytest.mark.parametrize(
    ("changes", "other_vocabulary", "message"),
    [
        ({"layers": 1}, False, "one layer"),
        ({"max_sets": 1}, False, "reads one set"),
        ({"cross_set": False}, False, "without cross-set blocks"),
        ({}, True, "reads another vocabulary"),
    ],
)
def test_an_unfit_model_is_refused(
    changes: dict, other_vocabulary: bool, message: str, fabric: Fabric, tmp_path: Path
):
    sha256 = write_item_vocab(tmp_path / "vocab.parquet")
    config = replace(CONFIG, **changes)
    folder = save_model(tmp_path / "model", config, "0" * 64 if other_vocabulary else sha256)
    with pytest.raises(NestError, match=message):
        NestBackbone.load(folder, tmp_path / "vocab.parquet", PRODUCTS, fabric)


def test_a_model_of_another_system_is_refused(fabric: Fabric, tmp_path: Path):
    sha256 = write_item_vocab(tmp_path / "vocab.parquet")
    model, card = seeded(Bert, CONFIG, dtype=torch.float32), checkpoint.ModelCard("bert", CONFIG, sha256, {})
    checkpoint.save(tmp_path / "model", model.state_dict(), card, "")
    with pytest.raises(NestError, match=r"model: a pretrained bert; next baskets are asked of a NEST\."):
        NestBackbone.load(tmp_path / "model", tmp_path / "vocab.parquet", PRODUCTS, fabric)


def test_a_saved_model_is_read_with_its_vocabulary(fabric: Fabric, tmp_path: Path):
    sha256 = write_item_vocab(tmp_path / "vocab.parquet")
    folder = save_model(tmp_path / "model", CONFIG, sha256)
    backbone = NestBackbone.load(folder, tmp_path / "vocab.parquet", PRODUCTS, fabric)
    expected = backbone_of(CONFIG, fabric).user_vectors(histories())
    torch.testing.assert_close(backbone.user_vectors(histories()), expected)

"""A synthetic shop: users and their baskets as shards, for tests of next-set prediction."""

from pathlib import Path

import pyarrow as pa

from nest_model.data.seqsets import SeqSets
from schemas.contract import read_table, write_table
from schemas.tables.events import KINDS
from schemas.tables.seqset import TARGET_HIDDEN
from schemas.tables.vocab import SPECIALS, UNK, VOCAB, content_sha256
from tests.support.factories.shards import DAY_US, set_row, write_shards
from tests.support.factories.world import write_subjects

ITEM = KINDS.index("ITEM")
PRODUCTS = 20
FIRST = len(SPECIALS)
VOCAB_SIZE = FIRST + PRODUCTS
HIDDEN = "hidden"
RARE = UNK


def order_id(user: int, number: int) -> int:
    return 1000 * user + number


def basket_rows(baskets: dict[int, list[list[int] | str]]) -> list[dict]:
    """Return seqset/2 rows of each user's baskets a week apart; a basket is its token ids, or HIDDEN."""
    rows = []
    for user, user_baskets in sorted(baskets.items()):
        for index, basket in enumerate(user_baskets):
            start = 7 * DAY_US * index
            tokens = [] if basket == HIDDEN else basket
            row = set_row(
                user,
                index,
                order_id(user, index),
                start,
                [(t, ITEM, start, start) for t in tokens],
                start + 1,
            )
            rows.append(row | {"flags": TARGET_HIDDEN * (basket == HIDDEN)})
    return rows


def write_item_vocab(path: Path, counts: dict[int, int] | None = None) -> str:
    """Write a vocabulary with product 1001 as token 5, 1002 as 6, …, and a rare product; return its hash."""
    products = [(FIRST + number, f"ITEM:{1001 + number}", str(1001 + number)) for number in range(PRODUCTS)]
    rows = [
        *((token, name, "SPECIAL", None, 0) for token, name in enumerate(SPECIALS)),
        *((token, name, "ITEM", code, (counts or {}).get(token, 1)) for token, name, code in products),
        (None, "ITEM:999", "ITEM", "999", 1),
    ]
    names = ("token_id", "token", "kind", "code", "count_train")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    empty = {name: [None] * len(rows) for name in ("unit", "low", "high", "parent")}
    table = pa.table(
        {name: pa.array((columns | empty)[name], VOCAB.field(name).type) for name in VOCAB.names}
    )
    write_table(table, path, VOCAB, made_by="test")
    return content_sha256(read_table(path, VOCAB))


def read_baskets(folder: Path, baskets: dict[int, list[list[int] | str]]) -> SeqSets:
    return SeqSets.read(write_shards(folder, basket_rows(baskets)))


def write_shop(root: Path, baskets: dict[int, list[list[int] | str]], split: dict[int, str]) -> Path:
    """Write vocab.parquet, seqset/ and subjects.parquet of users 1 … n."""
    sha = write_item_vocab(root / "vocab.parquet")
    write_shards(root / "seqset", basket_rows(baskets), vocab_sha256=sha)
    splits = ["", *(split[user] for user in sorted(baskets))]
    write_subjects(root / "subjects.parquet", splits, splits)
    return root

"""Read the vocabulary that shards were written with, and refuse any other."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from schemas.contract import read_table
from schemas.errors import InputError
from schemas.tables.vocab import VOCAB, content_sha256


def read_tokens(vocab: Path, vocab_sha256: str) -> pa.Table:
    """Return the tokens that have an id, sorted by it.

    Raises:
        InputError: the shards were written with another vocabulary.
    """
    table = read_table(vocab, VOCAB)
    if content_sha256(table) != vocab_sha256:
        raise InputError(
            f"{vocab}: not the vocabulary the shards were written with ({vocab_sha256[:8]}…); "
            "materialize the shards again."
        )
    return table.filter(pc.is_valid(table["token_id"])).sort_by("token_id")

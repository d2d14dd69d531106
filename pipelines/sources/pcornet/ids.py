"""A site's ids as keyed hashes, so that nobody without the site's salt can identify a patient."""

from hashlib import blake2b

import numpy as np
import polars as pl

from schemas.errors import InputError
from schemas.nouns import with_noun

SHORTEST_SALT = 16
SYNTHETIC_SALT = "the synthetic CDM is nobody's"
"""The salt of the synthetic CDM: its patients need no protection, and its ids are the same everywhere."""


class Ids:
    """The hash from texts to 63-bit ids: BLAKE2b of 64 bits with the salt as key, without the lowest bit.

    Raises:
        InputError: the salt has fewer than `SHORTEST_SALT` characters, and could be guessed.
    """

    def __init__(self, salt: str) -> None:
        if len(salt) < SHORTEST_SALT:
            raise InputError(
                f"NEST_SITE_SALT: a salt of {with_noun(len(salt), 'character')} is too short; give {SHORTEST_SALT} or "
                "more, e.g. the output of `openssl rand -hex 32`, and keep them: another salt makes other ids."
            )
        self._key = blake2b(salt.encode(), digest_size=32).digest()  # a key has at most 64 bytes

    @property
    def fingerprint(self) -> int:
        """A number that differs between salts and reveals no more of one than any id does."""
        return self._id("salt", "")

    def of(self, texts: pl.Series, column: str) -> pl.Series:
        """Return an id for each text, i64 [rows]; null for null.

        Args:
            texts: PATID or ENCOUNTERID, stripped.
            column: `PATID` or `ENCOUNTERID`, so that a patient and a visit of the same name get different ids.
        """
        distinct_texts = texts.unique().drop_nulls()
        hashes = np.array([self._id(column, text) for text in distinct_texts], dtype=np.int64)
        id_table = pl.DataFrame({"text": distinct_texts, "id": pl.Series(hashes, dtype=pl.Int64)})
        return (
            pl.DataFrame({"text": texts}, schema={"text": pl.String})
            .join(id_table, on="text", how="left", maintain_order="left")["id"]
            .rename(texts.name)
        )

    def _id(self, column: str, text: str) -> int:
        digest = blake2b(f"{column}:{text}".encode(), digest_size=8, key=self._key).digest()
        return int.from_bytes(digest, "big") >> 1

"""A site's own ids to ours: keyed hashes, so that nobody without the site's salt can tell whose row it is."""

from hashlib import blake2b

import numpy as np
import polars as pl

from schemas.errors import InputError

SHORTEST_SALT = 16
SYNTHETIC_SALT = "the synthetic CDM is nobody's"
"""Of the CDM that is made up: its patients have nothing to hide, and its ids are the same everywhere."""


class Ids:
    """Turns texts into ids of 63 bits: BLAKE2b of 64 bits under the salt as its key, less the lowest bit.

    Raises:
        InputError: the salt is shorter than `SHORTEST_SALT` characters, and could be found by trying.
    """

    def __init__(self, salt: str) -> None:
        if len(salt) < SHORTEST_SALT:
            raise InputError(
                f"NEST_SITE_SALT: {len(salt)} characters are too few; give {SHORTEST_SALT} or more, e.g. what "
                "`openssl rand -hex 32` prints, and keep them: other characters make other ids."
            )
        self._key = blake2b(salt.encode(), digest_size=32).digest()  # a key may have 64 bytes, a salt more

    @property
    def fingerprint(self) -> int:
        """What tells two salts apart and says no more of one than any id does."""
        return self._id("salt", "")

    def of(self, texts: pl.Series, column: str) -> pl.Series:
        """Return an id for each text, i64 [rows], null where there is none.

        Args:
            texts: PATID or ENCOUNTERID, stripped.
            column: which of the two, so that a patient and a visit of the same name have ids of their own.
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

"""Baskets of products: one row per order, sorted by (subject_id, basket_index); each subject is in one file.

The products are those of the shop, not the vocabulary's tokens: what is too rare for a token is here too.
"""

import pyarrow as pa

from schemas.tables.columns import column

BASKETS = pa.schema(
    [
        column("subject_id", pa.int64(), "the buyer"),
        column("basket_index", pa.int32(), "0, 1, … within the subject, as the set_index of the shards"),
        column("encounter_id", pa.int64(), "the order"),
        column("start", pa.timestamp("us"), "start of the order"),
        column("days_since_first", pa.float32(), "start to start; 0 for the first basket"),
        column(
            "products", pa.list_(pa.int64()), "distinct product ids, in the order they went into the cart"
        ),
        column("flags", pa.int32(), "flags of the shards: 2 means that the content is withheld"),
    ],
    metadata={"contract": "baskets/1"},
)

"""Ranked products of test users, and the score of each user; both stay in the data folder: they are about people."""

import pyarrow as pa

from schemas.tables.columns import column

RANKINGS = pa.schema(
    [
        column("seed", pa.int64(), "seed of the system"),
        column("subject_id", pa.int64(), "the buyer"),
        column("product_ids", pa.list_(pa.int64()), "ranked products, best first; a list can be short"),
        column("scores", pa.list_(pa.float64()), "score of each, by which they are ranked"),
    ],
    metadata={"contract": "nbr_rankings/1"},
)

_METRICS = {
    "recall": "recall at 10",
    "ndcg": "NDCG at 10, over min(10, target products)",
    "ndcg_all_truth": "NDCG at 10, over all target products",
    "ndcg_fixed_k": "NDCG at 10, over 10",
    "hit": "1 if any of the 10 is a target product",
    "recall_repeat_part": "part of recall from products of the history",
    "recall_explore_part": "part of recall from new products",
    "ndcg_repeat_part": "part of NDCG from products of the history",
    "ndcg_explore_part": "part of NDCG from new products",
    "recall_of_repeats": "share of the bought-again products that are listed; empty if there is none",
    "recall_of_new": "share of the new products that are listed; empty if there is none",
    "share_on_repeats": "share of the list that is in the history; empty for an empty list",
    "recall_at_20": "recall at 20",
    "ndcg_at_20": "NDCG at 20, over min(20, target products)",
}

NEXT_SET_SCORES = pa.schema(
    [
        column("seed", pa.int64(), "seed of the system"),
        column("is_filled", pa.bool_(), "short lists were filled with everybody's most frequent products"),
        column("subject_id", pa.int64(), "the buyer"),
        column("baskets", pa.int32(), "baskets of the history"),
        column("truths", pa.int32(), "distinct target products"),
        column("repeat_truths", pa.int32(), "those of them that are in the history"),
        *(column(name, pa.float32(), about, nullable=True) for name, about in _METRICS.items()),
    ],
    metadata={"contract": "nbr_scores/1"},
)

"""Ranked lists and their scores as tables: nbr_rankings/1 and nbr_scores/1."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from nest_model.next_set import metrics
from nest_model.next_set.questions import Questions
from nest_model.next_set.ranking import LISTED, NO_PRODUCT, K, Ranking


def rankings_table(rankings: Mapping[int, Ranking], subject_id: np.ndarray) -> pa.Table:
    """Return the lists of some users, i64 [users], and each seed, under nbr_rankings/1."""
    tables = []
    for seed, ranking in rankings.items():
        is_listed = ranking.product_id != NO_PRODUCT
        offsets = pa.array(np.concatenate([[0], np.cumsum(is_listed.sum(axis=1))]), pa.int32())
        columns = {
            "seed": np.full(len(ranking), seed),
            "subject_id": subject_id,
            "product_ids": pa.ListArray.from_arrays(offsets, pa.array(ranking.product_id[is_listed])),
            "scores": pa.ListArray.from_arrays(offsets, pa.array(ranking.scores[is_listed])),
        }
        tables.append(pa.table(columns))
    return pa.concat_tables(tables)


def ranking_of(table: pa.Table, users: int) -> Ranking:
    """Return the lists of one seed's table."""
    column = table["product_ids"].combine_chunks()
    sizes = np.diff(column.offsets.to_numpy())
    is_listed = np.arange(LISTED) < sizes[:, None]
    ranking = Ranking(
        np.full((users, LISTED), NO_PRODUCT, dtype=np.int64),
        np.full((users, LISTED), np.nan),
    )
    ranking.product_id[is_listed] = column.flatten().to_numpy()
    ranking.scores[is_listed] = table["scores"].combine_chunks().flatten().to_numpy()
    return ranking


def scores_table(lists: Mapping[bool, Mapping[int, Ranking]], questions: Questions) -> pa.Table:
    """Return the scores of every user for each seed of own and of filled lists, under nbr_scores/1."""
    tables = []
    for is_filled, rankings in lists.items():
        for seed, ranking in rankings.items():
            scores, longer = (metrics.score_rankings(ranking, questions, k) for k in (K, 2 * K))
            columns = {
                "seed": np.full(len(questions), seed),
                "is_filled": np.full(len(questions), is_filled),
                "subject_id": questions.subject_id,
                "baskets": questions.histories.baskets.lengths,
                "truths": scores.truths,
                "repeat_truths": scores.repeat_truths,
                **scores.values,
                "recall_at_20": longer.values["recall"],
                "ndcg_at_20": longer.values["ndcg"],
            }
            tables.append(
                pa.table({name: pa.array(column, from_pandas=True) for name, column in columns.items()})
            )
    return pa.concat_tables(tables)

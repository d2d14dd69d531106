"""The features of LightGBM: counts of the events that the shared selector lets through, and nothing else."""

from typing import Literal

import numpy as np
from scipy import sparse

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets

SIZES = ("sets", "days_since_prior", "tokens_in_target", "tokens_in_history")

DAY_US = 24 * 3600 * 10**6
WINDOW_DAYS = (1, 7, 30, 365)
"""Days before the prediction at which a window ends; the last window has no end. An edge belongs to the nearer one."""

WINDOWS = ("0 to 1 days", "1 to 7 days", "7 to 30 days", "30 to 365 days", "over 365 days")


def count_features(seqsets: SeqSets, selection: Selection, vocab_size: int) -> sparse.csr_matrix:
    """Return f32 [examples, 2 × vocab_size + 4], with the columns that `feature_names` names."""
    examples, last_pair = len(selection), selection.set_offsets[1:] - 1
    pair = selection.pair_of_event
    example = selection.example_of_pair[pair]
    in_target = pair == last_pair[example]
    token = selection.values(seqsets.tokens).astype(np.int64)
    column = np.where(in_target, token, token + vocab_size)
    ones = np.ones(len(column), dtype=np.float32)
    counts = sparse.coo_matrix((ones, (example, column)), shape=(examples, 2 * vocab_size)).tocsr()
    in_target_count = np.bincount(example[in_target], minlength=examples)
    sizes = [
        np.diff(selection.set_offsets),
        seqsets.days_since_prior[selection.target_set],
        in_target_count,
        np.bincount(example, minlength=examples) - in_target_count,
    ]
    dense = sparse.csr_matrix(np.stack(sizes, axis=1).astype(np.float32))
    return sparse.hstack([counts, dense], format="csr", dtype=np.float32)


def window_features(
    seqsets: SeqSets,
    selection: Selection,
    vocab_size: int,
    clock: Literal["available_at", "time"],
    predict_at_us: np.ndarray,
) -> sparse.csr_matrix:
    """Return f32 [examples, 5 × vocab_size], with the columns that `window_names` names.

    Args:
        clock: the task's clock, which decides in which window an event lies.
        predict_at_us: [examples] the prediction times.
    """
    example = selection.example_of_pair[selection.pair_of_event]
    age_us = event_ages_us(seqsets, selection, clock, predict_at_us)
    window = np.searchsorted(np.array(WINDOW_DAYS) * DAY_US, age_us)  # an edge goes to the left
    column = window * vocab_size + selection.values(seqsets.tokens).astype(np.int64)
    ones = np.ones(len(column), dtype=np.float32)
    shape = len(selection), len(WINDOWS) * vocab_size
    return sparse.coo_matrix((ones, (example, column)), shape=shape).tocsr()


def event_ages_us(
    seqsets: SeqSets,
    selection: Selection,
    clock: Literal["available_at", "time"],
    predict_at_us: np.ndarray,
) -> np.ndarray:
    """Return how long before its prediction each selected event lies by the task's clock, i64 [events]."""
    event_time_us = selection.values(seqsets.available_us if clock == "available_at" else seqsets.times_us)
    ages: np.ndarray = predict_at_us[selection.example_of_pair[selection.pair_of_event]] - event_time_us
    return ages


def window_names(tokens: list[str]) -> list[str]:
    """Return the names of the columns of `window_features`; `tokens` are in the order of their ids."""
    return [f"{window} {token}" for window in WINDOWS for token in tokens]


def feature_names(tokens: list[str]) -> list[str]:
    """Return the names of the columns of `count_features`; `tokens` are in the order of their ids."""
    return [f"target {t}" for t in tokens] + [f"history {t}" for t in tokens] + list(SIZES)


def common_columns(train: sparse.csr_matrix, min_rows: int) -> np.ndarray:
    """Return the columns that are non-zero in at least `min_rows` training rows; rarer columns cannot be split on."""
    return np.flatnonzero(np.bincount(train.indices, minlength=train.shape[1]) >= min_rows)


def patients_of_columns(features: sparse.csr_matrix, subject_id: np.ndarray) -> np.ndarray:
    """Return i64 [columns]: how many patients have a non-zero value in each column.

    Args:
        features: [rows, columns].
        subject_id: i64 [rows].
    """
    subjects, row_of = np.unique(subject_id, return_inverse=True)
    membership = sparse.csr_matrix(
        (np.ones(len(row_of), dtype=np.int32), (row_of, np.arange(len(row_of)))),
        shape=(len(subjects), features.shape[0]),
    )
    return np.asarray(((membership @ (features != 0).astype(np.int32)) > 0).sum(axis=0)).ravel()

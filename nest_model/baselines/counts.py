"""The features of LightGBM: counts of the events that the shared selector lets through, and nothing else."""

import numpy as np
from scipy import sparse

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets

SIZES = ("sets", "days_since_prior", "tokens_in_target", "tokens_in_history")


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

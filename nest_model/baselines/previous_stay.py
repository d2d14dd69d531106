"""The features of the logistic regression: which tokens are present, and how each item compares with earlier sets."""

import numpy as np
from scipy import sparse

from nest_model.baselines.counts import count_features
from nest_model.data.measured import MeasuredItems
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets


def previous_stay_features(
    seqsets: SeqSets, selection: Selection, measured_items: MeasuredItems, vocab_size: int
) -> sparse.csr_matrix:
    """Return f64 [examples, columns]; an item without a value has 0 there and in an indicator column of its own.

    The columns: whether each token is in the index set, and whether it is in the history; for each item its mean decile
    in the index set, whether it is measured there, the difference to its mean over the earlier sets, and whether that
    difference exists. An earlier set counts once, however often the item was measured in it.
    """
    presence = count_features(seqsets, selection, vocab_size)[:, : 2 * vocab_size]
    presence.data[:] = 1
    levels = _mean_deciles(seqsets, selection, measured_items)
    last_pair = selection.set_offsets[1:] - 1
    index_level, previous_mean = levels[last_pair], _mean_before(levels, selection)
    has_index_level, has_previous = (index_level > 0).astype(float), (previous_mean > 0).astype(float)
    difference = index_level.multiply(has_previous) - previous_mean.multiply(has_index_level)
    parts = [presence, index_level, has_index_level, difference, has_index_level.multiply(has_previous)]
    return sparse.hstack(parts, format="csr", dtype=np.float64)


def _mean_deciles(seqsets: SeqSets, selection: Selection, measured_items: MeasuredItems) -> sparse.csr_matrix:
    """Return mean deciles [example-set pairs, items]; no entry where an item was not measured."""
    token = selection.values(seqsets.tokens)
    is_measured = measured_items.item[token] >= 0
    token = token[is_measured]
    cells = selection.pair_of_event[is_measured], measured_items.item[token]
    shape = len(selection.event_counts), len(measured_items.items)
    total, count = (
        sparse.coo_matrix((values, cells), shape=shape).tocsr()  # values of the same cell are summed
        for values in (measured_items.decile[token], np.ones(len(token)))
    )
    return _quotient(total, count)


def _mean_before(levels: sparse.csr_matrix, selection: Selection) -> sparse.csr_matrix:
    """Return [examples, items]: the mean over the earlier sets in which an item was measured."""
    example = selection.example_of_pair
    pairs = np.setdiff1d(np.arange(len(example)), selection.set_offsets[1:] - 1)
    earlier_pairs = sparse.csr_matrix(
        (np.ones(len(pairs)), (example[pairs], pairs)), shape=(len(selection), len(example))
    )
    return _quotient(earlier_pairs @ levels, earlier_pairs @ (levels > 0).astype(float))


def _quotient(total: sparse.csr_matrix, count: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return total / count for two matrices with the same cells, all above 0."""
    total.sort_indices()
    count.sort_indices()
    return sparse.csr_matrix((total.data / count.data, total.indices, total.indptr), shape=total.shape)

"""What the logistic regression sees: which tokens there are, and how each item stands against the sets before."""

import numpy as np
from scipy import sparse

from nest_model.baselines.counts import count_features
from nest_model.data.measured import MeasuredItems
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets


def previous_stay_features(
    seqsets: SeqSets, selection: Selection, measured: MeasuredItems, vocab_size: int
) -> sparse.csr_matrix:
    """Return f64 [examples, columns]; an item not measured, or not before, has 0 and says so in a column of its own.

    The columns: whether each token is in the index set, in the history; of each item its mean decile in the index set,
    whether it is measured there, the difference to its mean over the earlier sets, whether there is one. An earlier
    set counts once, however often it was measured in it.
    """
    is_there = count_features(seqsets, selection, vocab_size)[:, : 2 * vocab_size]
    is_there.data[:] = 1
    levels = _mean_deciles(seqsets, selection, measured)
    last_pair = selection.set_offsets[1:] - 1
    now, before = levels[last_pair], _mean_before(levels, selection)
    is_now, is_before = (now > 0).astype(float), (before > 0).astype(float)
    rise = now.multiply(is_before) - before.multiply(is_now)
    parts = [is_there, now, is_now, rise, is_now.multiply(is_before)]
    return sparse.hstack(parts, format="csr", dtype=np.float64)


def _mean_deciles(seqsets: SeqSets, selection: Selection, measured: MeasuredItems) -> sparse.csr_matrix:
    """Return [pairs of an example and a set, items]; no entry where an item was not measured."""
    token = selection.values(seqsets.tokens)
    is_measured = measured.item[token] >= 0
    token = token[is_measured]
    cells = selection.pair_of_event[is_measured], measured.item[token]
    shape = len(selection.event_counts), len(measured.items)
    total, count = (
        sparse.coo_matrix((values, cells), shape=shape).tocsr()  # the values of a cell are added up
        for values in (measured.decile[token], np.ones(len(token)))
    )
    return _quotient(total, count)


def _mean_before(levels: sparse.csr_matrix, selection: Selection) -> sparse.csr_matrix:
    """Return [examples, items]: the mean over the sets before the index set in which an item was measured."""
    example = selection.example_of_pair
    pairs = np.setdiff1d(np.arange(len(example)), selection.set_offsets[1:] - 1)
    before = sparse.csr_matrix(
        (np.ones(len(pairs)), (example[pairs], pairs)), shape=(len(selection), len(example))
    )
    return _quotient(before @ levels, before @ (levels > 0).astype(float))


def _quotient(total: sparse.csr_matrix, count: sparse.csr_matrix) -> sparse.csr_matrix:
    """Return total / count of two matrices with the same cells, all above 0."""
    total.sort_indices()
    count.sort_indices()
    return sparse.csr_matrix((total.data / count.data, total.indices, total.indptr), shape=total.shape)

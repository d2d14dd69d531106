"""The models' input as columns that can be left out one by one: tokens, sizes, order and times.

NEST sees more than counts: how many events there are, which comes first, and when. Each of these has columns here, so
that the audit can detect a leak in any of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from nest_model.audit.known_later import is_index_event
from nest_model.baselines.counts import count_features
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from schemas.tables.events import KINDS

BINS = 10
EVENTS, EVENTS_BEFORE = "Number of events in the index stay", "Number of events before it"
TWINS = 0.8
"""Correlation above which two columns carry the same information."""

NOTHING = "nothing"  # first or last token of a stay without events


@dataclass(frozen=True)
class Columns:
    """A matrix f32 [predictions, columns], and the feature each column belongs to.

    Features 0 to 2 V - 1 are the V tokens in the index stay, then the V tokens in the history, with one column each:
    log(1 + count). The others are sizes, order and times, each with several columns of 0 and 1.
    """

    matrix: sparse.csr_matrix
    feature: np.ndarray  # [columns] index into `names`
    names: tuple[str, ...]
    kinds: tuple[str, ...]  # of the tokens

    @property
    def vocab_size(self) -> int:
        return len(self.kinds)

    def columns_of_features(self, features: Sequence[int] | np.ndarray) -> np.ndarray:
        """Return the columns of these features."""
        return np.flatnonzero(np.isin(self.feature, features))

    def token_features(self, tokens: np.ndarray) -> np.ndarray:
        """Return the features that reveal one of these tokens: in the index stay, first in it, last in it."""
        first = len(self.names) - 2 * (self.vocab_size + 1)
        return np.concatenate([tokens, first + tokens, first + self.vocab_size + 1 + tokens]).astype(np.int64)

    def tokens_of_kind(self, kind: str) -> np.ndarray:
        """Return the ids of a kind's tokens."""
        return np.flatnonzero(np.array(self.kinds, dtype=object) == kind)

    def kind_features(self, kind: str) -> np.ndarray:
        """Return the features of one kind of event of the index stay."""
        return np.append(
            self.token_features(self.tokens_of_kind(kind)), self._features_named(_event_count_name(kind))
        )

    def related_features(self, feature: int) -> np.ndarray:
        """Return a feature with all that reveal the same; for a number of events, the events themselves too."""
        size, name = self.vocab_size, self.names[feature]
        if feature < size:
            return self.token_features(np.array([feature]))
        if name == EVENTS_BEFORE:
            return np.append(np.arange(size, 2 * size), feature)
        kinds = [kind for kind in KINDS if name in (_event_count_name(kind), EVENTS)]
        return np.unique(np.concatenate([np.array([feature]), *map(self.kind_features, kinds)]))

    def twins(self, features: np.ndarray) -> np.ndarray:
        """Return these features and those whose presence is highly correlated with theirs."""
        indicator = self.rows_with(self.columns_of_features(features)).astype(float)
        present = self.matrix.copy()
        present.data = np.ones_like(present.data)
        rows, sizes = len(indicator), np.asarray(present.sum(axis=0)).ravel()
        overlap = np.asarray(present.T @ indicator).ravel()
        spread = sizes * (rows - sizes) * indicator.sum() * (rows - indicator.sum())
        is_twin = np.abs(rows * overlap - sizes * indicator.sum()) > TWINS * np.sqrt(np.maximum(spread, 1))
        return np.union1d(features, self.feature[is_twin])

    def _features_named(self, name: str) -> np.ndarray:
        return np.array(
            [place for place, feature_name in enumerate(self.names) if feature_name == name], dtype=np.int64
        )

    def without(self, features: np.ndarray) -> sparse.csr_matrix:
        """Return the matrix without the columns of these features."""
        return self.matrix[:, ~np.isin(self.feature, features)]

    def rows_with(self, columns: np.ndarray) -> np.ndarray:
        """Return bool [predictions]: whether any of these columns is non-zero."""
        has_entry: np.ndarray = np.diff(self.matrix[:, columns].indptr) > 0
        return has_entry


def columns_of(
    seqsets: SeqSets, selection: Selection, tokens: Sequence[str], kinds: Sequence[str]
) -> Columns:
    """Return all columns of the examples; `tokens` and their `kinds` are in the order of their ids."""
    size = len(tokens)
    counts = count_features(seqsets, selection, size)[:, : 2 * size].tocsr()
    counts.data = np.log1p(counts.data)
    places = [f"{token} in the index stay" for token in tokens] + [f"{token} before it" for token in tokens]
    blocks, feature, names = [counts], [np.arange(2 * size)], list(places)
    for name, values in _sizes_and_times(seqsets, selection):
        bins = _bin_indices(values)
        block = sparse.hstack([_one_hot(bins), _at_most(bins)], format="csr")
        blocks.append(block)
        feature.append(np.full(block.shape[1], len(names)))
        names.append(name)
    for name, token in _first_and_last_tokens(seqsets, selection):
        blocks.append(_one_hot(token, size + 1))
        feature.append(len(names) + np.arange(size + 1))
        names += [f"{token} {name}" for token in (*tokens, NOTHING)]
    matrix = sparse.hstack(blocks, format="csr", dtype=np.float32)
    return Columns(matrix, np.concatenate(feature), tuple(names), tuple(kinds))


def _sizes_and_times(seqsets: SeqSets, selection: Selection) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the name and values [examples] of each size and time; NaN for no value."""
    examples = len(selection)
    last = selection.set_offsets[1:] - 1
    counts, offsets = selection.event_counts, selection.event_offsets
    in_index = counts[last]
    in_all = np.diff(offsets[selection.set_offsets])
    yield "Number of stays", np.diff(selection.set_offsets).astype(float)
    yield "Days since the stay before", seqsets.days_since_prior[selection.target_set].astype(float)
    yield "Days since the first stay", seqsets.days_since_first[selection.target_set].astype(float)
    yield EVENTS, in_index.astype(float)
    yield EVENTS_BEFORE, (in_all - in_index).astype(float)
    events = selection.events[is_index_event(selection)].astype(np.int64)
    example = np.repeat(np.arange(examples), in_index)
    kinds = seqsets.kinds[events]
    for number, kind in enumerate(KINDS):
        if (kinds == number).any():
            yield (
                _event_count_name(kind),
                np.bincount(example[kinds == number], minlength=examples).astype(float),
            )
    hours = seqsets.hours[events].astype(float)
    for name, reduce, empty in (
        ("Hour of the first event of the index stay", np.minimum, np.inf),
        ("Hour of the last event of the index stay", np.maximum, -np.inf),
    ):
        extremes = np.full(examples, empty)
        reduce.at(extremes, example, hours)
        yield name, np.where(np.isfinite(extremes), extremes, np.nan)


def _event_count_name(kind: str) -> str:
    return f"Number of {kind} events in the index stay"


def _first_and_last_tokens(seqsets: SeqSets, selection: Selection) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the first and the last token [examples] of the index stay; -1 for a stay without events."""
    last = selection.set_offsets[1:] - 1
    counts = selection.event_counts[last]
    ends = np.cumsum(counts)
    tokens = np.r_[selection.values(seqsets.tokens)[is_index_event(selection)].astype(np.int64), -1]
    yield "comes first in the index stay", np.where(counts > 0, tokens[ends - counts], -1)
    yield "comes last in the index stay", np.where(counts > 0, tokens[ends - 1], -1)


def _bin_indices(values: np.ndarray) -> np.ndarray:
    """Return bins [examples]: one per distinct value if these are few, else ten of equal mass; -1 for NaN."""
    is_finite = np.isfinite(values)
    distinct = np.unique(values[is_finite])
    if len(distinct) <= 2 * BINS:
        return np.where(is_finite, np.searchsorted(distinct, values), -1)
    edges = np.unique(np.percentile(values[is_finite], np.linspace(0, 100, BINS + 1)[1:-1]))
    return np.where(is_finite, np.searchsorted(edges, values), -1)


def _at_most(bins: np.ndarray) -> sparse.csr_matrix:
    """Return 0 and 1 [examples, bins]: whether a value is known and in this or a lower bin."""
    levels = np.arange(bins.max(initial=0))
    return sparse.csr_matrix(((bins[:, None] >= 0) & (bins[:, None] <= levels)).astype(np.float32))


def _one_hot(place: np.ndarray, width: int | None = None) -> sparse.csr_matrix:
    """Return one-hot rows [examples, width]; the last column is for negative values."""
    width = int(place.max(initial=-1)) + 2 if width is None else width
    column = np.where(place < 0, width - 1, place)
    ones = np.ones(len(place), dtype=np.float32)
    return sparse.csr_matrix((ones, (np.arange(len(place)), column)), shape=(len(place), width))

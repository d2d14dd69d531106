"""The most-frequent baseline: a patient's most frequent tokens, ties by recency, then the most common of all."""

import numpy as np

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from schemas.tables.vocab import SPECIALS


def most_frequent(seqsets: SeqSets, history: Selection, counts: np.ndarray, k: int) -> np.ndarray:
    """Return k tokens for each question, best first, padded with -1: i64 [questions, k].

    Args:
        history: the same history that the model gets.
        counts: i64 [vocab_size], each token's count in the training data; counts of specials are ignored.
    """
    questions, vocab_size = len(history), len(counts)
    pair = np.repeat(np.arange(len(history.sets)), history.event_counts)
    question = np.repeat(np.arange(questions), np.diff(history.set_offsets))[pair]
    token = history.values(seqsets.tokens).astype(np.int64)
    is_token = token >= len(SPECIALS)
    keys, times, last = _times_and_last(question[is_token] * vocab_size + token[is_token], pair[is_token])
    frequent = first_k(
        keys // vocab_size, keys % vocab_size, [keys % vocab_size, -last, -times], questions, k
    )
    return _filled(frequent, most_common(counts, 2 * k), k)


def _times_and_last(key: np.ndarray, pair: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct keys, how often each occurs, and the last (example, set) pair of each."""
    order = np.lexsort([pair, key])
    keys, first, times = np.unique(key[order], return_index=True, return_counts=True)
    return keys, times, pair[order][first + times - 1]


def first_k(
    question: np.ndarray, token: np.ndarray, by: list[np.ndarray], questions: int, k: int
) -> np.ndarray:
    """Return the first k tokens of each question, padded with -1: i64 [questions, k].

    Args:
        by: sort keys, the last one first as in np.lexsort; ties keep their order.
    """
    order = np.lexsort([*by, question])
    question, token = question[order], token[order]
    place = np.arange(len(question)) - np.searchsorted(question, question)
    result = np.full((questions, k), -1, dtype=np.int64)
    result[question[place < k], place[place < k]] = token[place < k]
    return result


def most_common(counts: np.ndarray, k: int) -> np.ndarray:
    """Return the k most common tokens without specials, ties by lower token: i64 [k or fewer]."""
    tokens = np.arange(len(SPECIALS), len(counts))
    return tokens[np.lexsort([tokens, -counts[tokens]])][:k]


def _filled(lists: np.ndarray, popular: np.ndarray, k: int) -> np.ndarray:
    """Fill up each question's list with popular tokens that it does not hold yet."""
    candidates = np.concatenate([lists, np.broadcast_to(popular, (len(lists), len(popular)))], axis=1)
    is_listed = (candidates[:, k:, None] == lists[:, None, :]).any(axis=2)
    usable = np.concatenate([lists >= 0, ~is_listed], axis=1)
    order = np.argsort(~usable, axis=1, kind="stable")[:, :k]
    tokens = np.take_along_axis(candidates, order, axis=1)
    return np.where(np.take_along_axis(usable, order, axis=1), tokens, -1)

"""The yardstick: a user's most frequent tokens, the more recent first among equals, then everybody's."""

import numpy as np

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from schemas.tables.vocab import SPECIALS


def most_frequent(seqsets: SeqSets, history: Selection, counts: np.ndarray, k: int) -> np.ndarray:
    """Return k tokens for each question, best first, -1 where the vocabulary has no more: i64 [questions, k].

    Args:
        history: the very one the model is given.
        counts: i64 [vocab_size] of each token in what was trained on; those of the specials do not matter.
    """
    questions, vocab_size = len(history), len(counts)
    pair = np.repeat(np.arange(len(history.sets)), history.event_counts)
    question = np.repeat(np.arange(questions), np.diff(history.set_offsets))[pair]
    token = history.values(seqsets.tokens).astype(np.int64)
    known = token >= len(SPECIALS)
    keys, times, last = _times_and_last(question[known] * vocab_size + token[known], pair[known])
    own = first_k(keys // vocab_size, keys % vocab_size, [keys % vocab_size, -last, -times], questions, k)
    return _filled(own, most_common(counts, 2 * k), k)


def _times_and_last(key: np.ndarray, pair: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return each key once, how often it occurs, and the last (example, set) pair it occurs in."""
    order = np.lexsort([pair, key])
    keys, first, times = np.unique(key[order], return_index=True, return_counts=True)
    return keys, times, pair[order][first + times - 1]


def first_k(
    question: np.ndarray, token: np.ndarray, by: list[np.ndarray], questions: int, k: int
) -> np.ndarray:
    """Return the first k tokens of each question, -1 where it has no more: i64 [questions, k].

    Args:
        by: the keys they are ordered by, the last first; equal ones stay in the order given.
    """
    order = np.lexsort([*by, question])
    question, token = question[order], token[order]
    place = np.arange(len(question)) - np.searchsorted(question, question)
    chosen = np.full((questions, k), -1, dtype=np.int64)
    chosen[question[place < k], place[place < k]] = token[place < k]
    return chosen


def most_common(counts: np.ndarray, k: int) -> np.ndarray:
    """Return the k tokens of the highest count, specials left out, of equal ones the lower: i64 [k or fewer]."""
    tokens = np.arange(len(SPECIALS), len(counts))
    return tokens[np.lexsort([tokens, -counts[tokens]])][:k]


def _filled(own: np.ndarray, popular: np.ndarray, k: int) -> np.ndarray:
    """Put popular tokens a question has not got where its own end."""
    candidates = np.concatenate([own, np.broadcast_to(popular, (len(own), len(popular)))], axis=1)
    mine = (candidates[:, k:, None] == own[:, None, :]).any(axis=2)
    usable = np.concatenate([own >= 0, ~mine], axis=1)
    order = np.argsort(~usable, axis=1, kind="stable")[:, :k]
    chosen = np.take_along_axis(candidates, order, axis=1)
    return np.where(np.take_along_axis(usable, order, axis=1), chosen, -1)

"""Lists of the most frequent tokens, best first."""

import numpy as np

from schemas.tables.vocab import SPECIALS


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

"""Which rows a model learns from: k with the outcome and k without, of training and of validation alike.

As EHRSHOT draws them (Wornow et al. 2023, arXiv:2307.02028, and its `6_generate_shots.py`): rows and not patients, and
of one draw those of a smaller k are among those of a larger one. Where an outcome has fewer than k rows, EHRSHOT
repeats some; here all of them are taken once.
"""

from collections.abc import Sequence

import numpy as np

from nest_model.data.labels import Labels

SHOTS = (1, 2, 4, 8, 16, 32, 64, 128)
DRAWS = 5


def shots(labels: Labels, k: int | None, draw: int, seed: int) -> Labels:
    """Return k training and k validation rows of either outcome, and every test row.

    Args:
        k: None: all rows.
    """
    if k is None:
        return labels
    truth = labels.truth(("true",))[:, 0]
    rng = np.random.default_rng([seed, draw])
    rows = [np.flatnonzero(labels.split == "test")]
    for split in ("train", "val"):
        for outcome in (True, False):
            candidates = np.flatnonzero((labels.split == split) & (truth == outcome))
            rows.append(rng.permutation(candidates)[:k])
    return labels.take(np.sort(np.concatenate(rows)))


def draws_of(k: int | None, draws: int) -> Sequence[int]:
    """Return the numbers of the draws: all rows are drawn once."""
    return range(1 if k is None else draws)

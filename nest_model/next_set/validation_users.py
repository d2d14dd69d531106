"""The validation users' scores of a system while it learns, and the epoch they choose.

A choice reads the exact scores; what is written or shown of them is withheld where they are of under eleven users.
"""

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nest_model.next_set.metrics import score_rankings
from nest_model.next_set.questions import Questions
from nest_model.next_set.ranking import K
from nest_model.next_set.system import Recommender
from nest_model.training.telemetry import Telemetry
from schemas.suppress import SMALLEST_SHOWN

if TYPE_CHECKING:
    from torch import nn

VALIDATION_USERS = 2_000
"""How many validation users decide when to stop, of a large shop."""


def validation_scores(
    recommender: Recommender, validation: Questions, *, system: str = "next baskets"
) -> dict[str, float]:
    """Return the exact NDCG and recall of the validation users, for choices alone; `system` is named in an error.

    Raises:
        NestError: a list is invalid.
    """
    ranking = recommender.rank(validation.histories, K)
    scores = score_rankings(ranking, validation, K, system=system)
    return {name: float(scores.values[name].mean()) for name in ("ndcg", "recall")}


def disclosable(scores: Mapping[str, float], validation: Questions) -> dict[str, float]:
    """Return the scores, or none of them where they are of under eleven users."""
    return dict(scores) if len(validation) >= SMALLEST_SHOWN else {}


def evenly_spread(validation: Questions) -> Questions:
    """Return VALIDATION_USERS questions, evenly spread; all where there are fewer."""
    users = min(VALIDATION_USERS, len(validation))
    return validation.take(np.linspace(0, len(validation) - 1, users).astype(int))


class BestEpoch:
    """The weights of the epoch with the highest NDCG on the validation users, the earliest of equals.

    Args:
        recommender: ranks with `model` as it is at the time.
        validation: None: the last epoch is the best.
    """

    def __init__(
        self, model: "nn.Module", recommender: Recommender, validation: Questions | None, telemetry: Telemetry
    ) -> None:
        self._model, self._recommender, self._telemetry = model, recommender, telemetry
        self._validation = None if validation is None else evenly_spread(validation)
        self._ndcg = -math.inf
        self._weights: dict[str, Any] | None = None

    def score(self, epoch: int) -> None:
        """Score the model as it is after an epoch, and keep its weights if it is the best."""
        if self._validation is None:
            return
        scores = validation_scores(self._recommender, self._validation)
        self._telemetry.evaluation(epoch, disclosable(scores, self._validation))
        if scores["ndcg"] > self._ndcg:
            self._ndcg, self._weights = scores["ndcg"], copy.deepcopy(self._model.state_dict())

    def restore(self) -> None:
        """Leave the model as it was after its best epoch."""
        if self._weights is not None:
            self._model.load_state_dict(self._weights)

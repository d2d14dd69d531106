"""How well ranked products hit the next basket; the only code that scores rankings of baskets. Free of torch.

T is a user's distinct target products, P the first K products of the list, h_k whether P_k is in T, and
DCG = Σ_{k ≤ K} h_k / log2(k + 1). With I(m) = Σ_{k ≤ m} 1 / log2(k + 1), NDCG is published with three denominators:
`ndcg` divides by I(min(K, |T|)), as the paper does, `ndcg_all_truth` by I(|T|), `ndcg_fixed_k` by I(K); for every user
the first is the larger of the others. A repeat is a product of the user's history H: recall, and NDCG, are the sum of
their repeat part and their explore part.
"""

from dataclasses import dataclass

import numpy as np

from nest_model.data.seqsets import offsets_of
from nest_model.next_set.questions import Questions
from nest_model.next_set.ranking import NO_PRODUCT, Ranking
from schemas.suppress import SMALLEST_SHOWN, is_small

SCORES = ("recall", "ndcg", "ndcg_all_truth", "ndcg_fixed_k", "hit")
PARTS = ("recall_repeat_part", "recall_explore_part", "ndcg_repeat_part", "ndcg_explore_part")
OF_PARTS = ("recall_of_repeats", "recall_of_new", "share_on_repeats")
METRICS = (*SCORES, *PARTS, *OF_PARTS)


@dataclass(frozen=True)
class UserScores:
    """Every metric of each user, NaN where a user has none: the recall of T ∩ H where that is empty, …."""

    values: dict[str, np.ndarray]  # metric -> f64 [users]
    truths: np.ndarray  # i64 [users], |T|
    repeat_truths: np.ndarray  # i64 [users], |T ∩ H|


def score_rankings(
    ranking: Ranking, questions: Questions, k: int, *, system: str = "next baskets"
) -> UserScores:
    """Score the first `k` products of each list; `system` is named where one is invalid.

    Raises:
        NestError: a list repeats a product, has a gap, or ranks a score that is not finite.
    """
    ranking.refuse_invalid(system)
    guesses = ranking.product_id[:, :k]
    users = len(questions)
    user_of_truth = questions.user_of_truth
    user_of_guess = np.repeat(np.arange(users), guesses.shape[1])
    is_listed_place = guesses != NO_PRODUCT
    hits = questions.truth_pairs.hold(user_of_guess, guesses.ravel()).reshape(guesses.shape) & is_listed_place
    repeats = (
        questions.history_pairs.hold(user_of_guess, guesses.ravel()).reshape(guesses.shape) & is_listed_place
    )
    truth_repeats = questions.history_pairs.hold(user_of_truth, questions.truth)

    truths = np.bincount(user_of_truth, minlength=users)
    repeat_truths = np.bincount(user_of_truth[truth_repeats], minlength=users)
    gains = 1 / np.log2(np.arange(2, guesses.shape[1] + 2))
    ideal = best_gains(max(k, int(truths.max(initial=0))))
    best = ideal[np.minimum(k, truths)]
    values = {"recall": hits.sum(1) / truths, "hit": hits.any(1).astype(float)}
    values["ndcg"] = hits @ gains / best
    values["ndcg_all_truth"] = hits @ gains / ideal[truths]
    values["ndcg_fixed_k"] = hits @ gains / ideal[k]
    for part, is_part in (("repeat", hits & repeats), ("explore", hits & ~repeats)):
        values[f"recall_{part}_part"] = is_part.sum(1) / truths
        values[f"ndcg_{part}_part"] = is_part @ gains / best
    with np.errstate(invalid="ignore", divide="ignore"):
        values["recall_of_repeats"] = (hits & repeats).sum(1) / np.where(repeat_truths, repeat_truths, np.nan)
        new_truths = truths - repeat_truths
        values["recall_of_new"] = (hits & ~repeats).sum(1) / np.where(new_truths, new_truths, np.nan)
        slots = is_listed_place.sum(1)
        values["share_on_repeats"] = repeats.sum(1) / np.where(slots, slots, np.nan)
    return UserScores({name: values[name] for name in METRICS}, truths, repeat_truths)


def best_gains(most: int) -> np.ndarray:
    """Return I(0) … I(most), the best DCG of so many products, f64 [most + 1]."""
    best: np.ndarray = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, most + 2)))])
    return best


def oracle(questions: Questions, k: int, *, repeats_only: bool = False) -> Ranking:
    """Return each user's target itself as the list, or those of its products that are in the history: the ceilings."""
    user, truth = questions.user_of_truth, questions.truth
    if repeats_only:
        is_repeat = questions.history_pairs.hold(user, truth)
        user, truth = user[is_repeat], truth[is_repeat]
    place = np.arange(len(user)) - offsets_of(np.bincount(user, minlength=len(questions)))[:-1][user]
    is_listed = place < k
    ids = np.full((len(questions), k), NO_PRODUCT, dtype=np.int64)
    ids[user[is_listed], place[is_listed]] = truth[is_listed]
    return Ranking(ids, np.where(ids == NO_PRODUCT, np.nan, 0.0))


def disclosable_mean(values: np.ndarray) -> float | None:
    """Return the mean over the users that have a value, [users]; None if they are under eleven."""
    has_value = np.isfinite(values)
    return rounded(values[has_value].mean()) if has_value.sum() >= SMALLEST_SHOWN else None


def disclosable_share(values: np.ndarray) -> float | None:
    """Return the mean of zeros and ones, [users]; None if it would tell of one to ten users."""
    part = int(np.count_nonzero(values)), int(np.count_nonzero(values < 1))
    return None if any(is_small(count) for count in part) else disclosable_mean(values)


def rounded(value: float) -> float | None:
    """Return a number with six decimals; None if it is not finite."""
    return round(float(value), 6) if np.isfinite(value) else None


def unnamed_share(questions: Questions, product_ids: np.ndarray) -> float:
    """Return the share of target products that are not among those a system can name, `product_ids`."""
    return float(np.mean(~np.isin(questions.truth, product_ids))) if len(questions.truth) else 0.0

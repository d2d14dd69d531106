"""What is asked of a shop, under each protocol and target: whose next basket, from which history, after what training.

Official: the provider's split. Training users with all their orders are what systems learn from; validation users are
asked for their last order; test users for their last visible one, or for the hidden one.

Published: as studies on this kind of data did it. Nothing is tuned and validation users train too; every user's last
order is in no history, and the histories of all users, the test users' too, are what systems learn from.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pyarrow.compute as pc

from nest_model.data.seqsets import expand_ranges, offsets_of
from nest_model.next_set.baskets import Baskets, OrderRows, read_orders
from nest_model.next_set.held_out import read_held_out
from nest_model.next_set.pairs import Pairs, sorted_distinct
from schemas.contract import read_table
from schemas.errors import InputError, NestError
from schemas.nouns import with_noun
from schemas.suppress import suppress_small
from schemas.tables.events import SUBJECTS
from schemas.tables.seqset import TARGET_HIDDEN

EvaluationProtocol = Literal["official", "published"]
Target = Literal["last_visible", "held_out"]
QueryTime = Literal["given", "expected"]


@dataclass(frozen=True)
class Histories:
    """The baskets of users up to a question, and the day the basket asked for is expected on."""

    baskets: Baskets  # every user has at least one
    query_days: np.ndarray  # f32 [users], since the user's first basket

    def __len__(self) -> int:
        return len(self.baskets)

    def take(self, users: np.ndarray) -> Self:
        """Return the users at these places."""
        return replace(self, baskets=self.baskets.take(users), query_days=self.query_days[users])


@dataclass(frozen=True)
class Questions:
    """Histories and the distinct products of the baskets that came next; the products need not be the shop's."""

    histories: Histories
    truth_offsets: np.ndarray  # i64 [users + 1]
    truth: np.ndarray  # i64 [truths], product ids, ascending within a user
    left_out: dict[str, int]  # reason -> users without a question

    def __len__(self) -> int:
        return len(self.histories)

    @property
    def subject_id(self) -> np.ndarray:
        """The users, i64 [users], ascending."""
        return self.histories.baskets.subject_id

    @property
    def user_of_truth(self) -> np.ndarray:
        """The place of the user of each target product, i64 [truths]."""
        return np.repeat(np.arange(len(self)), np.diff(self.truth_offsets))

    @cached_property
    def truth_pairs(self) -> Pairs:
        """Every user's target products."""
        products = sorted_distinct(self.truth)
        return Pairs.of(self.user_of_truth, np.searchsorted(products, self.truth), products)

    @cached_property
    def history_pairs(self) -> Pairs:
        """Every user's products of the history."""
        baskets = self.histories.baskets
        return Pairs.of(baskets.user_of_line, baskets.items, baskets.product_id)

    def take(self, users: np.ndarray) -> Self:
        """Return the questions at these places, in the order given."""
        sizes = np.diff(self.truth_offsets)[users]
        return replace(
            self,
            histories=self.histories.take(users),
            truth_offsets=offsets_of(sizes),
            truth=self.truth[expand_ranges(self.truth_offsets[users], sizes)],
        )


@dataclass(frozen=True)
class LearningData:
    """What a system may learn from."""

    training: Baskets  # each user's last basket is what learning systems take as their label
    test_histories: Baskets  # only for a system that declares itself transductive
    query_time: QueryTime = "given"  # where a question's day comes from; a label's does too
    all_training: Baskets | None = None  # where `training` is a sample: what it was drawn from

    @property
    def histories(self) -> Baskets:
        """The training users' baskets before their last; users with one basket have none."""
        return self.training.first(self.training.lengths - 1)

    @property
    def everybody(self) -> Baskets:
        """All training users, of whom `training` may be a sample."""
        return self.training if self.all_training is None else self.all_training

    def popularity(self) -> np.ndarray:
        """Return how many baskets of all training users hold each product, i64 [products]."""
        return np.bincount(self.everybody.items, minlength=self.everybody.products)

    @cached_property
    def usual_gap_days(self) -> float:
        """The median number of days between two baskets of a training user before the last, which is a label.

        0 where nobody has two.
        """
        baskets = self.everybody.first(self.everybody.lengths - 1)
        gaps = np.diff(baskets.days)[np.diff(baskets.user_of_basket) == 0]
        return float(np.median(gaps)) if len(gaps) else 0.0

    def expected_days(self, histories: Baskets) -> np.ndarray:
        """Return the day each user's next basket is expected on, f32 [users]: the last day plus the user's median gap.

        A user with one basket has no gap of their own: the training users' median stands for it.
        """
        medians = median_gaps(histories)
        days = histories.days[histories.basket_offsets[1:] - 1]
        expected: np.ndarray = days + np.where(np.isnan(medians), self.usual_gap_days, medians)
        return expected.astype(np.float32)

    def sample(self, users: int, seed: int) -> Self:
        """Return the same with at most so many training users, drawn at random."""
        if len(self.training) <= users:
            return self
        places = np.sort(np.random.default_rng(seed).choice(len(self.training), users, replace=False))
        return replace(self, training=self.training.take(places), all_training=self.everybody)


@dataclass(frozen=True)
class Shop:
    """All that one run of a system sees, and the questions it is scored on."""

    learning_data: LearningData
    validation: Questions | None  # None under the published protocol, and where nobody can be asked
    test: Questions


def read_shop(
    *,
    baskets: Path,
    subjects: Path,
    target: Target,
    protocol: EvaluationProtocol = "official",
    query_time: QueryTime = "given",
    raw: Path | None = None,
) -> Shop:
    """Read a shop's baskets and split them into the data to learn from and the questions.

    Args:
        baskets: the folder of baskets/1.
        subjects: the table of users and their splits.
        raw: the folder of `held_out`; read only for that target.

    Raises:
        NestError: there is nothing to learn from or nothing to ask, or `held_out` is missing or unfit.
    """
    parts = _read_parts(baskets, subjects, target, protocol)
    if target == "held_out" and raw is None:
        raise NestError("--target held_out needs --raw, the folder that holds held_out.")
    held_out = read_held_out(raw) if target == "held_out" and raw else None
    data = parts.learning_data(query_time)
    return Shop(data, parts.validation(data), parts.test(data, held_out))


def read_learning_data(
    *, baskets: Path, subjects: Path, target: Target, protocol: EvaluationProtocol, query_time: QueryTime
) -> tuple[LearningData, Questions | None]:
    """Read the data to learn from for a target, and the validation users' questions; nobody need be asked.

    Raises:
        NestError: there is nothing to learn from.
    """
    parts = _read_parts(baskets, subjects, target, protocol)
    data = parts.learning_data(query_time)
    return data, parts.validation(data)


def _read_parts(baskets: Path, subjects: Path, target: Target, protocol: EvaluationProtocol) -> "_Parts":
    orders = read_orders(baskets)
    split = _splits(orders, subjects)
    return _Parts(orders, split, is_hidden_target=target == "held_out", is_published=protocol == "published")


def _splits(orders: OrderRows, subjects: Path) -> np.ndarray:
    """Return the split of each order's user, as text [orders]."""
    table = read_table(subjects, SUBJECTS).sort_by("subject_id")
    ids = table["subject_id"].to_numpy()
    place = np.minimum(np.searchsorted(ids, orders.subject_id), max(len(ids) - 1, 0))
    if not len(ids) or (missing := int(np.count_nonzero(ids[place] != orders.subject_id))):
        count = missing if len(ids) else len(orders.subject_id)
        raise NestError(
            f"{subjects}: lacks the users of {with_noun(count, 'order')}; the users and the baskets must come from one "
            "run."
        )
    splits: np.ndarray = pc.fill_null(table["split"], "train").to_numpy(zero_copy_only=False)[place]
    return splits


class _Parts:
    """The orders of a shop by their role."""

    def __init__(
        self, orders: OrderRows, split: np.ndarray, *, is_hidden_target: bool, is_published: bool
    ) -> None:
        self.orders, self.is_published = orders, is_published
        self.is_filled = orders.sizes > 0
        self.is_test, self.is_validation = split == "test", split == "val"
        last_filled = _is_last(orders.subject_id, self.is_filled)
        hidden_orders = _is_last(orders.subject_id, orders.flags & TARGET_HIDDEN != 0)
        self.is_test_target = self.is_test & (hidden_orders if is_hidden_target else last_filled)
        self.is_validation_target = self.is_validation & last_filled
        is_target = (
            self.is_test_target | self.is_validation_target | (last_filled & ~self.is_test & is_published)
        )
        self.is_known = self.is_filled & ~_is_from(orders.subject_id, is_target)

    def learning_data(self, query_time: QueryTime) -> LearningData:
        is_known = self.is_known
        is_learnt = is_known if self.is_published else is_known & ~self.is_test & ~self.is_validation
        if not is_learnt.any():
            raise NestError(
                "baskets: no user to learn from has a basket; give users whose last order is `train`."
            )
        products = sorted_distinct(self.orders.product_ids[np.repeat(is_known, self.orders.sizes)])
        return LearningData(
            self._baskets(is_learnt, products), self._baskets(is_known & self.is_test, products), query_time
        )

    def validation(self, data: LearningData) -> Questions | None:
        """Return the validation users' questions; None where there are none."""
        if self.is_published:
            return None
        questions = self._questions(self.is_validation, self.is_validation_target, data, None)
        return questions or None  # without a question, they are false

    def test(self, data: LearningData, held_out: tuple[np.ndarray, np.ndarray] | None) -> Questions:
        """Return the test users' questions.

        Raises:
            NestError: there are none, or `held_out` names an order that is not hidden.
        """
        test = self._questions(self.is_test, self.is_test_target, data, held_out)
        if not len(test):
            left_out = {reason: suppress_small(count) for reason, count in test.left_out.items()}
            raise NestError(
                f"{'baskets' if held_out is None else 'held_out'}: no test user has both products to predict and an "
                f"earlier basket (users without products to predict: {left_out['no_target']}, without an earlier "
                f"basket: {left_out['no_history']}). Check that all files are of one shop."
            )
        return test

    def _baskets(self, is_chosen: np.ndarray, products: np.ndarray) -> Baskets:
        return self.orders.baskets(np.flatnonzero(is_chosen), products)

    def _questions(
        self,
        is_of_split: np.ndarray,
        is_target: np.ndarray,
        data: LearningData,
        held_out: tuple[np.ndarray, np.ndarray] | None,
    ) -> Questions:
        orders = self.orders
        users = len(np.unique(orders.subject_id[is_of_split]))
        targets = np.flatnonzero(is_target)
        target_place, truth = (
            _lines_of(targets, orders) if held_out is None else _held_out_lines(targets, orders, *held_out)
        )
        has_truth = np.isin(np.arange(len(targets)), target_place)
        is_of_target_user = np.isin(orders.subject_id, orders.subject_id[targets])
        histories = self._baskets(self.is_known & is_of_target_user, data.training.product_id)
        has_history = np.isin(orders.subject_id[targets], histories.subject_id)
        is_asked = has_truth & has_history
        left_out = {
            "no_target": users - int(has_truth.sum()),
            "no_history": int((has_truth & ~has_history).sum()),
        }
        place_among_asked = np.cumsum(is_asked) - 1
        is_kept = is_asked[target_place]
        pairs = np.unique(np.stack([place_among_asked[target_place[is_kept]], truth[is_kept]]), axis=1)
        question_orders = targets[is_asked]
        places = np.searchsorted(histories.subject_id, orders.subject_id[question_orders])
        histories = histories.take(places)
        is_given = data.query_time == "given"
        days = orders.days[question_orders] if is_given else data.expected_days(histories)
        return Questions(
            Histories(histories, days.astype(np.float32)),
            offsets_of(np.bincount(pairs[0], minlength=len(question_orders))),
            pairs[1],
            left_out,
        )


def median_gaps(baskets: Baskets) -> np.ndarray:
    """Return the median number of days between each user's baskets, f32 [users]; NaN for a user with one basket."""
    is_within_user = np.diff(baskets.user_of_basket) == 0
    gaps, user = np.diff(baskets.days)[is_within_user], baskets.user_of_basket[1:][is_within_user]
    counts = np.bincount(user, minlength=len(baskets))
    starts = offsets_of(counts)[:-1]
    in_order = np.append(gaps[np.lexsort((gaps, user))], 0.0)
    low = in_order[np.minimum(starts + np.maximum(counts - 1, 0) // 2, len(in_order) - 1)]
    high = in_order[np.minimum(starts + counts // 2, len(in_order) - 1)]
    return np.where(counts > 0, (low + high) / 2, np.nan)


def _is_last(subject_id: np.ndarray, is_candidate: np.ndarray) -> np.ndarray:
    """Return whether each order is its user's last candidate, bool [orders]."""
    candidates = np.flatnonzero(is_candidate)
    subject = subject_id[candidates]
    is_last = np.zeros(len(subject_id), dtype=bool)
    is_last[candidates[np.append(subject[1:] != subject[:-1], True)[: len(subject)]]] = True
    return is_last


def _is_from(subject_id: np.ndarray, is_target: np.ndarray) -> np.ndarray:
    """Return whether each order is its user's target or comes after it, bool [orders]."""
    subjects, first_order = np.unique(subject_id, return_index=True)
    targets = np.flatnonzero(is_target)
    target_order = np.full(len(subjects), len(subject_id))
    target_order[np.searchsorted(subjects, subject_id[targets])] = targets
    orders_of_user = np.diff(np.append(first_order, len(subject_id)))
    is_from: np.ndarray = np.arange(len(subject_id)) >= np.repeat(target_order, orders_of_user)
    return is_from


def _lines_of(targets: np.ndarray, orders: OrderRows) -> tuple[np.ndarray, np.ndarray]:
    """Return the place among `targets` and the product id of each of their lines."""
    return np.repeat(np.arange(len(targets)), orders.sizes[targets]), orders.product_ids[
        orders.lines(targets)
    ]


def _held_out_lines(
    targets: np.ndarray, orders: OrderRows, order_id: np.ndarray, product_id: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the place among `targets` and the product id of each line of `held_out`.

    Raises:
        InputError: a line names an order that is not hidden, or no order.
    """
    by_id = np.argsort(orders.encounter_id[targets], kind="stable")
    ids = orders.encounter_id[targets][by_id]
    place = np.minimum(np.searchsorted(ids, order_id), max(len(ids) - 1, 0))
    is_match = ids[place] == order_id if len(ids) else np.zeros(len(order_id), dtype=bool)
    if count := int(np.count_nonzero(~is_match)):
        raise InputError(
            f"held_out: {count:,} of {len(order_id):,} lines name an order that is not hidden. Give the products of "
            "the hidden orders alone."
        )
    return by_id[place], product_id

"""The users of a block and the times of their orders."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FEWEST_ORDERS, MOST_ORDERS, MEAN_MORE_ORDERS = 4, 100, 13.1
LONGEST_GAP_DAYS = 30  # the real files are capped there
TEST_SHARE = 75_000 / 206_209
_HOUR_WEIGHTS = np.array(
    [1, 1, 1, 1, 1, 2, 4, 10, 19, 28, 32, 32, 31, 31, 31, 31, 30, 25, 20, 16, 12, 9, 7, 4]
)


@dataclass(frozen=True)
class UserOrders:
    """The orders of a block, sorted by user and time."""

    user: NDArray[np.int64]  # [orders] index of the user in the block
    number: NDArray[np.int64]  # [orders] from 1
    first: NDArray[np.int64]  # [users] index of the first order of the user
    per_user: NDArray[np.int64]  # [users]
    appetite: NDArray[np.float64]  # [users] basket size relative to others, about 1
    days_since_prior: NDArray[np.int64]  # [orders] 0 … 30; meaningless for a first order
    day_of_week: NDArray[np.int64]
    hour_of_day: NDArray[np.int64]

    @property
    def users(self) -> int:
        return len(self.per_user)


def orders_per_user(users: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the number of orders of each user including the last: 4 … 100, about 16 on average."""
    extra_orders = rng.exponential(MEAN_MORE_ORDERS, users).astype(np.int64)
    return np.minimum(FEWEST_ORDERS + extra_orders, MOST_ORDERS)


def draw_orders(per_user: NDArray[np.int64], rng: np.random.Generator) -> UserOrders:
    """Draw the times of the orders of each user: weekly rhythms are common, monthly ones rare."""
    users, first = len(per_user), np.cumsum(per_user) - per_user
    user = np.repeat(np.arange(users), per_user)
    rhythm = np.where(rng.random(users) < 0.4, 7.0, rng.uniform(2, 25, users))
    wait_days = rng.gamma(9.0, rhythm[user] / 9.0)
    is_punctual = rng.random(len(user)) < 0.3
    days = np.where(is_punctual, rhythm[user], wait_days).round().astype(np.int64)
    hours = rng.choice(len(_HOUR_WEIGHTS), len(user), p=_HOUR_WEIGHTS / _HOUR_WEIGHTS.sum())
    days = np.minimum(days, LONGEST_GAP_DAYS)
    since_first = np.cumsum(days) - np.repeat(np.cumsum(days)[first], per_user)
    return UserOrders(
        user=user,
        number=np.arange(len(user)) - first[user] + 1,
        first=first,
        per_user=per_user,
        appetite=np.exp(0.6 * rng.standard_normal(users)) * 0.9,
        days_since_prior=days,
        day_of_week=(rng.integers(0, 7, users)[user] + since_first) % 7,
        hour_of_day=hours,
    )

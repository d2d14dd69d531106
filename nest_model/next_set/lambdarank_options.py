"""The options of LightGBM."""

from typing import Literal

from pydantic import Field

from nest_model.next_set.system import NextBasketOptions

MOST_TREES = 600


class LightgbmOptions(NextBasketOptions):
    objective: Literal["lambdarank", "rank_xendcg", "binary"] = Field(
        "lambdarank", description="What the trees minimise."
    )
    explore: int = Field(
        50, ge=0, description="How many of the most popular products are candidates of every user."
    )
    label_positions: int = Field(
        1, ge=1, le=5, description="How many of a training user's last baskets are labels."
    )
    truncation: int = Field(20, ge=1, description="How many places of a list lambdarank improves.")
    leaves: int = Field(31, ge=2, description="Most leaves of a tree.")
    rate: float = Field(0.05, gt=0, description="Learning rate.")
    min_leaf: int = Field(100, ge=1, description="Fewest rows in a leaf.")
    columns: float = Field(0.8, gt=0, le=1, description="Share of the features that a tree sees.")
    l2: float = Field(1.0, ge=0, description="Penalty on the values of leaves.")
    trees: int = Field(
        150, ge=1, le=MOST_TREES, description="Number of trees where no validation user decides it."
    )
    queries: int = Field(
        20_000,
        ge=1,
        description="Most label baskets, as many of each training user; which users, a hash of their ids says.",
    )

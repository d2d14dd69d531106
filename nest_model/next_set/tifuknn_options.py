"""The options of TIFUKNN."""

from typing import Literal

from pydantic import Field

from nest_model.next_set.system import NextBasketOptions


class TifuknnOptions(NextBasketOptions):
    k: int = Field(900, ge=1, description="Number of neighbours.")
    r_b: float = Field(0.9, gt=0, le=1, description="Weight of a basket relative to the next.")
    r_g: float = Field(0.7, gt=0, le=1, description="Weight of a group of baskets relative to the next.")
    alpha: float = Field(0.9, ge=0, le=1, description="Weight of the user; the rest is the neighbours'.")
    m: int = Field(3, ge=1, description="Number of groups of a history.")
    decay: Literal["history", "group"] = Field(
        "history",
        description="Where r_b counts from: history: the user's last basket, as in the authors' program; group: the "
        "last basket of the same group, as the paper can be read.",
    )

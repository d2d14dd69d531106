"""The rules data is made by, and the two presets of them: values alone, no code.

So this file is no part of a step's code: the key of a step holds the values it reads.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class DataRules(BaseModel):
    """The choices the paper leaves open; a preset sets them all. See docs/clock.md and the settings in the README."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fit_on: Literal["train", "all"] = "train"  # top labs, cuts, drug lookup, vocabulary
    min_count: int = Field(default=5, ge=1)  # patients a token needs among the fitted-on subjects
    med_link: Literal["name", "pharmacy"] = "name"
    top_labs: int = Field(default=200, ge=1)
    clock: Literal["available_at", "time"] = "available_at"  # what a cohort cuts on
    pretrain_split: tuple[float, float] = (0.70, 0.85)  # train below, val below, test from
    # of a set among those of its subject; None: as the model's own preset says
    cse_position: Literal["days_since_first", "days_since_prior", "index"] | None = None


PRESETS: dict[str, DataRules] = {
    "default": DataRules(),
    "paper": DataRules(
        fit_on="all",
        min_count=1,
        clock="time",
        pretrain_split=(0.80, 0.90),
        cse_position="days_since_prior",
    ),
}

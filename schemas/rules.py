"""The rules by which data is derived, and two presets of them: only values, no logic.

This file is therefore not part of a step's code version: the key of a step contains the values it reads.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class DataRules(BaseModel):
    """Choices the paper leaves open; a preset sets all of them. See docs/clock.md and docs/settings.md."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fit_on: Literal["train", "all"] = "train"  # patients for top labs, cuts, drug lookup and vocabulary
    min_count: int = Field(default=5, ge=1)  # minimum number of fitted-on patients with a token
    med_link: Literal["name", "pharmacy"] = "name"
    top_labs: int = Field(default=200, ge=1)
    clock: Literal["available_at", "time"] = "available_at"  # the time a cohort cuts events by
    pretrain_split: tuple[float, float] = (
        0.70,
        0.85,
    )  # train below the first, val below the second, else test
    # position of a set in its patient's history; None: as in the model's preset
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

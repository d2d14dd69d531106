"""Faults put into the code of the chain from raw tables to shards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import polars as pl
import pytest

from pipelines import seqsets
from tests.silent_faults.chain import up_to
from tests.silent_faults.fault import Damage, Expectation, Fault, World


def replaced(target: Any, name: str, wrap: Callable[[Any], Any]) -> Damage:
    """Return the harm of another function in place of `target.name`, made by `wrap` from the right one."""

    @contextmanager
    def damage(_: World) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, name, wrap(getattr(target, name)))
            yield

    return damage


def latest_stay_first(number_sets: Any) -> Any:
    def number_backwards(encounters: pl.LazyFrame) -> pl.LazyFrame:
        index = pl.col("set_index")
        return number_sets(encounters).with_columns(set_index=index.max().over("subject_id") - index)

    return number_backwards


def a_day_later(number_sets: Any) -> Any:
    return lambda encounters: number_sets(encounters).with_columns(pl.col("start") + pl.duration(days=1))


FAULTS = [
    Fault(
        "stays of a patient numbered from the latest",
        "code",
        replaced(seqsets, "number_sets", latest_stay_first),
        up_to("mimic_seqset"),
        Expectation("mimic_seqset", "sets_are_in_order_of_start"),
        is_quick=True,
    ),
    Fault(
        "sets that start a day after their stay",
        "code",
        replaced(seqsets, "number_sets", a_day_later),
        up_to("mimic_seqset"),
        Expectation("mimic_seqset", "set_starts_with_its_encounter"),
    ),
]

"""Faults of the clock: events available too early, in the code or in the output of a run."""

from typing import Any

import numpy as np
import polars as pl

from nest_model.data.seqsets import SeqSets
from pipelines.corpus import seqsets
from pipelines.events import clock
from schemas.tables.events import KINDS
from tests.silent_faults.chain import COHORT, whole_chain
from tests.silent_faults.chain_code import code_fault, replace_function
from tests.silent_faults.fault import Check, SilentFault


def after_the_chart_date(right: clock.Clock) -> clock.Clock:
    return {**right, "available_at": right["time"] + clock.ONE_DAY}


def at_admission(right: clock.Clock) -> clock.Clock:
    return {**right, "available_at": right["time"]}


def available_when_dated(right: Any) -> Any:
    """Return a `gather_sets` that writes the time of events as the time they are available."""

    def gather_sets(sets: pl.DataFrame, members: pl.DataFrame, **options: bool) -> Any:
        return right(sets, members.with_columns(available_at="time"), **options)

    return gather_sets


def procedures_when_dated(right: Any) -> Any:
    """Return a `read` that makes procedures available at the time they are dated."""

    def read(folder: Any) -> SeqSets:
        sets = right(folder)
        is_procedure = np.asarray(sets.kinds) == KINDS.index("PR")
        available_us = np.where(is_procedure, sets.times_us, sets.available_us)
        object.__setattr__(sets, "available_us", available_us)
        return sets

    return read


FAULTS = [
    code_fault(
        "clock: a procedure known the day after its chart date",
        replace_function(clock, "PROCEDURE", after_the_chart_date),
        "mimic_events",
        "procedure_code_is_known_from_the_end_on",
        is_quick=True,
    ),
    code_fault(
        "clock: a diagnosis known at admission",
        replace_function(clock, "DIAGNOSIS", at_admission),
        "mimic_events",
        "diagnosis_is_known_from_the_end_on",
    ),
    code_fault(
        "clock: shards say that everything was known when it is dated",
        replace_function(seqsets, "gather_sets", available_when_dated),
        "mimic_seqset",
        "icd_code_is_known_from_the_end_on",
    ),
    SilentFault(
        "clock: models read a procedure as known when it is dated",
        "code",
        replace_function(SeqSets, "read", procedures_when_dated),
        whole_chain,
        Check(f"{COHORT}_labels", "no_feature_after_prediction"),
    ),
]

"""Faults in the code of the chain from raw tables to shards and labels."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from nest_model.data import leak_guard
from pipelines.corpus import build as corpus
from pipelines.corpus import seqsets, tokens
from pipelines.events import split
from pipelines.sources.mimic import steps as mimic
from tests.silent_faults.chain import COHORT, up_to, whole_chain
from tests.silent_faults.fault import Check, Damage, Expectation, Sandbox, SilentFault


def replace_function(target: Any, name: str, wrap: Callable[[Any], Any]) -> Damage:
    """Return a damage that replaces `target.name` by `wrap` of the correct function."""

    @contextmanager
    def damage(_: Sandbox) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(target, name, wrap(getattr(target, name)))
            yield

    return damage


def change_sets(**columns: pl.Expr) -> Damage:
    """Return a damage that changes columns of the numbered sets."""
    return replace_function(
        seqsets, "number_sets", lambda right: lambda encounters: right(encounters).with_columns(**columns)
    )


def set_fault(name: str, title: str, damage: Damage, rule: str, **options: bool) -> SilentFault:
    """Return a fault in the code that a rule of the shards must catch."""
    return SilentFault(
        f"{name}: {title}",
        "code",
        damage,
        up_to("mimic_seqset"),
        Expectation("mimic_seqset", rule),
        **options,
    )


def use_other_seed(_: Any) -> Any:
    def unit_interval(subject_id: int) -> float:
        return int.from_bytes(split.blake2b(b"43:%d" % subject_id, digest_size=8).digest(), "big") / 2**64

    return unit_interval


def use_upper_decile(_: Any) -> Any:
    """Return a `deciles` that puts a value on a cut into the higher decile."""

    def deciles(items: np.ndarray, values: np.ndarray, cuts: pl.DataFrame) -> np.ndarray:
        columns = [cuts[f"cut_{k}"].to_numpy()[items] for k in range(1, 10)] if cuts.height else []
        return 1 + sum((column <= values for column in columns), np.zeros(len(values), dtype=np.uint8))

    return deciles


def drop_repeated_tokens(right: Any) -> Any:
    """Return a `gather_sets` that removes repeated tokens, so that multisets become sets."""

    def gather_sets(sets: pl.DataFrame, members: pl.DataFrame, **options: bool) -> pa.Table:
        return right(sets, members.unique(["set", "token_id"], maintain_order=True), **options)

    return gather_sets


def sort_latest_first(right: Any) -> Any:
    """Return an `order_of` that sorts the members of a set by descending time."""

    def order_of(keys: list[np.ndarray]) -> np.ndarray:
        return right([keys[0], -keys[1]])

    return order_of


def never_back_off(_: Any) -> Any:
    def parent_token(token: pl.Expr) -> pl.Expr:
        return pl.when(pl.lit(False)).then(token)

    return parent_token


def fit_on_all(right: Any) -> Any:
    return lambda layout, rules: right(layout, rules.model_copy(update={"fit_on": "all"}))


def omit_last_row(right: Any) -> Any:
    """Return a `write_numbered` that omits the last event of a kind but counts it as written."""

    def write_numbered(events: pl.DataFrame, *place: Any, **options: Any) -> pl.DataFrame:
        right(events.head(-1), *place, **options)
        return events

    return write_numbered


def select_from_the_future(right: Any) -> Any:
    """Return a `select` that acts as if each prediction were made a century later."""

    def select(seqsets: Any, rule: Any, subjects: Any, encounters: Any, predict_at_us: np.ndarray) -> Any:
        return right(seqsets, rule, subjects, encounters, predict_at_us + 100 * 365 * 86_400_000_000)

    return select


def code_fault(name: str, damage: Damage, asset: str, rule: str, *, is_quick: bool = False) -> SilentFault:
    """Return a fault in the code that a rule of an asset's table must catch."""
    return SilentFault(name, "code", damage, up_to(asset), Expectation(asset, rule), is_quick=is_quick)


FAULTS = [
    SilentFault(
        "split: another seed",
        "code",
        replace_function(split, "unit_interval", use_other_seed),
        up_to("mimic_subjects"),
        Check("mimic_subjects", "split_is_that_of_the_hash"),
        is_quick=True,
    ),
    SilentFault(
        "events: one row of each kind and bucket not written, yet counted",
        "code",
        replace_function(mimic, "write_numbered", omit_last_row),
        up_to("mimic_events"),
        Check("mimic_events", "rows_reconcile"),
    ),
    code_fault(
        "vocabulary: fitted on all patients",
        replace_function(corpus, "training_subjects", fit_on_all),
        "mimic_vocab",
        "procedure_is_counted_in_the_fitted_on_patients_alone",
    ),
    set_fault(
        "sets",
        "numbered from a patient's latest stay",
        change_sets(set_index=pl.col("set_index").max().over("subject_id") - pl.col("set_index")),
        "sets_are_in_order_of_start",
    ),
    set_fault(
        "sets",
        "begun a day late",
        change_sets(start=pl.col("start") + pl.duration(days=1)),
        "set_starts_with_its_encounter",
    ),
    set_fault(
        "sets",
        "gaps in hours for gaps in days",
        change_sets(days_since_prior=pl.col("days_since_prior") * 24),
        "days_since_prior_fits_the_starts",
    ),
    set_fault(
        "tokens",
        "a value on a cut in the decile above",
        replace_function(tokens, "deciles", use_upper_decile),
        "set_holds_the_tokens_of_its_events",
    ),
    set_fault(
        "tokens",
        "each only once in a set",
        replace_function(seqsets, "gather_sets", drop_repeated_tokens),
        "set_has_as_many_tokens_as_events",
    ),
    set_fault(
        "tokens",
        "latest first",
        replace_function(seqsets, "order_of", sort_latest_first),
        "tokens_after_the_diagnoses_rise_in_time",
    ),
    code_fault(
        "vocabulary: a rare code is not backed off to its parent",
        replace_function(tokens, "parent_token", never_back_off),
        "mimic_vocab",
        "diagnoses_without_a_token_are_rare_together",
    ),
    SilentFault(
        "features: what came after the prediction is selected",
        "code",
        replace_function(leak_guard, "select", select_from_the_future),
        whole_chain,
        Check(f"{COHORT}_labels", "no_feature_after_prediction"),
    ),
]

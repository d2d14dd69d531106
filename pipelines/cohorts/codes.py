"""Resolves the code lists of a cohort to the codes in the data, with the number of events of each."""

from collections import Counter
from collections.abc import Iterable
from functools import partial

import polars as pl

from pipelines.cohorts.read import codes_in_bucket
from pipelines.cohorts.tables import Tables, matches
from pipelines.engine.buckets import Buckets
from pipelines.engine.workers import each_bucket
from schemas.cohort import CodeList, Cohort
from schemas.layout import Layout

ResolvedCodes = dict[str, dict[str, dict[str, int]]]
"""code list -> vocabulary -> code -> events."""

_COUNTS = {"list": pl.String(), "vocab": pl.String(), "code": pl.String(), "events": pl.Int64()}


def count_codes(cohort: Cohort, tables: Tables) -> pl.DataFrame:
    """Return list, vocab, code, events: the codes of each list that occur in the events of some patients."""
    counts = [_count(name, codes, tables.events) for name, codes in cohort.codes.items()]
    return pl.concat([pl.DataFrame(schema=_COUNTS), *pl.collect_all(counts)])


def _count(name: str, codes: CodeList, events: pl.LazyFrame) -> pl.LazyFrame:
    is_atc = (pl.col("kind") == "MED") & pl.lit("atc" in codes.patterns)
    return (
        events.filter(matches(codes))
        .select(
            list=pl.lit(name),
            vocab=pl.when(is_atc).then(pl.lit("atc")).otherwise("vocab"),
            code=pl.when(is_atc).then("mapped").otherwise("code"),
        )
        .group_by("list", "vocab", "code")
        .agg(events=pl.len().cast(pl.Int64))
    )


def resolved_codes(cohort: Cohort, counts: Iterable[pl.DataFrame]) -> ResolvedCodes:
    """Return the codes of each list of the file, with their events summed over all `counts`."""
    code_lists: ResolvedCodes = {
        name: {vocab: {} for vocab in codes.patterns} for name, codes in cohort.codes.items()
    }
    total = pl.concat(counts).group_by("list", "vocab", "code").agg(pl.col("events").sum())
    for name, vocab, code, events in total.sort("list", "vocab", "code").iter_rows():
        code_lists[name].setdefault(vocab, {})[code] = events
    return code_lists


def existing_codes(layout: Layout, kinds: tuple[str, ...], vocab: str) -> dict[str, int]:
    """Return all codes of a vocabulary in the data, sorted, with the number of patients of each."""
    work = partial(codes_in_bucket, layout, kinds, vocab)
    total = Counter[str]()
    for counts in each_bucket(f"{vocab} codes", work, len(Buckets.read(layout))):
        total.update(counts)
    return dict(sorted(total.items()))

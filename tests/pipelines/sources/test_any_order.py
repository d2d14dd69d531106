"""The bytes of events and sets do not depend on the order of a provider's rows."""

import random
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipelines.corpus.build import SetRules, fit_vocab, write_bucket
from pipelines.events.store import count_repeated_ranks, events_file, kinds_of, write_events, write_numbered
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.support.examples import examples
from tests.support.meds_tables import make_layout

HASHES = {"vocab": "a" * 64, "config": "b" * 64}


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> tuple[Layout, dict[str, pl.DataFrame]]:
    """One bucket of subjects with a vocabulary fitted on them, and its events by kind."""
    rules = PRESETS["paper"]
    layout = make_layout(tmp_path_factory.mktemp("world"), rules, subjects=9, per_bucket=9)
    fit_vocab(layout, rules)
    files = {kind: events_file(layout.events, kind, 0) for kind in kinds_of(layout.events)}
    return layout, {kind: pl.read_parquet(file) for kind, file in files.items()}


def write_outputs(layout: Layout, events: dict[str, pl.DataFrame], write: Callable) -> dict[str, bytes]:
    """Write events and their sets, and return the bytes of the event files, the shard and its card."""
    for kind, of_kind in events.items():
        write(of_kind, layout.events, kind, 0, made_by="test")
    shards = layout.root / "shards"
    shards.mkdir(exist_ok=True)
    write_bucket(layout, layout, SetRules(), shards, HASHES, 0)
    return {path.name: path.read_bytes() for folder in (layout.events, shards) for path in folder.iterdir()}


def with_ties(events: pl.DataFrame, minutes: int, ranks: int | None) -> pl.DataFrame:
    """Return the events with many ties: coarser times and ranks, and zeros of either sign for most values."""
    zero = pl.when(pl.col("rank") % 2 == 0).then(0.0).otherwise(-0.0)
    return events.with_columns(
        time=pl.col("time").dt.truncate(f"{minutes}m"),
        rank=pl.lit(None, pl.Int64) if ranks is None else pl.col("rank") // ranks,
        value=pl.when(pl.col("value") < 90).then(zero).otherwise(pl.col("value")),
    )


@pytest.mark.parametrize(
    "numbers", [[7, 7, 8, 8], [8, 7, 8, 8], [8, 8, 7, None], [9, 7, 8, None], [7, 10**12, 7, 8]]
)
def test_a_number_counts_as_used_before_among_the_events_of_one_subject(numbers: list[int | None]):
    of_two = pl.DataFrame({"subject_id": [1, 2, 2, 2], "rank": numbers}, schema_overrides={"rank": pl.Int64})
    pairs = [(1, numbers[0]), *((2, number) for number in numbers[1:] if number is not None)]
    assert count_repeated_ranks(of_two) == len(pairs) - len(set(pairs))


@given(st.lists(st.tuples(st.integers(1, 2), st.one_of(st.none(), st.integers(0, 12))), max_size=20))
def test_repeated_numbers_are_counted_in_any_order(rows_drawn: list[tuple[int, int | None]]):
    events = pl.DataFrame(rows_drawn, schema={"subject_id": pl.Int64, "rank": pl.Int64}, orient="row")
    pairs = [pair for pair in rows_drawn if pair[1] is not None]
    for rows in (events, events.sort("subject_id"), events.sort("subject_id", "rank")):
        assert count_repeated_ranks(rows) == len(pairs) - len(set(pairs))


@settings(max_examples=examples(15), phases=[Phase.generate])  # no shuffle is simpler than another
@given(
    dice=st.randoms(use_true_random=False),
    minutes=st.sampled_from([1, 60, 1440]),
    ranks=st.sampled_from([None, 1, 4]),
    write=st.sampled_from([write_events, write_numbered]),
)
def test_events_and_sets_do_not_depend_on_row_order(
    bucket: tuple[Layout, dict[str, pl.DataFrame]],
    dice: random.Random,
    minutes: int,
    ranks: int | None,
    write: Callable,
):
    layout, events = bucket
    as_given = {kind: with_ties(rows, minutes, ranks) for kind, rows in events.items()}
    shuffled_rows = {
        kind: rows[dice.sample(range(rows.height), rows.height)] for kind, rows in as_given.items()
    }
    assert write_outputs(layout, shuffled_rows, write) == write_outputs(layout, as_given, write)

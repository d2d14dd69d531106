"""Labels, attrition and features of random cohorts agree with an independent derivation in SQL."""

from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest.mock import ANY

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_model.data.history import select
from pipelines.cohorts.derive import add_up, derive, derive_part
from pipelines.cohorts.lock_file import task_of
from pipelines.cohorts.tables import Tables
from schemas.cohort import parse_text
from schemas.rules import PRESETS
from schemas.tables.events import KINDS
from tests.support.examples import examples
from tests.support.factories.shards import read_rows, set_row
from tests.support.random_cohorts import episodes_spec, number_spec, spec, time_spec, world
from tests.support.reference_cohorts_sql import CohortSql

SEEDS = st.integers(0, 2**32)


def random_case(random, make=spec):
    """Return a random cohort, of which some requirements look ahead on purpose."""
    file = make(random)
    names = [name for item in file.get("require", []) for name in item if name.startswith("step")]
    if names and random.random() < 0.3:
        file["looks_ahead"] = [random.choice(names)]
    return parse_text(yaml.safe_dump(file, sort_keys=False), file="made_up.yaml")


def derive_both(seed, preset, make=spec):
    """Return the cohort, the tables, the labels of the pipeline and the derivation in SQL."""
    random = Random(seed)
    tables = world(random)
    cohort, rules = random_case(random, make), PRESETS[preset]
    labels = derive(cohort, Tables(*(table.lazy() for table in tables), cohort.codes), rules)
    return cohort, tables, labels, CohortSql(cohort.normalized(), *tables, rules.clock)


def assert_agreement(seed, preset, make=spec):
    _, _, labels, sql = derive_both(seed, preset, make)
    steps = [(step.step, step.index_rows, step.patients, step.dropped) for step in labels.steps]
    assert steps == sql.attrition
    assert labels.rows.rows() == sql.labels


@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
@given(seed=SEEDS)
@settings(max_examples=examples(25), deadline=None)
def test_labels_and_attrition_of_random_cohorts_agree_with_sql(preset, seed):
    assert_agreement(seed, preset)


@given(seed=SEEDS)
@settings(max_examples=examples(15), deadline=None)
def test_episodes_of_many_close_visits_agree_with_sql(seed):
    assert_agreement(seed, "default", episodes_spec)


@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
@given(seed=SEEDS)
@settings(max_examples=examples(12), deadline=None)
def test_numbers_of_random_cohorts_agree_with_sql(preset, seed):
    assert_agreement(seed, preset, number_spec)


def test_random_numbers_are_of_both_kinds_and_lose_rows_at_each_step():
    """If every stay had a value in the window, or none, agreement would mean little."""
    losses = dict.fromkeys(("in the window", "still in the stay"), 0)
    for seed in range(10):
        _, _, labels, _ = derive_both(seed, "paper", number_spec)  # whose clock keeps who left before
        for step in labels.steps:
            for words in losses:
                losses[words] += step.dropped if words in step.step else 0
        assert labels.label_type == "number"
    assert all(losses.values()), losses


@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
@given(seed=SEEDS)
@settings(max_examples=examples(12), deadline=None)
def test_times_to_events_of_random_cohorts_agree_with_sql(preset, seed):
    assert_agreement(seed, preset, time_spec)


def early_codes_spec(random: Random) -> dict:
    """Return a file that asks early in a stay for codes, which may be known only later."""
    before = random.choice(["predict_at", "index.start", "index.start + 1 day", "index.start + 5 days"])
    return spec(random) | {
        "index": {"encounter": {}},
        "require": [
            {"step 0": {random.choice(["event", "no_event"]): "heart", "before": before}},
            {"still there": {"index_longer_than": "2 days"}},
        ],
        "predict_at": "index.start + 2 days",
        "outcome": {"any_encounter": {}, "within": "end_of_data"},
        "features": {"until": "predict_at"},
    }


@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
@given(seed=SEEDS)
@settings(max_examples=examples(25), deadline=None)
def test_codes_known_later_agree_with_sql(preset, seed):
    assert_agreement(seed, preset, early_codes_spec)


def death_spec(random: Random) -> dict:
    return time_spec(random) | {"outcome": {"time_to": {"died": True}, "within": "2 months"}}


@pytest.mark.parametrize("follow_up_days", [10, pytest.param(40, marks=pytest.mark.long)])
def test_times_to_death_agree_with_sql_where_deaths_are_known_for_longer(follow_up_days):
    outcomes = set()
    for seed in range(8):
        tables, rules = world(Random(seed)), PRESETS["default"]
        cohort = random_case(Random(seed), death_spec)
        frames = (table.lazy() for table in tables)
        labels = derive(cohort, Tables(*frames, cohort.codes, None, follow_up_days), rules)
        sql = CohortSql(cohort.normalized(), *tables, rules.clock, death_follow_up_days=follow_up_days)
        assert labels.rows.rows() == sql.labels
        outcomes |= {row["event"] for row in labels.rows["label"]}
        ends = labels.times_days
        assert list(ends) == sorted(set(ends))
    assert outcomes == {False, True}


@pytest.mark.parametrize("preset", ["default", pytest.param("paper", marks=pytest.mark.long)])
@given(seed=SEEDS, patients=st.integers(1, 6))
@settings(max_examples=examples(10), deadline=None)
def test_parts_of_any_bucket_size_add_up_to_the_whole_cohort(preset, seed, patients):
    cohort, tables, whole, _ = derive_both(seed, preset)
    ids = pl.col("subject_id")
    buckets = [
        Tables(*(table.lazy().filter(ids > first, ids <= first + patients) for table in tables), cohort.codes)
        for first in range(0, 10, patients)
    ]
    rules = PRESETS[preset]
    labels = add_up(cohort, [derive_part(cohort, bucket, rules) for bucket in buckets], rules)
    assert labels.rows.equals(whole.rows)
    assert replace(whole, rows=ANY) == labels


@pytest.mark.long
@pytest.mark.parametrize("preset", PRESETS)
@given(seed=SEEDS)
@settings(max_examples=examples(500), deadline=None)
def test_labels_and_attrition_of_very_many_cohorts_agree_with_sql(preset, seed):
    assert_agreement(seed, preset)


def without_other_requirements(random):
    """Return a file with most rows, so that few files show every outcome."""
    random_spec = spec(random)
    return random_spec | {
        "index": {"encounter": {}},
        "require": [item for item in random_spec["require"] if "still there" in item],
    }


def test_random_cohorts_exercise_every_outcome_both_ways():
    """If the worlds were empty, or no outcome ever true, agreement would mean nothing."""
    outcomes = set()
    for seed in range(80):
        random = Random(seed)
        make = without_other_requirements if seed % 8 else episodes_spec
        tables, cohort = world(random), random_case(random, make)
        labels = derive(cohort, Tables(*(table.lazy() for table in tables), cohort.codes), PRESETS["default"])
        outcomes |= {(type(cohort.outcome).__name__, bool(label)) for label in labels.rows["label"].to_list()}
    outcome_names = (
        "IndexDied",
        "IndexLongerThan",
        "AnyEncounter",
        "AnyEvent",
        "Died",
        "EncountersWith",
        "EpisodesOf",
        "LabReached",
        "LabelsOf",
    )
    assert outcomes >= {(name, label) for name in outcome_names for label in (False, True)} | {
        ("ClassOf", True),
        ("LabClass", True),
    }


@pytest.mark.parametrize("preset", PRESETS)
@given(seed=SEEDS)
@settings(max_examples=examples(12), deadline=None)
def test_events_visible_to_a_model_agree_with_sql(preset, seed):
    cohort, (_, encounters, events), derived_labels, sql = derive_both(seed, preset)
    with TemporaryDirectory() as folder:
        seqsets = read_rows(Path(folder), sets_of(encounters, events))
    labels, task = derived_labels.rows, task_of(cohort, derived_labels, PRESETS[preset])
    subject_id, encounter_id = (labels[name].to_numpy() for name in ("subject_id", "index_encounter"))
    predict_at_us = labels["predict_at"].to_physical().to_numpy()
    if labels.is_empty():
        return
    selection = select(seqsets, task.features, subject_id, encounter_id, predict_at_us)
    bounds = selection.event_offsets[selection.set_offsets]
    visible_tokens = seqsets.tokens[selection.events]
    pairs = zip(np.repeat(encounter_id, np.diff(bounds)).tolist(), visible_tokens.tolist(), strict=True)
    assert sorted(pairs) == sql.features


def sets_of(encounters: pl.DataFrame, events: pl.DataFrame) -> list[dict]:
    """Return the encounters as sets of a shard, with the number of each event as its token."""
    rows, place = [], dict.fromkeys(encounters["subject_id"], 0)
    microseconds = pl.col(pl.Datetime).to_physical()
    for stay in (
        encounters.sort("subject_id", "start", "encounter_id")
        .with_columns(microseconds)
        .iter_rows(named=True)
    ):
        stay_events = events.filter(encounter_id=stay["encounter_id"]).with_columns(microseconds)
        set_events = [
            (int(event["value"]), KINDS.index(event["kind"]), event["time"], event["available_at"])
            for event in stay_events.iter_rows(named=True)
        ]
        subject = stay["subject_id"]
        rows.append(
            set_row(subject, place[subject], stay["encounter_id"], stay["start"], set_events, stay["end"])
        )
        place[subject] += 1
    return rows

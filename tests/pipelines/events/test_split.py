from datetime import datetime

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from pipelines.events.split import assign_split, split_by_birth_day, unit_interval

IDS = st.lists(st.integers(1, 2**62), min_size=1, unique=True)


def test_split_hash_is_the_published_hash():
    # printf '42:12345678' | b2sum -l 64
    assert unit_interval(12345678) == 0x40E7D6C2DA176AD5 / 2**64


def test_split_bounds_belong_to_the_upper_split():
    u = unit_interval(7)
    subject = pl.Series([7])
    assert assign_split(subject, u, 1.0).to_list() == ["val"]
    assert assign_split(subject, 0.0, u).to_list() == ["test"]
    assert assign_split(subject, u + 2**-50, 1.0).to_list() == ["train"]


@given(IDS)
def test_split_of_a_patient_does_not_depend_on_other_patients(ids):
    joint_splits = assign_split(pl.Series(ids), 0.7, 0.85).to_list()
    single_splits = [assign_split(pl.Series([subject]), 0.7, 0.85).item() for subject in ids]
    assert joint_splits == single_splits


@given(IDS)
def test_wider_training_split_only_adds_patients(ids):
    narrow = assign_split(pl.Series(ids), 0.70, 0.85).to_list()
    wide = assign_split(pl.Series(ids), 0.80, 0.90).to_list()
    assert all(w == "train" for n, w in zip(narrow, wide, strict=True) if n == "train")


def test_birth_days_17_to_24_are_test_and_the_rest_go_by_hash():
    ids = pl.Series(range(31_000))
    births = pl.Series([datetime(2010, 1, 1 + number % 31) for number in range(31_000)])
    split = split_by_birth_day(ids, births, 0.70, 0.85, (17, 24))
    days = births.dt.day()
    assert ((split == "test") == days.is_between(17, 24)).all()
    rest_splits = split.filter(~days.is_between(17, 24))
    assert (rest_splits == assign_split(ids, 0.70 / 0.85, 1.0).filter(~days.is_between(17, 24))).all()
    assert abs((rest_splits == "train").mean() - 70 / 85) < 0.01

"""Random patients with histories as long as in MIMIC-IV, on which the step and the loader are measured."""

from dataclasses import dataclass

import numpy as np
import torch

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from schemas.tables.vocab import SPECIALS

SHARE_WITH_ONE_SET = 0.56
FURTHER_SETS = 3.318  # mean, of patients with more than one set; 2.46 sets per patient overall
MEAN_SET_ROWS, SIGMA_SET_ROWS = 226, 1.1  # log-normal
EVENTS_AT_A_TIME = 7.0  # mean: a panel of laboratory values has one time
MEAN_HOURS = 113.0  # of a stay
MEAN_DAYS_BETWEEN_SETS = 300.0
DRAWS = 51
ZIPF = 1.18
"""The share of the r-th commonest token is ∝ 1 / r^ZIPF; sets then repeat tokens as in the open demo."""


@dataclass(frozen=True)
class PatientArrays:
    """Random patients as flat arrays of sets and events."""

    sets_per_subject: np.ndarray  # i64 [subjects]
    events_per_set: np.ndarray  # i64 [sets]
    tokens: np.ndarray  # i64 [events], without special tokens
    hours: np.ndarray  # f32 [events], since the set's start
    days: np.ndarray  # f64 [sets], since the subject's first set


def draw(
    patients: int, rng: np.random.Generator, *, vocab_size: int, max_sets: int, max_set_events: int
) -> PatientArrays:
    """Draw patients with the numbers and sizes of sets in MIMIC-IV v3.1, within these limits."""
    further = rng.geometric(1 / FURTHER_SETS, patients) * (rng.random(patients) >= SHARE_WITH_ONE_SET)
    sets_per_subject = np.minimum(1 + further, max_sets)
    sets = int(sets_per_subject.sum())
    mu = np.log(MEAN_SET_ROWS) - SIGMA_SET_ROWS**2 / 2
    sizes = np.rint(rng.lognormal(mu, SIGMA_SET_ROWS, sets)).astype(np.int64)
    events_per_set = np.clip(sizes, 1, max_set_events)
    tokens = _tokens(int(events_per_set.sum()), vocab_size, rng)
    hours = _hours(tokens, events_per_set, rng)
    return PatientArrays(sets_per_subject, events_per_set, tokens, hours, _days(sets_per_subject, rng))


def draw_batch(patients: int, config: ModelConfig, rng: np.random.Generator) -> PackedBatch:
    """Draw patients within the config's context, and pack them."""
    arrays = draw(
        patients,
        rng,
        vocab_size=config.vocab_size,
        max_sets=config.max_sets,
        max_set_events=config.max_set_rows - 1,
    )
    return PackedBatch.from_events(**{name: torch.from_numpy(of) for name, of in vars(arrays).items()})


def draw_typical_batch(patients: int, config: ModelConfig, seed: int) -> PackedBatch:
    """Draw many batches and return the one with the median number of rows, as few patients vary much."""
    batches = [draw_batch(patients, config, np.random.default_rng([seed, turn])) for turn in range(DRAWS)]
    return sorted(batches, key=lambda batch: len(batch.tokens))[DRAWS // 2]


def _tokens(count: int, vocab_size: int, rng: np.random.Generator) -> np.ndarray:
    weights = np.arange(1, vocab_size - len(SPECIALS) + 1) ** -ZIPF
    return len(SPECIALS) + np.searchsorted(weights.cumsum() / weights.sum(), rng.random(count))


def _hours(tokens: np.ndarray, events_per_set: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw each event's hour among the moments of its set; a repeated token gets different moments."""
    set_of_event = np.repeat(np.arange(len(events_per_set)), events_per_set)
    order = np.lexsort((tokens, set_of_event))
    kind = set_of_event[order] * (tokens.max() + 1) + tokens[order]
    first = np.flatnonzero(np.diff(kind, prepend=-1))
    recurrences = np.diff(first, append=len(kind))
    time_of_kind = rng.random(len(first)).repeat(recurrences)
    recurrence = np.arange(len(kind)) - first.repeat(recurrences)
    moments = np.maximum(events_per_set // EVENTS_AT_A_TIME, 1)[set_of_event[order]]
    hours = np.empty(len(tokens), np.float32)
    hours[order] = MEAN_HOURS * ((np.floor(time_of_kind * moments) + recurrence) % moments) / moments
    return hours


def _days(sets_per_subject: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    gaps = rng.exponential(MEAN_DAYS_BETWEEN_SETS, int(sets_per_subject.sum()))
    first = np.cumsum(sets_per_subject) - sets_per_subject
    total = np.cumsum(gaps)
    days: np.ndarray = total - np.repeat(total[first], sets_per_subject)
    return days

"""Measures milliseconds, rows and memory of the forms of a step, the forms taking turns."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from benchmarks.model.measure import process_peak, seconds
from benchmarks.model.step.forms import FORMS, Form, Size, prepare
from nest_model.training.telemetry import Progress

CPU = torch.device("cpu")


def measure(
    words: str, size: Size, names: Sequence[str], patients: int, rounds: int
) -> dict[str, dict[str, Any]]:
    """Return the figures of each form; forms take turns, so that a machine that slows down affects all equally."""
    patient_counts = {name: _patients(FORMS[name], size, patients) for name in names}
    peaks = {name: _peak(FORMS[name], size, patient_counts[name]) for name in names}
    steps = {name: prepare(FORMS[name], size, patient_counts[name]) for name in names}
    milliseconds: dict[str, list[float]] = {name: [] for name in names}
    progress = Progress(None, words, (rounds + 1) * len(steps), "steps")
    for turn in range(rounds + 1):
        for name in _rotate(names, turn):
            took = seconds(steps[name].run, CPU)
            progress.advance(1)
            if turn:  # the first round warms up
                milliseconds[name].append(1000 * took / patient_counts[name])
    return {
        name: {
            "words": FORMS[name].words,
            "patients": patient_counts[name],
            "rows_per_patient": steps[name].rows / patient_counts[name],
            "head_rows_per_patient": steps[name].head_rows / patient_counts[name],
            "peak_bytes": peaks[name],
            "milliseconds_per_patient": milliseconds[name],
            "median_milliseconds_per_patient": float(np.median(milliseconds[name])),
            **_times_as_fast(milliseconds, name),
        }
        for name in names
    }


def _patients(form: Form, size: Size, patients: int) -> int:
    """Return the number of patients to compute: padded ones all cost the same, so a few suffice."""
    return min(size.padded_patients, patients) if form.padded_by else patients


def _peak(form: Form, size: Size, patients: int) -> int:
    tiny = partial(_step, form, replace(size, d_model=8, layers=1, vocab_size=16, max_set_rows=8), 1)
    return process_peak(tiny, partial(_step, form, size, patients))


def _step(form: Form, size: Size, patients: int) -> None:
    prepare(form, size, patients).run()


def _times_as_fast(milliseconds: dict[str, list[float]], name: str) -> dict[str, float]:
    """Return how many times slower each padded form was in the same round, as the median over rounds."""
    return {
        f"times_as_fast_as_{slow}": float(np.median(np.divide(milliseconds[slow], milliseconds[name])))
        for slow, form in FORMS.items()
        if form.padded_by and slow in milliseconds
    }


def _rotate(names: Sequence[str], turn: int) -> list[str]:
    first = turn % len(names)
    return [*names[first:], *names[:first]]

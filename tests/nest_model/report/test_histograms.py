"""The histograms of a source's shards come from its card, and withhold what would tell of few patients."""

import polars as pl

from nest_model.report.histograms import histograms
from nest_model.report.page import data_figures
from pipelines.corpus.data_card import histogram


def test_a_card_has_a_histogram_of_sets_and_tokens_per_patient_and_of_tokens_per_set():
    counts = {"sets": 60}
    for name, sizes in {
        "sets_per_subject": [1] * 20 + [2] * 20,
        "tokens_per_subject": [3] * 30 + [4] * 10,
        "tokens_per_set": [1] * 25 + [2] * 35,
    }.items():
        counts |= histogram(name, pl.Series(sizes))

    bars = histograms(counts)

    assert bars["sets_per_subject"] == [("1", 20), ("2", 20)]
    assert bars["tokens_per_subject"] == [("2", None), ("4", None)], "ten patients are too few to be shown"
    assert bars["tokens_per_set"] == [("1", 25), ("2", 35)]
    assert list(data_figures(bars)) == ["Sets per patient", "Tokens per patient", "Tokens per set"]

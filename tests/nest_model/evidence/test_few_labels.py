"""From how many labelled patients on a model beats counting, in words."""

import numpy as np
import pytest

from nest_model.data.labels import Labels
from nest_model.evidence.few_labels import labelled_counts, points_of_curve, sentence, trees_beside
from nest_model.evidence.rows import rows_by_name
from schemas.suppress import WITHHELD
from tests.silent_faults.leaky_world import write_leaky_hospital

HIDDEN = {"subjects_train": WITHHELD, "rows_train": WITHHELD}
SHARES = (0.05, 0.25, 1.0)
SURE, UNSURE, WORSE, ABSENT = (0.1, 0.05), (0.1, -0.05), (-0.1, -0.2), (None, None)


def sentence_of(differences, patients=("< 11", "80", "300"), title="NEST") -> str | None:
    """Return the sentence on a model with these differences to trees at SHARES."""
    names = ["labels_05", "labels_25", "whole"]
    rows = [
        {"name": name, "title": title, "part": "labels", "whole": "whole", "share": share}
        for name, share in zip(names[:2], SHARES, strict=False)
    ] + [{"name": "whole", "title": title, "part": "systems"}]
    cells = {
        name: {"less_trees": {"auroc": {"value": value, "low": low}}}
        for name, (value, low) in zip(names, differences, strict=True)
    }
    labelled = [{"share": share, "patients": text} for share, text in zip(SHARES, patients, strict=True)]
    task = {"title": "Mortality", "cells": cells, "labelled": labelled if patients[0] else []}
    return sentence({"rows": rows}, task, "auroc", "AUROC")


@pytest.mark.parametrize(
    ("differences", "words"),
    [
        ((SURE, SURE, SURE), "above LightGBM's from under 11 labelled patients on, and surely so"),
        (
            (UNSURE, SURE, SURE),
            "above LightGBM's from under 11 labelled patients on, and surely from 80 labelled patients on",
        ),
        (
            (SURE, UNSURE, SURE),
            "above LightGBM's from under 11 labelled patients on, and surely only with 300 labelled patients",
        ),
        (
            (WORSE, UNSURE, UNSURE),
            "above LightGBM's from 80 labelled patients on, but not surely, even with all labels",
        ),
        ((SURE, WORSE, SURE), "above LightGBM's only with 300 labelled patients, and surely so"),
        ((SURE, SURE, WORSE), "not above LightGBM's, even with all labels"),
        ((ABSENT, WORSE, SURE), "above LightGBM's only with 300 labelled patients, and surely so"),
        ((SURE, SURE, ABSENT), "above LightGBM's from under 11 labelled patients on, and surely so"),
    ],
)
def test_a_model_beats_trees_from_where_it_does_at_every_larger_number(differences, words):
    assert sentence_of(differences) == f"Mortality: the AUROC of NEST is {words}."


def test_without_a_difference_nothing_is_said():
    assert sentence_of((ABSENT, ABSENT, ABSENT)) is None


@pytest.mark.parametrize(
    ("patients", "words"),
    [
        (("withheld", "80", "300"), "5% of the labelled patients"),
        (("> 264", "290", "300"), "over 264 labelled patients"),
        (("", "", ""), "5% of the labelled patients"),
        (("1", "80", "300"), "1 labelled patient"),
    ],
)
def test_a_number_that_is_not_told_is_a_share(patients, words):
    assert sentence_of((SURE, SURE, SURE), patients) == (
        f"Mortality: the AUROC of NEST is above LightGBM's from {words} on, and surely so."
    )


def test_each_encoder_of_the_curve_stands_beside_trees_on_as_many_labels():
    rows = rows_by_name()
    names = ("nest", "bert", "core_behrt", "lightgbm", "lightgbm_windows", "labels_05_nest", "labels_05_lightgbm",
             "labels_25_nest", "labels_25_core_behrt", "labels_25_lightgbm", "labels_50_nest")  # fmt: skip
    assert trees_beside([rows[name] for name in names]) == {
        "labels_05_nest": "labels_05_lightgbm",
        "labels_25_nest": "labels_25_lightgbm",
        "labels_25_core_behrt": "labels_25_lightgbm",
        "nest": "lightgbm",
        "core_behrt": "lightgbm",
    }
    assert trees_beside([rows["nest"], rows["lightgbm"]]) == {}, "there is no curve"
    assert points_of_curve([rows["nest"], rows["lightgbm"]]) == []


@pytest.mark.parametrize(("texts", "counts"), [({}, ["> 89", "100"]), (HIDDEN, ["nearly all", WITHHELD])])
def test_a_share_of_nearly_all_does_not_reveal_a_number_that_the_page_withholds(tmp_path, texts, counts):
    write_leaky_hospital(tmp_path, lambda stay: None)
    labels = Labels.read(tmp_path / "labels.parquet")
    labels = labels.take(np.flatnonzero(labels.split == "train")[:100])
    lines = labelled_counts(labels, {0.5: labels.subject_id[:97]}, texts)
    assert [line["patients"] for line in lines] == counts
    assert [line["rows"] for line in lines] == counts

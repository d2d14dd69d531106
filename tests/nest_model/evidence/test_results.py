"""The page's numbers: the same patients for all, what is missing and why, nothing of under eleven patients."""

import json

import numpy as np
import pytest

from nest_model.evidence.page import label_curves, render, sentences
from nest_model.evidence.results import evidence
from nest_model.evidence.rows import Names, rows_by_name
from schemas.cards import StepCard
from tests.support.factories.predictions import COHORTS, write_layout, write_predictions

ROWS = [rows_by_name()[name] for name in ("nest", "nest_mlm", "bert", "lightgbm")]
TASK = "mimic_mortality"


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    return write_layout(tmp_path_factory.mktemp("data") / "mimic", subjects=400)


def copy_cell(layout, row: str, *, seed: int, noise: float, further: tuple[int, ...] = ()) -> None:
    """Write a row's predictions of TASK: NEST's, with noise."""
    from nest_model.data.predictions import read_predictions
    from nest_model.training.seeds import predictions_of_seed

    of_nest = read_predictions(layout.report(f"{TASK}_nest") / "predictions.parquet")
    file = layout.report(Names("mimic").cell(rows_by_name()[row], TASK)) / "predictions.parquet"
    for number in (seed, *further):
        rng = np.random.default_rng(number)
        logit = np.log(of_nest.probability / (1 - of_nest.probability)) + rng.normal(
            0, noise, of_nest.probability.shape
        )
        write_predictions(
            file if number == seed else predictions_of_seed(file, number),
            subject_id=of_nest.subject_id,
            encounter_id=of_nest.encounter_id,
            label=of_nest.truth[:, 0],
            probability=1 / (1 + np.exp(-logit)),
            split=of_nest.split,
            model=row,
        )


def test_a_noisy_copy_of_nest_is_surely_worse_and_an_exact_one_is_not(layout):
    copy_cell(layout, "bert", seed=1, noise=20.0)
    copy_cell(layout, "nest_mlm", seed=1, noise=0.0)

    metrics = evidence(layout, ROWS, [TASK])

    cells = metrics["tasks"][TASK]["cells"]
    assert "less_nest" not in cells["nest"]
    of_bert, of_copy = (cells[name]["less_nest"]["auroc"] for name in ("bert", "nest_mlm"))
    assert of_bert["high"] < 0
    assert of_bert["holm_p"] < 0.05
    assert of_bert["holm_p"] >= of_bert["p"]
    assert of_copy["value"] == 0.0
    assert of_copy["holm_p"] == 1.0
    assert "NEST is surely better in" in sentences(metrics)[0]
    assert cells["nest_mlm"]["paper"]["auroc"]["mean"] == pytest.approx(0.9528)


def test_a_row_with_seeds_has_their_spread_and_the_mean_of_their_scores(layout):
    copy_cell(layout, "bert", seed=1, noise=1.0, further=(7, 8))
    cell = evidence(layout, ROWS, [TASK])["tasks"][TASK]["cells"]["bert"]
    assert cell["seeds"] == 3
    assert cell["auroc"]["sd"] > 0


def test_a_failed_cell_has_its_reason_in_its_place_and_the_page_stands(layout):
    copy_cell(layout, "bert", seed=1, noise=1.0)
    StepCard(step="evidence_bert_mortality", contract="model/1", warnings=["failed: memory ran out."]).write(
        layout.cards
    )
    try:
        metrics = evidence(layout, ROWS, [TASK])
        page = render(metrics)
    finally:
        StepCard.remove(layout.cards, "evidence_bert_mortality")
    assert metrics["tasks"][TASK]["missing"]["bert"] == "memory ran out."
    assert "bert" not in metrics["tasks"][TASK]["cells"]
    assert "memory ran out." in page


def test_a_row_without_a_pretraining_says_so(layout):
    row = evidence(layout, ROWS, [TASK])["rows"][2]
    assert row["pretraining"] == {"failure": "not pretrained yet"}


def test_rows_of_a_list_task_are_compared_on_the_labels_that_all_score(layout):
    cohort = next(name for name, label_type in COHORTS.items() if label_type == "list")
    content = evidence(layout, ROWS, [cohort])["tasks"][cohort]
    assert set(content["cells"]) == {"nest", "lightgbm"}
    assert content["missing"]["bert"] == "not made yet"


def test_no_score_and_no_dot_of_under_eleven_patients(tmp_path):
    layout = write_layout(tmp_path / "mimic", subjects=24)
    metrics = evidence(layout, ROWS, [TASK])
    cell = metrics["tasks"][TASK]["cells"]["nest"]
    assert cell["auroc"]["value"] is None
    assert "withheld" in cell["auroc"]["note"]
    page = render(metrics)
    assert "withheld" in page
    assert "<svg" not in page
    assert json.dumps(metrics).count("918273") == 0


def test_a_curve_over_labels_has_a_point_for_each_share_and_one_for_all(layout):
    table = rows_by_name()
    shares = ["labels_05_lightgbm", "labels_25_lightgbm"]
    for place, name in enumerate(shares):
        copy_cell(layout, name, seed=place, noise=2.0)
    metrics = evidence(layout, [*ROWS, *(table[name] for name in shares)], [TASK])
    (curves,) = label_curves(metrics).values()
    assert [share for share, _ in curves["LightGBM, counts"]] == [0.05, 0.25, 1.0]
    assert "NEST" not in curves, "one point is no curve"
    assert "<svg" in render(metrics)

"""The page's numbers: the same patients for all, what is missing and why, nothing of under eleven patients."""

import json
import re
import shutil

import numpy as np
import pytest

from nest_model.__main__ import main
from nest_model.data.predictions import read_predictions
from nest_model.evidence import results
from nest_model.evidence.page import effort, markdown_rows, render, sentences, set_predictions, share_curves
from nest_model.evidence.report import write_evidence
from nest_model.evidence.results import evidence
from nest_model.evidence.rows import EvidenceAssets, rows_by_name
from nest_model.report.looks import removals_path
from nest_model.training.seeds import predictions_of_seed
from nest_model.training.telemetry import Telemetry
from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.io.outputs import mark_all
from tests.support.factories.predictions import COHORTS, write_layout, write_predictions

ROWS = [rows_by_name()[name] for name in ("nest", "nest_mlm", "bert", "lightgbm")]
TASK = "mimic_mortality"


def made_layout(root, **options):
    """Write a layout whose models of cohorts have cards, as finished steps have."""
    layout = write_layout(root, **options)
    for cohort in COHORTS:
        for model in ("nest", "lightgbm"):
            write_card(layout, f"{cohort}_{model}")
    return layout


def write_card(layout, step: str, *warnings: str) -> None:
    StepCard(step=step, contract="model/1", content="made", warnings=list(warnings)).write(layout.cards)


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    return made_layout(tmp_path_factory.mktemp("data") / "mimic", subjects=400)


def write_objectives(layout) -> list[str]:
    """Write three pretrainings of the study of MSM; MLM alone is read with masks of one row, too."""
    names = ["objective_msm", "objective_mlm", "objective_both"]
    for place, name in enumerate(names):
        metrics = {
            f"val_{metric}_at_10_{row}": 0.1 * place + 0.01 * number
            for number, row in enumerate(("cls", "mask", "head"))
            for metric in ("recall", "ndcg")
        }
        if name == "objective_mlm":
            metrics |= {f"{metric}_one_row": 0.5 for metric in metrics}
        lists = {"constant": 0.111, "mixture": 0.222, "own_share": 0.5}
        content = {
            "validation": metrics,
            "yardsticks": {"val_recall_at_10": lists, "val_ndcg_at_10": lists},
            "not_learnt": [],
            "not_judged": [],
            "context_cut": {
                "sets_share": 0.0, "events_in_cut_sets_share": 0.0, "events_in_long_sets_share": 0.0
            },
        }  # fmt: skip
        folder = layout.model(f"mimic_evidence_{name}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").write_text(json.dumps(content))
        write_card(layout, f"evidence_{name}")
    return names


def test_study_of_msm_stands_beside_guesses_and_needs_no_task(tmp_path, monkeypatch):
    layout = made_layout(tmp_path / "mimic", subjects=30)
    rows = [rows_by_name()[name] for name in write_objectives(layout)]
    monkeypatch.setattr(
        results.Costs, "of", lambda self, model: {"parameters": 1, "without_embedding": 1, "flops_per_row": 1}
    )
    metrics = evidence(layout, rows, [])

    lines = {line["Pretrained by"]: line for line in set_predictions(metrics)}
    assert list(lines) == [
        "MSM alone",
        "MLM alone",
        "MLM alone, [MASK] weighing as one row",
        "MLM + MSM",
        "No model: constant list",
        "No model: mixture with the patient's own sets",
    ]
    assert lines["MLM alone"]["NDCG@10 at [MASK]"] == "0.110"
    assert lines["MLM alone, [MASK] weighing as one row"]["NDCG@10 at [MASK]"] == "0.500"
    assert lines["No model: constant list"]["Recall@10 by the set head"] == "0.111"
    assert sentences(metrics) == [
        "NDCG@10 of the lists for masked sets, each where it is highest: MLM alone 0.500, MLM + MSM 0.220, MSM alone "
        "0.020; without a model: constant list 0.111, mixture with the patient's own sets 0.222."
    ]
    assert markdown_rows(metrics) == set_predictions(metrics)

    names = ",".join(row.name for row in rows)
    out = tmp_path / "out"
    assert main(["evidence", f"--root={layout.root}", f"--rows={names}", "--tasks=", f"--out={out}"]) == 0
    assert json.loads((out / "metrics.json").read_text())["rows"] == metrics["rows"]

    page = render(metrics)
    assert 'id="objectives"' in page
    assert 'id="scores"' not in page
    assert "test patients" not in page


def copy_cell(layout, row: str, *, seed: int, noise: float, further: tuple[int, ...] = ()) -> None:
    """Write a row's predictions of TASK: NEST's, with noise."""
    of_nest = read_predictions(layout.report(f"{TASK}_nest") / "predictions.parquet")
    name = EvidenceAssets("mimic").cell(rows_by_name()[row], TASK)
    file = layout.report(name) / "predictions.parquet"
    write_card(layout, name.removeprefix("mimic_"))
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


def remove_other_seeds(layout) -> None:
    shutil.rmtree(layout.report("mimic_evidence_bert_mortality") / "seeds", ignore_errors=True)


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
    each = []
    for seed in (1, 7, 8):
        copy_cell(layout, "bert", seed=seed, noise=1.0)
        remove_other_seeds(layout)
        each.append(evidence(layout, ROWS, [TASK])["tasks"][TASK]["cells"]["bert"]["auroc"]["value"])
    assert cell["auroc"]["value"] == pytest.approx(np.mean(each), abs=1e-5)


def test_a_failed_cell_has_its_reason_in_its_place_and_the_page_stands(layout):
    copy_cell(layout, "bert", seed=1, noise=1.0)
    write_card(layout, "evidence_bert_mortality", "failed: memory ran out.")
    metrics = evidence(layout, ROWS, [TASK])
    page = render(metrics)
    assert metrics["tasks"][TASK]["reasons"]["bert"] == "memory ran out."
    assert "bert" not in metrics["tasks"][TASK]["cells"]
    assert "memory ran out." in page


def test_a_task_without_a_model_has_its_reasons_and_no_empty_sentence(tmp_path):
    layout = made_layout(tmp_path / "mimic", subjects=24)
    for card in layout.cards.glob("*mortality*"):
        card.unlink()
    metrics = evidence(layout, ROWS, [TASK])
    assert metrics["tasks"][TASK]["cells"] == {}
    page = render(metrics)
    assert "not made yet" in page
    assert not re.search(r'<p class="soft">\s*\.', page)


@pytest.fixture
def removals(layout):
    """Write what NEST loses on TASK, and on a task that has no ablations."""
    folder = layout.model(EvidenceAssets("mimic").removals)
    for task in (TASK, "mimic_icd_chapter"):
        (folder / task).mkdir(parents=True)
        shutil.copy(removals_path(layout, TASK), folder / task / "removals.json")
        mark_all(folder / task)
    write_card(layout, "evidence_removals")
    yield
    shutil.rmtree(folder)
    StepCard.remove(layout.cards, "evidence_removals")


def test_what_nest_loses_without_parts_of_its_input_stands_beside_where_it_looks(layout, removals):
    metrics = evidence(layout, ROWS, [TASK, "mimic_icd_chapter"])
    assert list(metrics["removals"]["by_task"]) == [TASK]
    page = render(metrics)
    assert page.count('href="#removals"') == 2
    assert "NEST loses more AUROC without these than without as many random events: Diagnoses, +0.040" in page


def test_a_failed_nest_has_neither_attention_nor_removals_of_an_earlier_model(layout, removals):
    assert 'id="attention"' in render(evidence(layout, ROWS, [TASK]))
    write_card(layout, f"{TASK}_nest", "failed: memory ran out.")
    try:
        metrics = evidence(layout, ROWS, [TASK])
        assert metrics["attention"] == {}
        assert metrics["removals"] == {"by_task": {}}
        assert 'id="attention"' not in render(metrics)
    finally:
        write_card(layout, f"{TASK}_nest")


def test_removals_that_were_not_measured_have_their_reason(layout):
    metrics = evidence(layout, ROWS, [TASK])
    assert metrics["removals"] == {"failure": "not measured yet"}
    page = render(metrics)
    assert 'id="removals"' not in page
    assert "cannot be shown: not measured yet" in page
    assert evidence(layout, ROWS[1:], [TASK])["removals"] == {}, "NEST has no row"


def test_size_work_and_trials_stand_beside_the_score_and_what_was_not_learnt(layout):
    copy_cell(layout, "bert", seed=1, noise=1.0)
    metrics = evidence(layout, ROWS, [TASK])
    task, row = metrics["tasks"][TASK], dict(metrics["rows"][0])
    task["cells"][row["name"]]["left_out"] = 0.1234
    row["costs"] = {"parameters": 1_234_567, "flops_per_row": 2_345_678, "without_embedding": 1}
    row["pretraining"] = {"not_learnt": ["MSM is not."], "not_judged": [], "validation": {}, "yardsticks": {}}
    metrics["rows"][0] = row
    for training in ("pretraining", task["title"], "another task"):
        metrics["trials"] += [
            {
                "row": row["title"],
                "training": training,
                "learning_rate": rate,
                "best": rate == 1,
                "score": "0.5",
            }
            for rate in (1, 2, 3)
        ]

    words = effort(metrics, row, task)
    page = render(metrics)

    assert words == ["1.23 M weights", "2.35 M FLOP a row", "6 rates tried", "12.3% left out"]
    assert all(f'<span class="fact">{word}</span>' in page for word in words)
    assert page.count('href="#pretraining-losses">not all learnt</a>') == 1
    assert "paper: 0.956 ± 0.001" in page


def test_a_row_without_a_pretraining_says_so(layout):
    row = evidence(layout, ROWS, [TASK])["rows"][2]
    assert row["pretraining"] == {"failure": "not pretrained yet"}


def test_rows_of_a_list_task_are_compared_on_the_labels_that_all_score(layout):
    cohort = next(name for name, label_type in COHORTS.items() if label_type == "list")
    file = layout.report(f"{cohort}_lightgbm") / "predictions.parquet"
    fewer = read_predictions(file)
    labels = [
        [name for name, is_true in zip(fewer.classes, row, strict=True) if is_true] for row in fewer.truth
    ]
    write_predictions(
        file,
        subject_id=fewer.subject_id,
        encounter_id=fewer.encounter_id,
        label=labels,
        probability=fewer.probability[:, :2],
        split=fewer.split,
        model="lightgbm",
        cohort=cohort,
        label_type="list",
        classes=fewer.classes[:2],
    )
    content = evidence(layout, ROWS, [cohort])["tasks"][cohort]
    assert content["classes"] == 2
    assert set(content["cells"]) == {"nest", "lightgbm"}
    assert "less_nest" in content["cells"]["lightgbm"]
    assert content["reasons"]["bert"] == "not made yet"


def test_no_score_and_no_dot_of_under_eleven_patients(tmp_path):
    layout = made_layout(tmp_path / "mimic", subjects=24)
    metrics = evidence(layout, ROWS, [TASK])
    cell = metrics["tasks"][TASK]["cells"]["nest"]
    assert cell["auroc"]["value"] is None
    assert "withheld" in cell["auroc"]["note"]
    page = render(metrics)
    assert "withheld" in page
    labels = re.findall(r'<svg role="img" aria-label="([^"]*)"', page)
    # attention and histograms withhold small classes themselves
    assert not [label for label in labels if not label.startswith(("NEST: attention", "Histogram"))]
    assert json.dumps(metrics).count("918273") == 0


def test_a_curve_over_labels_has_a_point_for_each_share_and_one_for_all(layout):
    table = rows_by_name()
    shares = ["labels_05_lightgbm", "labels_25_lightgbm"]
    for place, name in enumerate(shares):
        copy_cell(layout, name, seed=place, noise=2.0)
    metrics = evidence(layout, [*ROWS, *(table[name] for name in shares)], [TASK])
    (curves,) = share_curves(metrics, "labels").values()
    assert [share for share, _ in curves["LightGBM, counts"]] == [0.05, 0.25, 1.0]
    assert "NEST" not in curves, "one point is no curve"
    assert "<svg" in render(metrics)


def test_shares_of_the_pretrainings_patients_are_a_curve_that_ends_with_nest(layout):
    table = rows_by_name()
    shares = ["patients_06_nest", "patients_25_nest"]
    for place, name in enumerate(shares):
        copy_cell(layout, name, seed=place, noise=2.0)
    metrics = evidence(layout, [*ROWS, *(table[name] for name in shares)], [TASK])
    (curves,) = share_curves(metrics, "patients").values()
    assert [share for share, _ in curves["NEST"]] == [0.0625, 0.25, 1.0]
    assert "Pretrained on fewer patients" in render(metrics)


def test_a_cell_without_a_card_is_not_shown_though_its_predictions_are_there(layout):
    copy_cell(layout, "nest_mlm", seed=1, noise=1.0)
    StepCard.remove(layout.cards, "evidence_nest_mlm_mortality")
    content = evidence(layout, ROWS, [TASK])["tasks"][TASK]
    assert content["reasons"]["nest_mlm"] == "not made yet"
    assert "nest_mlm" not in content["cells"]


def test_a_pretraining_stands_beside_the_row_that_has_it_alone(layout):
    rows = [*ROWS, rows_by_name()["shuffle"]]
    about = {row["name"]: row for row in evidence(layout, rows, [TASK])["rows"]}
    assert "pretraining" in about["nest"]
    assert "pretraining" not in about["shuffle"]


def test_an_unknown_cohort_is_refused_with_the_nearest(layout, tmp_path):
    folder = layout.cohort(TASK)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "labels.parquet").touch()
    with pytest.raises(
        NestError, match=r"cohort 'mimic_mortalty' has no labels here \(do you mean 'mimic_mortality'\?\)"
    ):
        write_evidence(
            root=layout.root,
            rows=["nest"],
            tasks=["mimic_mortalty"],
            out=tmp_path,
            telemetry=Telemetry(tmp_path),
        )

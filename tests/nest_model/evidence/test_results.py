"""The page's numbers: the same patients for all, what is missing and why, nothing of under eleven patients."""

import json
import re
import shutil

import numpy as np
import pytest

from nest_model.__main__ import main
from nest_model.data.predictions import probe_predictions, read_predictions
from nest_model.evidence import results
from nest_model.evidence.few_labels import points
from nest_model.evidence.page import (
    all_pictures,
    effort,
    label_sentences,
    markdown_rows,
    p_text,
    render,
    sentences,
    set_predictions,
    share_curves,
)
from nest_model.evidence.report import _result_numbers, write_evidence
from nest_model.evidence.results import COMPARED, evidence
from nest_model.evidence.rows import EvidenceAssets, rows_by_name
from nest_model.report.looks import removals_path
from nest_model.report.table import interval
from nest_model.training.seeds import predictions_of_seed
from nest_model.training.telemetry import Telemetry
from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.io.outputs import mark_all, write_json
from schemas.suppress import disclosing, shown_scores
from tests.support.factories.predictions import COHORTS, write_labels, write_layout, write_predictions

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


PRETRAINED = {
    "validation": {},
    "yardsticks": {},
    "not_learnt": [],
    "not_judged": [],
    "context_cut": {"sets_share": 0.0, "events_in_cut_sets_share": 0.0, "events_in_long_sets_share": 0.0},
}
"""What a pretraining's `metrics.json` has at least."""


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
        content = PRETRAINED | {
            "validation": metrics,
            "yardsticks": {"val_recall_at_10": lists, "val_ndcg_at_10": lists},
        }
        folder = layout.model(f"mimic_evidence_{name}")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "metrics.json").write_text(json.dumps(content))
        write_card(layout, f"evidence_{name}")
    return names


def test_study_of_msm_stands_beside_guesses_and_needs_no_task(tmp_path, monkeypatch):
    layout = made_layout(tmp_path / "mimic", subjects=30)
    rows = [rows_by_name()[name] for name in write_objectives(layout)]
    monkeypatch.setattr(
        results.Costs,
        "of",
        lambda self, model, **_: {"parameters": 1, "without_embedding": 1, "flops_per_row": 1},
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
    assert json.loads((out / "metrics.json").read_text())["rows"] == shown_scores(metrics["rows"])

    page = render(metrics)
    assert 'id="objectives"' in page
    assert 'id="scores"' not in page
    assert "test patients" not in page


def copy_cell(
    layout, row: str, *, seed: int, noise: float, further: tuple[int, ...] = (), training_patients: int = 1000
) -> None:
    """Write a row's predictions of TASK: NEST's, with noise; those of so many training patients, the first ones."""
    of_nest = read_predictions(layout.report(f"{TASK}_nest") / "predictions.parquet")
    patients = np.unique(of_nest.subject_id[of_nest.split == "train"])[:training_patients]
    of_nest = of_nest.rows((of_nest.split != "train") | np.isin(of_nest.subject_id, patients))
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
    of_nest = next(row for row in markdown_rows(metrics) if row["row"] == "NEST")
    assert of_nest["Mortality: AP"] == interval(cells["nest"]["average_precision"])
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


def test_the_frozen_encoder_of_a_system_stands_below_its_score(layout):
    assert "frozen" not in evidence(layout, ROWS, [TASK])["tasks"][TASK]["cells"]["bert"]
    of_bert, of_nest = (
        layout.report(name) / "predictions.parquet"
        for name in ("mimic_evidence_bert_mortality", f"{TASK}_nest")
    )
    probe_predictions(of_bert).parent.mkdir(parents=True)
    shutil.copy(probe_predictions(of_nest), probe_predictions(of_bert))
    try:
        metrics = evidence(layout, ROWS, [TASK])
    finally:
        shutil.rmtree(probe_predictions(of_bert).parent)
    cells = metrics["tasks"][TASK]["cells"]
    assert cells["bert"]["frozen"] == {name: cells["nest"]["frozen"][name] for name in COMPARED}
    assert cells["bert"]["frozen"]["auroc"]["value"] != cells["bert"]["auroc"]["value"]
    assert render(metrics).count(f"frozen: {cells['nest']['frozen']['auroc']['value']:.3f}<") == 2


def test_a_curve_has_the_frozen_encoder_of_nest_alone():
    score = {"average_precision": {"value": 0.5, "low": 0.4, "high": 0.6}}
    cells = {name: score | {"frozen": score} for name in ("nest", "labels_25_nest", "core_behrt")}
    cells |= {"labels_25_core_behrt": score}
    rows = [
        {"name": name, "title": title, "part": part} | ({"whole": whole, "share": 0.25} if whole else {})
        for name, title, part, whole in (
            ("nest", "NEST", "systems", None),
            ("core_behrt", "CORE-BEHRT", "systems", None),
            ("labels_25_nest", "NEST, 25%", "labels", "nest"),
            ("labels_25_core_behrt", "CORE-BEHRT, 25%", "labels", "core_behrt"),
        )
    ]
    task = {"title": "Mortality", "cells": cells}
    metrics = {"rows": rows, "tasks": {TASK: task}}
    curve = share_curves(metrics, "labels")["Mortality"]
    shares = {title: [share for share, _ in line] for title, line in curve.items()}
    assert shares == {title: [0.25, 1.0] for title in ("NEST", "NEST, frozen", "CORE-BEHRT")}
    titles = [(point.share, point.title) for point in points(metrics, task)]
    assert sorted(titles) == sorted(
        (share, title) for share in (0.25, 1.0) for title in ("NEST", "NEST, frozen", "CORE-BEHRT")
    )


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
    row["not_all_learnt"] = True
    metrics["rows"][0] = row
    for training in ("pretraining", task["title"], "another task"):
        metrics["trials"] += [
            {
                "row": row["title"],
                "training": training,
                "settings": f"learning rate {rate}",
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


def test_a_row_that_starts_from_another_s_pretraining_has_its_size_work_and_verdict(tmp_path, monkeypatch):
    layout = made_layout(tmp_path / "mimic", subjects=200)
    write_card(layout, "nest")
    content = json.dumps(PRETRAINED | {"not_learnt": ["MSM is not."]})
    (layout.model("mimic_nest") / "metrics.json").write_text(content)
    measured = []

    def costs_of(self, model, *, readout, freeze):
        measured.append((model.name, readout, freeze))
        return {"parameters": 3e6, "without_embedding": 2e6, "flops_per_row": 1e6 * (3 - len(freeze) / 2)}

    monkeypatch.setattr(results.Costs, "of", costs_of)
    names = ["nest", "lightgbm", "linear_probe", "cls", "freeze_swe", "labels_05_nest", "labels_05_lightgbm"]
    for name in names[2:]:
        copy_cell(layout, name, seed=1, noise=1.0)
    metrics = evidence(layout, [rows_by_name()[name] for name in names], [TASK])

    assert measured == [
        ("mimic_nest", None, ()),
        ("mimic_nest", None, ("embedding", "swe", "cse")),
        ("mimic_nest", "cls", ()),
        ("mimic_nest", None, ("swe",)),
        ("mimic_nest", None, ()),
    ]
    about = {row["name"]: row for row in metrics["rows"]}
    encoders = [name for name in names if "lightgbm" not in name]
    assert [name for name in names if "costs" in about[name]] == encoders
    assert [name for name in names if about[name].get("not_all_learnt")] == encoders
    assert [name for name in names if "pretraining" in about[name]] == ["nest"], "its losses stand there once"
    assert sentences(metrics)[-1].startswith("The pretraining of NEST did not learn more")
    page = render(metrics)
    assert page.count('href="#pretraining-losses">not all learnt</a>') == len(encoders)
    assert page.count('<span class="fact">3.00 M weights</span>') == len(encoders)
    assert page.count('<span class="fact">1.50 M FLOP a row</span>') == 1, (
        "nothing goes backward below a head"
    )

    measured.clear()
    # trained by a run with options of its own; TASK's model says nothing of how it was
    trained = layout.model("mimic_icd_chapter_nest")
    trained.mkdir(parents=True, exist_ok=True)
    (trained / "metrics.json").write_text(json.dumps({"frozen": ["cse"]}))
    (trained / "config.json").write_text(json.dumps({"model": {"readout": "cls"}}))
    evidence(layout, [rows_by_name()[name] for name in names], [TASK, "mimic_icd_chapter"])
    assert measured == [
        ("mimic_nest", "cls", ("cse",)),
        ("mimic_nest", None, ("embedding", "swe", "cse")),
        ("mimic_nest", "cls", ()),
        ("mimic_nest", None, ("swe",)),
        ("mimic_nest", None, ()),
    ]


def write_trees(layout, model: str, precisions: list[float | None], seed: int | None = None) -> None:
    """Write what a model of LightGBM says of its trials, of which the second was taken."""
    folder = layout.model(model) if seed is None else layout.model(model) / "seeds" / str(seed)
    folder.mkdir(parents=True, exist_ok=True)
    grid = [{"learning_rate": 0.05, "num_leaves": leaves} for leaves in (4, 8, 24)]
    trials = [
        {"settings": point, "average_precision": value, "log_loss": None, "rounds": 9.0}
        for point, value in zip(grid, precisions, strict=True)
    ]
    (folder / "config.json").write_text(json.dumps({"grid_point": grid[1], "trees": 136, "leaves": 8}))
    (folder / "metrics.json").write_text(json.dumps({"trials": trials}))


def test_settings_of_trees_are_listed_as_an_encoder_s_rates_are(tmp_path):
    layout = made_layout(tmp_path / "mimic", subjects=100)
    write_trees(layout, f"{TASK}_lightgbm", [0.25, 0.5, None])
    write_trees(layout, f"{TASK}_lightgbm", [0.1, 0.2, 0.3], seed=7)
    metrics = evidence(layout, ROWS, [TASK])

    row = {"row": "LightGBM, counts"}
    task, other_seed = ({"training": f"Mortality{words}"} for words in ("", ", seed 7"))
    settings = [{"settings": f"learning_rate 0.05, num_leaves {leaves}"} for leaves in (4, 8, 24)]
    assert metrics["trials"] == [
        row | training | setting | {"best": place == 1, "score": score}
        for training, scores in (
            (task, ["AP 0.2500", "AP 0.5000", "withheld"]),
            (other_seed, ["AP 0.1000", "AP 0.2000", "AP 0.3000"]),
        )
        for place, (setting, score) in enumerate(zip(settings, scores, strict=True))
    ]
    page = render(metrics)
    assert "<summary>LightGBM, counts: 6 trials</summary>" in page
    assert (
        '<span class="fact">136 trees of up to 8 leaves</span><br><span class="fact">3 settings tried</span>'
        in page
    )
    assert page.count("num_leaves 24") == 2


def test_each_metric_has_its_own_p_over_seeds(tmp_path):
    layout = made_layout(tmp_path / "mimic", subjects=300)
    for row, noise in (("bert", 1.0), ("nest", 0.1)):
        copy_cell(layout, row, seed=1, noise=noise, further=(7, 8))
    metrics = evidence(layout, ROWS, [TASK])
    cell = metrics["tasks"][TASK]["cells"]["bert"]
    p_values = [p_text(cell["less_nest"][metric]["seeds_p"]) for metric in ("auroc", "average_precision")]
    assert len(set(p_values)) == 2
    assert re.findall(r"p over seeds: ([^<]*)<", render(metrics)) == p_values


@pytest.mark.parametrize(("seeds_of_nest", "has_p"), [((7, 8), True), ((8, 9), False)])
def test_seeds_are_paired_with_the_same_seeds_alone(tmp_path, seeds_of_nest, has_p):
    layout = made_layout(tmp_path / "mimic", subjects=100)
    copy_cell(layout, "bert", seed=1, noise=1.0, further=(7, 8))
    copy_cell(layout, "nest", seed=1, noise=0.1, further=seeds_of_nest)
    cell = evidence(layout, ROWS, [TASK])["tasks"][TASK]["cells"]["bert"]
    assert (cell["less_nest"]["auroc"]["seeds_p"] is not None) == has_p


def test_a_row_with_other_test_rows_than_nest_has_no_difference_and_the_reason(tmp_path):
    layout = made_layout(tmp_path / "mimic", subjects=100)
    copy_cell(layout, "bert", seed=1, noise=1.0)
    file = layout.report(f"{TASK}_nest") / "predictions.parquet"
    of_nest = read_predictions(file)
    fewer = of_nest.rows(np.arange(len(of_nest)) != np.flatnonzero(of_nest.split == "test")[0])
    write_predictions(
        file,
        subject_id=fewer.subject_id,
        encounter_id=fewer.encounter_id,
        label=fewer.truth[:, 0],
        probability=fewer.probability,
        split=fewer.split,
        model="nest",
    )
    metrics = evidence(layout, ROWS, [TASK])
    cell = metrics["tasks"][TASK]["cells"]["bert"]
    assert "less_nest" not in cell
    assert cell["auroc"]["value"] is not None
    assert cell["not_compared"] in render(metrics).replace("&#39;", "'")


def test_a_cell_that_is_not_trainable_has_its_reason_and_no_score(layout):
    copy_cell(layout, "bert", seed=1, noise=1.0)
    folder = layout.model("mimic_evidence_bert_mortality")
    reason = "the training split has one class only; give more patients"
    write_json(folder / "not_trainable.json", {"cohort": TASK, "reason": reason})
    mark_all(folder)
    try:
        metrics = evidence(layout, ROWS, [TASK])
    finally:
        shutil.rmtree(folder)
    task = metrics["tasks"][TASK]
    assert "bert" not in task["cells"], "its predictions are an earlier model's"
    assert task["reasons"]["bert"] == f"not trainable: {reason}"
    assert f'<td colspan="7" class="note">not trainable: {reason}</td>' in render(metrics)


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


FEW = {"05": 5, "10": 100, "25": 106, "50": 150}
"""The training patients of each share of labels here."""


@pytest.fixture(scope="module")
def labelled_layout(tmp_path_factory):
    """Write NEST and trees on shares of the labels: NEST is as good as trees with the fewest, then surely better."""
    layout = made_layout(tmp_path_factory.mktemp("few") / "mimic", subjects=400)
    write_labels(layout, TASK)
    for place, (share, patients) in enumerate(FEW.items()):
        for first_seed, row, noise in ((0, "nest", 20.0 if share == "05" else 0.0), (100, "lightgbm", 20.0)):
            name, seed = f"labels_{share}_{row}", first_seed + place
            copy_cell(layout, name, seed=seed, noise=noise, training_patients=patients)
    copy_cell(layout, "lightgbm", seed=9, noise=20.0)
    copy_cell(layout, "bert", seed=9, noise=1.0)
    return layout


FEW_LABELS = [
    *ROWS,
    *(rows_by_name()[f"labels_{share}_{row}"] for share in FEW for row in ("nest", "lightgbm")),
]


def test_few_labels_are_counted_and_compared_with_trees_on_the_same_labels(labelled_layout):
    metrics = evidence(labelled_layout, FEW_LABELS, [TASK])
    task = metrics["tasks"][TASK]

    assert [line["patients"] for line in task["labelled"][:-1]] == ["< 11", "100", "withheld", "150"]
    assert task["labelled"][-1]["patients"] == str(
        StepCard.read(labelled_layout.cards, f"{TASK}_labels").counts["subjects_train"]
    )
    assert task["labelled"][0]["rows"] in ("< 11", "withheld")
    cells = task["cells"]
    for share in FEW:
        of_nest, of_trees = (cells[f"labels_{share}_{row}"] for row in ("nest", "lightgbm"))
        less = of_nest["less_trees"]["average_precision"]
        values = [each["average_precision"]["value"] for each in (of_nest, of_trees)]
        assert less["value"] == pytest.approx(values[0] - values[1], abs=2e-6)
        assert less["low"] < less["value"] < less["high"]
        assert "less_trees" not in of_trees
    widths = [cells["labels_10_nest"][name]["average_precision"] for name in ("less_trees", "less_nest")]
    assert widths[1]["value"] == 0.0, "NEST's own predictions"
    assert widths[0]["value"] > 0.0
    assert "less_trees" in cells["nest"]
    assert "less_trees" in cells["nest"]["frozen"]
    assert "less_trees" not in cells["bert"], "it is no point of the curve"

    (sentence,) = label_sentences(metrics)
    assert sentence.startswith(
        "Mortality: the AP of NEST is above LightGBM's from under 11 labelled patients on, and surely from 100 "
        "labelled patients on; that of NEST, frozen, is "
    )
    page = render(metrics)
    assert sentence.replace("'", "&#39;") in page
    table = page[page.index("<caption>Mortality</caption>") :]
    table = table[: table.index("</table>")]
    assert table.count("<tr>") == 1 + 2 * (len(FEW) + 1) + 1, (
        "two models at each share, and NEST frozen at all"
    )
    assert re.findall(r'<td class="n" rowspan="\d">(\d+) %</td>', table) == ["5", "10", "25", "50", "100"]
    assert "1 %<" not in page[: page.index("</svg>")]


def test_a_curve_whose_scores_are_withheld_has_no_table(tmp_path):
    layout = made_layout(tmp_path / "mimic", subjects=24)
    copy_cell(layout, "labels_50_nest", seed=1, noise=0.0)
    metrics = evidence(layout, [*ROWS, rows_by_name()["labels_50_nest"]], [TASK])
    assert label_sentences(metrics) == []
    assert "<caption>Mortality</caption>" not in render(metrics)


def test_few_labels_of_synthetic_patients_are_all_counted(labelled_layout):
    with disclosing(is_synthetic=True):
        task = evidence(labelled_layout, FEW_LABELS, [TASK])["tasks"][TASK]
    assert [line["patients"] for line in task["labelled"][:-1]] == [str(count) for count in FEW.values()]
    assert [line["share"] for line in task["labelled"]] == [0.05, 0.1, 0.25, 0.5, 1.0]


def test_the_curve_over_labels_has_the_numbers_of_patients_on_its_axis(labelled_layout):
    figure = all_pictures(evidence(labelled_layout, FEW_LABELS, [TASK]))["labels"]
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels[:4] == ["5%\n< 11", "10%\n100", "25%\nwithheld", "50%\n150"]
    assert labels[4].startswith("100%\n")
    assert axes.get_xticks().tolist() == [0.05, 0.1, 0.25, 0.5, 1.0]


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


def test_the_result_line_has_the_scores_of_nest_alone():
    cells = {
        name: {"auroc": {"value": value}} for name, value in {"nest": 0.8, "bert": 0.7, "heart": None}.items()
    }
    assert _result_numbers({"tasks": {TASK: {"cells": cells}}}) == {"scores": 2, f"{TASK}_auroc": 0.8}


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

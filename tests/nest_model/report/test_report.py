import base64
import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
import yaml
from sklearn.linear_model import LinearRegression
from sklearn.metrics import roc_auc_score

from nest_model.data.predictions import Predictions, read_predictions
from nest_model.evaluation.metrics import METRICS, evaluate
from nest_model.report import results_markdown, results_table, write_cohort_report, write_report
from nest_model.report.looks import leak_audit
from nest_model.report.page import objectives
from nest_model.report.planted import (
    auroc_by_parts,
    load_planted_risk,
    planted_part_shares,
    risk_without_parts,
)
from nest_model.report.tasks import predictions_path, title_of
from nest_model.report.verdicts import recalibration_warnings, verdicts
from nest_model.training.telemetry import Telemetry
from schemas.cards import Flow, StepCard
from schemas.cohort import parse_cohort
from schemas.cohort.english import in_english
from schemas.contract import read_table, write_table
from schemas.layout import Layout
from schemas.rules import PRESETS, DataRules
from schemas.tables.leak_audit import LeakAudit, Measure, Suspect
from schemas.tables.planted import PARTS, PLANTED
from schemas.tables.vocab import VOCAB
from tests.support.commands import ROOT
from tests.support.factories import predictions as made_up

COHORTS = [*made_up.COHORTS, "mimic_readmission"]


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    return made_up.write_layout(tmp_path_factory.mktemp("data") / "mimic", subjects=500)


@pytest.fixture(scope="module")
def report(layout):
    out = layout.report("mimic")
    write_report(layout.root, COHORTS, out, "default", Telemetry(out))
    return (out / "report.html").read_text(), json.loads((out / "metrics.json").read_text())


@pytest.fixture(scope="module")
def cohort_page(layout, report):
    """Return the page of one cohort, with the file its labels were derived from."""
    spec = parse_cohort(ROOT / "assets" / "cohorts" / "mimic_mortality.yaml").normalized()
    (layout.cohort("mimic_mortality") / "cohort.lock.yaml").write_text(yaml.safe_dump({"spec": spec}))
    out = layout.report("mimic_mortality")
    write_cohort_report(layout.root, "mimic_mortality", out, "default", Telemetry(out))
    (layout.cohort("mimic_mortality") / "cohort.lock.yaml").unlink()
    texts = (out / "report.html").read_text(), json.loads((out / "metrics.json").read_text())
    return *texts, (out / "tripod_ai.md").read_bytes()


def write(layout, out, cohorts=COHORTS, preset="default"):
    write_report(layout.root, cohorts, out, preset)
    return (out / "report.html").read_text(), json.loads((out / "metrics.json").read_text())


@pytest.fixture(scope="module")
def small_layout(tmp_path_factory):
    """Return a task with fewer than eleven positives; its page has no curves and renders quickly."""
    root = tmp_path_factory.mktemp("few")
    return made_up.write_layout(root / "mimic", subjects=30, cohorts={"mimic_mortality": "bool"})


@pytest.fixture(scope="module")
def paper_page(small_layout, tmp_path_factory):
    """Return the page of one task under the paper's preset."""
    page, _ = write(small_layout, tmp_path_factory.mktemp("paper"), ["mimic_mortality"], preset="paper")
    return page


@pytest.fixture(scope="module")
def without_planted(layout, tmp_path_factory):
    """Return page and metrics of one task on synthetic patients without planted risks."""
    copied_layout = unplanted(layout, tmp_path_factory.mktemp("without_planted"), outputs=["raw"])
    return write(copied_layout, copied_layout.root.parent / "out", ["mimic_mortality"])


def unplanted(layout, folder, outputs):
    """Return a copy without planted probabilities; `outputs` of the raw step are empty for a user's own input."""
    copied_layout = type(layout)(shutil.copytree(layout.root, folder / "mimic"))
    copied_layout.planted.unlink()
    StepCard(step="raw", contract="raw/1", outputs=outputs).write(copied_layout.cards)
    return copied_layout


@pytest.fixture(scope="module")
def small_report(small_layout, tmp_path_factory):
    """Return the report folder of the small task."""
    out = tmp_path_factory.mktemp("of_few")
    write_report(small_layout.root, ["mimic_mortality"], out, "default", Telemetry(out))
    return out


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    root = tmp_path_factory.mktemp("children") / "pcornet"
    return made_up.write_layout(root, subjects=300, cohorts={"autism": "bool"})


class Page(HTMLParser):
    """The parts of a page that tests check: sections, links, text, and open tags."""

    VOID = {"meta", "br", "img", "hr"}

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.words, self.stack, self.labels = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes_by_name = dict(attributes)
        if tag == "section":
            self.ids.append(attributes_by_name["id"])
        if tag == "a":
            self.links.append(attributes_by_name["href"])
        if tag == "svg":
            self.labels.append(attributes_by_name.get("aria-label"))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_page_is_well_formed_and_links_to_every_section(report):
    page = Page(report[0])
    assert page.stack == []
    expected = ["results", *COHORTS, "pretraining", "data", "splits", "run", "limits"]
    assert page.ids == expected
    assert page.links == [f"#{name}" for name in expected]


def test_every_figure_has_alt_text(report):
    labels = Page(report[0]).labels
    assert len(labels) > 8
    assert all(labels)


def test_page_shows_losses_without_parts_of_the_input(report, cohort_page):
    for page, metrics in (report, cohort_page[:2]):
        words = " ".join(" ".join(Page(page).words).split())
        assert (
            "than without as many random events: Diagnoses, +0.040 (+0.020 to +0.060); Laboratory values, +0.070"
            in words
        )
        assert "It loses less without: last set, −0.070 (−0.090 to −0.050)" in words
        assert "Diagnoses < 1 % +0.050 (+0.030 to +0.070) +0.010" in words
        assert any("loses without a part of its input" in label for label in Page(page).labels)
        removals = metrics["tasks"]["mimic_mortality"]["looks"]["removals"]
        assert [removal["name"] for removal in removals["removals"]] == ["DX", "LAB", "last set"]
    assert words.count("What NEST loses without parts of its input") == 1


def test_page_names_the_setting_when_removals_were_not_measured(report):
    hint = "set NEST_YARDSTICKS=all to measure it"
    chapter = report[0].split('<section id="mimic_icd_chapter">')[1].split("</section>")[0]
    mortality = report[0].split('<section id="mimic_mortality">')[1].split("</section>")[0]
    assert hint in chapter
    assert hint not in mortality


def test_page_has_no_external_resources(report):
    links = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", report[0])
    assert [link for link in links if not link.startswith("#")] == []
    assert "<script" not in report[0]
    assert "@import" not in report[0]


def test_cohort_page_is_well_formed_with_the_cohort_before_results(cohort_page):
    page = Page(cohort_page[0])
    assert page.stack == []
    sections = [
        "whom",
        "mimic_mortality",
        "thresholds",
        "subgroups",
        "leaks",
        "use",
        "splits",
        "run",
        "limits",
    ]
    assert page.ids == sections
    *links, checklist = page.links
    assert links == [f"#{name}" for name in page.ids]
    encoding, content = checklist.split(",")
    assert encoding == "data:text/markdown;charset=utf-8;base64"
    assert base64.b64decode(content) == cohort_page[2], "the page holds the checklist that lies beside it"
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", cohort_page[0])
    headings = ("Cohort selection", "Operating points", "For whom it is worse", "What the models look at")
    places = [cohort_page[0].index(f">{words}</h") for words in headings]
    assert places == sorted(places)
    expected_labels = (
        "ROC curves",
        "observed share",
        "net benefit",
        "to each kind of event",
        "LightGBM's splits",
        "stays left",
    )
    assert [words for words in expected_labels if not any(words in label for label in page.labels)] == []


def test_cohort_page_has_the_same_results_as_the_source_page(cohort_page, report):
    of_cohort, of_source = cohort_page[1]["tasks"], report[1]["tasks"]["mimic_mortality"]
    assert list(of_cohort) == ["mimic_mortality"]
    assert of_cohort["mimic_mortality"] | {"in_english": []} == of_source
    mortality, chapter = (of_source["models"], report[1]["tasks"]["mimic_icd_chapter"]["models"])
    assert f"{mortality['nest']['auroc']['value']:.3f}" in cohort_page[0]
    assert f"{chapter['nest']['auroc']['value']:.3f}" not in cohort_page[0]


def test_cohort_page_describes_the_cohort_file_in_english(cohort_page):
    cohort = parse_cohort(ROOT / "assets" / "cohorts" / "mimic_mortality.yaml")
    page = words_of(cohort_page[0])
    for sentence in in_english(cohort)[1:]:
        assert sentence.removeprefix("  - ") in page


def test_page_explains_intervals_only_when_a_score_has_an_interval(small_layout, cohort_page, tmp_path):
    write_cohort_report(small_layout.root, "mimic_mortality", tmp_path, "default")
    sentence = "95 % intervals from 1,000 resamples"
    assert sentence in words_of(cohort_page[0])
    assert sentence not in words_of((tmp_path / "report.html").read_text())


def test_cohort_page_of_an_empty_data_folder_names_missing_assets(tmp_path):
    write_cohort_report(tmp_path, "mimic_mortality", tmp_path / "out", "default")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "mimic_mortality_labels</code> has not been materialized" in page
    assert page.count("its asset has not been materialized") == 5  # in the box, and of each of four models
    assert "There is no subjects table" in page


def test_page_calls_patients_synthetic_only_if_nest_wrote_the_input(without_planted, small_layout, tmp_path):
    real_page, _ = write(unplanted(small_layout, tmp_path, outputs=[]), tmp_path / "out", ["mimic_mortality"])
    assert "The patients are synthetic" not in real_page
    assert "The patients are synthetic" in without_planted[0]


def auroc_of(layout, model):
    """Return a model's AUROC on mortality with all digits, from its predictions."""
    return evaluate(predictions_path(layout, "mimic_mortality", model))["auroc"]["value"]


def test_scores_of_real_patients_have_the_decimals_of_the_page(report, layout):
    """The more digits a score has, the fewer numbers of rows are possible, and the page may withhold theirs."""
    auroc = auroc_of(layout, "nest")
    shown = report[1]["tasks"]["mimic_mortality"]["models"]["nest"]["auroc"]["value"]
    assert shown == round(auroc, 3) != auroc


def test_page_metrics_and_telemetry_contain_no_id(report, layout):
    telemetry_text = (layout.report("mimic") / "metrics.jsonl").read_text()
    for text in (report[0], json.dumps(report[1]), telemetry_text):
        assert str(made_up.FIRST_SUBJECT)[:6] not in text
        assert "727364" not in text


def test_metrics_contain_no_nan_and_no_small_count(report):
    json.dumps(report[1], allow_nan=False)
    assert report[1]["pretraining"]["counts"]["val_patients"] == "< 11"
    assert "no_stay 4" not in report[0]


def test_pretraining_section_shows_warnings_first_and_guesses(report):
    section = report[0].partition('<section id="pretraining">')[2].partition("</section>")[0]
    warning = "MSM is at 2.5 nats a set, where a constant guess has 2.4: 0.1 worse."

    assert warning in section.partition("<figure>")[0]
    cells = re.findall(r"Recall@10 at \[CLS\] ↑</th>(.*)</tr>", section)[0]
    assert re.findall(r">([\d.–]+)<", cells) == ["0.1230", "0.0400", "0.0300", "0.0500"]
    assert "constant guess" in section.partition("<figure>")[2], "the figure includes the guess"


def test_drops_that_disclose_a_small_count_are_withheld(report):
    flow = report[1]["data"]["sources"]["emar"]
    assert flow["dropped"]["no_stay"] == "withheld"
    assert flow["dropped"]["no_atc"] == "withheld"
    assert flow["dropped"]["event_txt"] == "285"


def test_data_card_lists_drops_and_corrections_of_every_table(tmp_path):
    layout = Layout(tmp_path / "pcornet")
    layout.cards.mkdir(parents=True)
    flows = {
        "subjects": ("DEMOGRAPHIC", Flow(source_rows=500, kept_rows=480, dropped={"born_outside": 20})),
        "encounters": ("ENCOUNTER", Flow(source_rows=900, kept_rows=900, noted={"time_24_00": 40, "bad_time": 3})),
        "events": ("DIAGNOSIS", Flow(source_rows=800, kept_rows=800, noted={"code_cleaned": 70, "not_in_gem": 50})),
    }  # fmt: skip
    for step, (table, flow) in flows.items():
        StepCard(step=step, contract=f"{step}/1", flows={table: flow}).write(layout.cards)
    StepCard(step="raw", contract="raw/1", notes=["the data end on a day"]).write(layout.cards)
    page, metrics = write(layout, tmp_path / "out", [])
    assert metrics["data"]["missing"] == ["vocab", "seqset", "code_names"], "a CDM has no drug lookup"
    assert set(DataRules.model_fields) - set(metrics["run"]["rules"]) == {"med_link"}
    assert metrics["run"]["fitted"] == ["vocabulary", "laboratory cuts"]
    sources = metrics["data"]["sources"]
    assert list(sources) == ["DEMOGRAPHIC", "ENCOUNTER", "DIAGNOSIS"]
    assert sources["ENCOUNTER"]["noted"] == {"time_24_00": "40", "bad_time": "< 11"}
    assert sources["DIAGNOSIS"]["noted"] == {"code_cleaned": "70"}, "later drops are counted at a later step"
    text = words_of(page)
    assert all(
        words in text for words in ("born outside 20", "time 24 00 40", "bad time < 11", "the data end on")
    )


def test_drops_of_two_tables_do_not_disclose_a_small_count(tmp_path):
    layout = Layout(tmp_path / "pcornet")
    layout.cards.mkdir(parents=True)
    tables = {
        "MED_ADMIN": Flow(source_rows=514, kept_rows=500, dropped={"before_birth": 8, "after_end": 6}),
        "PRESCRIBING": Flow(source_rows=945, kept_rows=900, dropped={"before_birth": 22, "after_end": 23}),
    }
    StepCard(step="events", contract="events/1", flows=tables).write(layout.cards)
    drops = {"before_birth": 30, "after_end": 29, "grown_up": 100}
    kind = Flow(source_rows=1459, kept_rows=1300, dropped=drops)
    counts = {"tokens": 1300, "tokens_MED": 1300, "subjects": 50, "sets": 90}
    StepCard(step="seqset", contract="seqset/2", flows={"MED": kind}, counts=counts).write(layout.cards)
    page, metrics = write(layout, tmp_path / "out", [])
    assert metrics["data"]["flows"]["MED"]["dropped"] == {"grown_up": "100"}
    assert metrics["data"]["flows"]["MED"]["source_rows"] == "1,400"
    assert "before birth 30" not in words_of(page)
    assert "before birth 22" in words_of(page)


def test_metrics_list_nest_probe_baselines_and_planted_risk(report):
    models = report[1]["tasks"]["mimic_mortality"]["models"]
    assert list(models) == ["nest", "probe", "lightgbm", "logistic", "best"]
    assert models["best"]["auroc"]["value"] > models["nest"]["auroc"]["value"]
    assert {summary["rows"] for summary in models.values()} == {models["nest"]["rows"]}


def test_difference_equals_nest_minus_lightgbm_with_an_interval(report, layout):
    difference = report[1]["tasks"]["mimic_mortality"]["difference"]["auroc"]
    nest_minus_lightgbm = auroc_of(layout, "nest") - auroc_of(layout, "lightgbm")
    assert difference["value"] == round(nest_minus_lightgbm, 3)
    assert difference["low"] < difference["value"] < difference["high"]


def test_mean_auroc_covers_binary_tasks_with_both_models(report):
    mean = report[1]["mean_auroc"]
    assert mean["tasks"] == ["Mortality"]
    value = report[1]["tasks"]["mimic_mortality"]["models"]["nest"]["auroc"]["value"]
    assert mean["models"]["nest"]["value"] == value


def test_nest_is_scored_on_all_labels_and_on_lightgbm_labels(layout, tmp_path):
    copied_layout = shutil.copytree(layout.root, tmp_path / "mimic")
    path = type(layout)(copied_layout).report("mimic_icd_category_lightgbm") / "predictions.parquet"
    one = read_predictions(path)
    two = one.only(["IX", "I"])
    made_up.write_predictions(
        path,
        subject_id=two.subject_id,
        encounter_id=two.encounter_id,
        label=[[name for name, true in zip(one.classes, row, strict=True) if true] for row in one.truth],
        probability=two.probability,
        split=two.split,
        cohort="mimic_icd_category",
        label_type="list",
        classes=two.classes,
    )
    page, metrics = write(type(layout)(copied_layout), tmp_path / "out", ["mimic_icd_category"])
    task = metrics["tasks"]["mimic_icd_category"]
    assert task["models"]["nest"]["classes_scored"] == 4
    assert task["common"]["labels"] == 2
    assert {one["classes_scored"] for one in task["common"]["models"].values()} == {2}
    assert "ICD category, the 2 commonest" in page


def test_recalibration_and_net_benefit_are_for_binary_tasks_only(report):
    page, metrics = report
    recalibration = metrics["tasks"]["mimic_mortality"]["recalibrated"]
    assert set(recalibration["methods"]) == {"nest", "probe", "lightgbm", "logistic"}
    assert set(recalibration["methods"].values()) <= {"temperature", "isotonic"}
    assert (
        recalibration["models"]["nest"]["rows"]
        == metrics["tasks"]["mimic_mortality"]["models"]["nest"]["rows"]
    )
    assert "recalibrated" not in metrics["tasks"]["mimic_icd_chapter"]
    labels = Page(page).labels
    assert sum("net benefit" in label for label in labels) == 1
    assert page.count("Recalibration on the validation patients") == 1


def test_recalibration_changes_auroc_by_ties_only(report):
    """A monotonic map changes AUROC by ties only."""
    _, metrics = report
    task = metrics["tasks"]["mimic_mortality"]
    for model in ("nest", "lightgbm"):
        first_auroc, recalibrated_auroc = (
            part["models"][model]["auroc"]["value"] for part in (task, task["recalibrated"])
        )
        assert recalibrated_auroc == pytest.approx(first_auroc, abs=0.02)


def test_attention_and_importance_are_drawn_when_recorded(report, layout, tmp_path):
    labels = Page(report[0]).labels
    for words in ("to each kind of event", "how many sets back", "how many days back", "LightGBM's splits"):
        assert sum(words in label for label in labels) == 1, words
    for model in ("nest", "lightgbm"):
        (layout.model(f"mimic_mortality_{model}") / "metrics.json").rename(tmp_path / model)
    page, _ = write(layout, tmp_path / "report", ["mimic_mortality"])
    for model in ("nest", "lightgbm"):
        (tmp_path / model).rename(layout.model(f"mimic_mortality_{model}") / "metrics.json")
    assert "What the models look at" not in page


def test_page_names_codes_and_kinds_with_the_codes_beside(report):
    words = " ".join(" ".join(Page(report[0]).words).split())
    assert "Creatinine (Blood), highest tenth · index stay target LAB:50912_Q10 40.0%" in words
    assert "DX:I10 · history history DX:I10 10.0%" in words, "a code without a name stays a code"
    assert "Laboratory values −" in words


def test_leak_audit_names_its_suspects_with_the_tokens_beside(layout, tmp_path):
    nothing = Measure(value=None, low=None, high=None)
    suspect = Suspect(
        name="LAB:50912_Q1 before it",
        why="found in the data",
        predictions="20",
        auroc_with=nothing,
        auroc_without=nothing,
        inflation=nothing,
        verdict="not measured",
    )
    copied_layout = type(layout)(tmp_path / "mimic")
    file = copied_layout.leak_audit("mimic_mortality")
    file.parent.mkdir(parents=True)
    file.write_text(LeakAudit(cohort="c", judged="", suspects=[suspect]).model_dump_json())
    shutil.copy(layout.code_names, copied_layout.code_names)
    audit = leak_audit(copied_layout, "mimic_mortality")
    assert audit["suspects"][0]["name"] == "LAB:50912_Q1 before it"
    assert audit["suspects"][0]["in_words"] == "Creatinine (Blood), lowest tenth before it"


def test_page_counts_the_classes_left_out(report):
    summary = report[1]["tasks"]["mimic_icd_chapter"]["models"]["nest"]
    assert summary["classes_left_out"] == 1
    of_all = f"{summary['classes_scored']} of {summary['classes_scored'] + 1} classes"
    assert (
        f"{of_all} scored; classes with under 11 test patients with, or without, them are left out"
        in report[0]
    )
    assert f'<span class="note">{of_all}</span>' in report[0], "the note is beside the score too"


def test_page_has_no_planted_risk_without_planted_probabilities(without_planted):
    page, metrics = without_planted
    assert "Planted risk" not in page
    assert "best" not in metrics["mean_auroc"]["models"]
    assert "nest" in metrics["mean_auroc"]["models"]


@pytest.mark.long  # every day only risk planted by stay is read
@pytest.mark.parametrize(
    ("planted_for", "is_shown"),
    [(1.0, True), (0.95, True), (0.8, False)],
)
def test_risk_planted_by_subject_is_used_for_any_index_visit(children, tmp_path, planted_for, is_shown):
    test = read_predictions(children.report("autism_nest") / "predictions.parquet").of("test")
    subjects = np.unique(test.subject_id)
    subjects = subjects[: round(planted_for * len(subjects))]
    risks = pa.table(
        {
            "subject_id": subjects,
            "encounter_id": pa.nulls(len(subjects), pa.int64()),
            "cohort": ["autism"] * len(subjects),
            "probability": (subjects % 97) / 100,
            **{part: pa.nulls(len(subjects), pa.float64()) for part in PARTS},
        }
    )
    write_table(risks, children.planted, PLANTED, made_by="the test")
    page, metrics = write(children, tmp_path / "out", ["autism"])
    assert ("best" in metrics["tasks"]["autism"]["models"]) == is_shown
    assert ("Planted risk (upper bound)</th>" in page) == is_shown
    assert "parts_read" not in metrics["tasks"]["autism"]
    if is_shown:
        best = load_planted_risk(children, "autism", test)
        assert set(best.subject_id) == set(subjects)
        assert best.probability[:, 0].tolist() == ((best.subject_id % 97) / 100).tolist()
        assert metrics["tasks"]["autism"]["models"]["best"]["rows"] == len(best)


def planted_risks(layout: Layout, test: Predictions) -> list[dict[str, float]]:
    """Return the planted risk of every test row of mortality."""
    rows = {row["encounter_id"]: row for row in read_table(layout.planted, PLANTED).to_pylist()}
    return [rows[encounter] for encounter in test.encounter_id]


def test_planted_part_shares_equal_least_squares(report, layout):
    """The score uses half of one part and all of another; compared with scikit-learn's least squares."""
    test = read_predictions(predictions_path(layout, "mimic_mortality", "nest")).of("test")
    terms = np.array([[row[part] for part in PARTS] for row in planted_risks(layout, test)])
    noise = np.random.default_rng(0).normal(0, 0.3, len(terms))
    log_odds = terms @ [0.5, 1.0, 0.0, -0.2] - 1 + noise
    score = test.with_probability(made_up.sigmoid(log_odds)[:, None])

    shares = planted_part_shares(layout, "mimic_mortality", {"nest": score}, seed=1)["nest"]

    assert list(shares) == list(PARTS)
    expected = LinearRegression().fit(terms, log_odds).coef_
    assert [encounter["value"] for encounter in shares.values()] == pytest.approx(expected.tolist(), abs=1e-5)
    truths = (0.5, 1.0, 0.0, -0.2)
    assert all(
        encounter["low"] < truth < encounter["high"] and encounter["high"] - encounter["low"] < 0.3
        for encounter, truth in zip(shares.values(), truths, strict=True)
    )
    of_best = report[1]["tasks"]["mimic_mortality"]["parts_read"]["best"]
    assert [encounter["value"] for encounter in of_best.values()] == pytest.approx([1] * 4, abs=1e-5)
    assert "How much of each part of the planted risk" in report[0]


def test_risk_without_a_part_is_the_auroc_of_the_other_parts(report, layout):
    test = read_predictions(predictions_path(layout, "mimic_mortality", "nest")).of("test")
    risks = planted_risks(layout, test)
    log_odds = np.array([np.log(row["probability"] / (1 - row["probability"])) for row in risks])

    scores = risk_without_parts(layout, "mimic_mortality", test, seed=1)

    assert list(scores) == list(PARTS)
    for part in PARTS:
        others = log_odds - [row[part] for row in risks]
        assert scores[part]["value"] == pytest.approx(roc_auc_score(test.truth[:, 0], others), abs=1e-6)
        assert scores[part]["low"] < scores[part]["value"] < scores[part]["high"]
    page_scores = report[1]["tasks"]["mimic_mortality"]["risk_without_parts"]
    assert [page_scores[part]["value"] for part in PARTS] == [
        round(scores[part]["value"], 3) for part in PARTS
    ]
    row = report[0].partition("AUROC of the planted risk without this part")[2].partition("</tr>")[0]
    assert re.findall(r"<td>\D*(\d\.\d+)", row) == [f"{scores[part]['value']:.3f}" for part in PARTS]


def test_auroc_by_parts_leaves_out_what_follows_no_part(report, layout):
    """By its parts the noisy score is the planted risk itself, whatever the noise costs it."""
    test = read_predictions(predictions_path(layout, "mimic_mortality", "nest")).of("test")
    terms = np.array([[row[part] for part in PARTS] for row in planted_risks(layout, test)])
    noise = np.random.default_rng(0).normal(0, 3, len(terms))
    models = {"nest": test.with_probability(made_up.sigmoid(0.7 * terms.sum(axis=1) + noise)[:, None])}
    shares = planted_part_shares(layout, "mimic_mortality", models, seed=1)

    nest_auroc = auroc_by_parts(layout, "mimic_mortality", models, shares, seed=1)["nest"]

    fit = LinearRegression().fit(terms, 0.7 * terms.sum(axis=1) + noise).predict(terms)
    truth = test.truth[:, 0]
    assert nest_auroc["value"] == pytest.approx(roc_auc_score(truth, fit), abs=1e-4)
    assert nest_auroc["value"] > roc_auc_score(truth, models["nest"].probability[:, 0]) + 0.03
    assert nest_auroc["low"] < nest_auroc["value"] < nest_auroc["high"]
    best_auroc = report[1]["tasks"]["mimic_mortality"]["auroc_by_parts"]["best"]["value"]
    assert best_auroc == report[1]["tasks"]["mimic_mortality"]["models"]["best"]["auroc"]["value"]


@pytest.mark.parametrize("part_count", [1, 2])
def test_rows_with_equal_parts_are_ties(layout, tmp_path, part_count: int):
    """Parts of few values, as the children's: the sum less a part differs between equal rows by rounding alone."""
    copied_layout = Layout(shutil.copytree(layout.root, tmp_path / "mimic"))
    table, steps = read_table(layout.planted, PLANTED), np.random.default_rng(0)
    values = [steps.integers(0, 3, len(table)) * step for step in (0.1, 0.7)][:part_count]
    log_odds = np.sum(values, axis=0) - 1.3
    planted_parts = dict(zip(list(PARTS)[:part_count], map(pa.array, values), strict=True))
    no_parts = dict.fromkeys(PARTS, pa.nulls(len(table), pa.float64()))
    probability = {"probability": pa.array(made_up.sigmoid(log_odds))}
    for name, column in (no_parts | planted_parts | probability).items():
        table = table.set_column(table.column_names.index(name), PLANTED.field(name), column)
    write_table(table, copied_layout.planted, PLANTED, made_by="the test")
    test = read_predictions(predictions_path(layout, "mimic_mortality", "nest")).of("test")

    scores = risk_without_parts(copied_layout, "mimic_mortality", test, seed=1)

    if part_count == 1:
        assert scores == {}
        return
    others = [row["within"] for row in planted_risks(copied_layout, test)]
    assert scores["main"]["value"] == pytest.approx(roc_auc_score(test.truth[:, 0], others), abs=1e-6)


@pytest.mark.long  # every day the parts that were planted are columns
def test_parts_that_were_not_planted_are_no_columns(layout, tmp_path):
    """The other parts are still fitted together: the coefficients are those of two terms."""
    copied_layout = type(layout)(shutil.copytree(layout.root, tmp_path / "mimic"))
    table = read_table(layout.planted, PLANTED)
    for part in ("within", "trend"):
        place = table.column_names.index(part)
        table = table.set_column(place, part, pa.nulls(len(table), pa.float64()))
    write_table(table, copied_layout.planted, PLANTED, made_by="the test")
    page, metrics = write(copied_layout, tmp_path / "out", ["mimic_mortality"])

    best = metrics["tasks"]["mimic_mortality"]["parts_read"]["best"]
    test = read_predictions(predictions_path(layout, "mimic_mortality", "nest")).of("test")
    rows = {row["encounter_id"]: row for row in table.to_pylist()}
    risks = [rows[encounter] for encounter in test.encounter_id if encounter in rows]
    terms = np.array([[row["main"], row["history"]] for row in risks])
    probability = np.array([row["probability"] for row in risks])
    expected = LinearRegression().fit(terms, np.log(probability / (1 - probability))).coef_
    assert [best[part]["value"] for part in ("main", "history")] == [round(each, 3) for each in expected]
    assert list(best) == ["main", "history"]
    caption = page.partition("How much of each part of the planted risk")[2].partition("</table>")[0]
    assert re.findall(r"<th>([A-Z]\w+):", caption) == ["Main", "History"]


def test_planted_risk_is_ignored_for_a_users_own_patients(layout, tmp_path):
    copied_layout = Layout(shutil.copytree(layout.root, tmp_path / "mimic"))
    StepCard(step="raw", contract="raw/1", outputs=[]).write(copied_layout.cards)
    test = read_predictions(predictions_path(copied_layout, "mimic_mortality", "nest")).of("test")
    assert load_planted_risk(copied_layout, "mimic_mortality", test) is None
    assert planted_part_shares(copied_layout, "mimic_mortality", {"nest": test}, seed=1) == {}
    assert risk_without_parts(copied_layout, "mimic_mortality", test, seed=1) == {}


def test_page_of_an_empty_data_folder_names_missing_assets(tmp_path):
    layout = type("Empty", (), {"root": tmp_path})
    page, metrics = write(layout, tmp_path / "out")
    assert page.count("its asset has not been materialized") >= 2 * len(COHORTS)
    assert "There is no pretrained model" in page
    assert metrics["mean_auroc"]["tasks"] == []
    assert "no predictions" in results_table(metrics)


def test_page_shows_the_warnings_of_the_labels(small_layout, tmp_path):
    layout = type(small_layout)(shutil.copytree(small_layout.root, tmp_path / "mimic"))
    sentence = "codes.sepsis.icd10cm: 'A41<b>' matches no event"
    StepCard(step="mimic_mortality_labels", contract="labels/1", warnings=[sentence]).write(layout.cards)
    page, metrics = write(layout, tmp_path / "out", ["mimic_mortality"])
    assert metrics["tasks"]["mimic_mortality"]["warnings"] == [sentence]
    assert "A41&lt;b&gt;&#39; matches no event" in page


def test_page_shows_the_reason_of_an_untrainable_task(small_layout, tmp_path):
    copied_layout = type(small_layout)(shutil.copytree(small_layout.root, tmp_path / "mimic"))
    (copied_layout.report("mimic_mortality_nest") / "predictions.parquet").unlink()
    folder = copied_layout.model("mimic_mortality_nest")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "not_trainable.json").write_text(json.dumps({"cohort": "x", "reason": "one class only"}))
    page, metrics = write(copied_layout, tmp_path / "out", ["mimic_mortality"])
    assert "not trainable: one class only" in page
    assert "not trainable: one class only" in results_table(metrics)
    assert "not trainable: one class only" in results_markdown(metrics)


def test_curves_are_withheld_under_eleven_positives(small_report):
    page, metrics = (
        (small_report / "report.html").read_text(),
        json.loads((small_report / "metrics.json").read_text()),
    )
    assert metrics["tasks"]["mimic_mortality"]["models"]["nest"]["positives"] == "< 11"
    assert "ROC curves" not in page
    assert "Curves and calibration are withheld" in page


def test_page_says_once_a_table_why_scores_are_withheld(small_report):
    page = (small_report / "report.html").read_text()
    assert page.count("withheld: under 11 patients with, or without, the outcome</span>") == 1
    assert page.count("Withheld: under 11 patients with, or without, the outcome.") == 1
    assert "How much of each part of the planted risk" not in page, "a table of dashes says nothing"


def test_scores_are_withheld_everywhere_under_eleven_positives(small_report):
    metrics = json.loads((small_report / "metrics.json").read_text())
    last_event = json.loads((small_report / "metrics.jsonl").read_text().splitlines()[-1])
    task = metrics["tasks"]["mimic_mortality"]

    scores = [summary[name] for summary in (*task["models"].values(), task["difference"]) for name in METRICS]
    assert {(summary["value"], summary["low"]) for summary in scores} == {(None, None)}
    assert metrics["mean_auroc"]["tasks"] == []
    assert last_event == {"event": "result", "metrics": {}}
    table = results_table(metrics).splitlines()
    assert [line.index("withheld: under 11 patients") for line in table[2:]] == [
        table[0].index("Test rows")
    ] * 5


def test_both_overlaps_are_stated(report):
    overlap = report[1]["data"]["splits"]["overlap"]
    assert overlap["train_in_test"] == {"patients": "0", "share": "0.00%"}
    assert set(overlap) == {"train_in_test", "val_in_test", "train_in_val"}
    assert "fitted only on the patients of the tasks' training split" in report[0].replace("&#39;", "'")


def test_page_of_the_paper_preset_mentions_fitting_on_test_patients(paper_page):
    assert "including the test split, as in the paper" in paper_page


def with_rules_of(layout, preset):
    metadata = {"rules": PRESETS[preset].model_dump_json()}
    write_table(VOCAB.empty_table(), layout.vocab, VOCAB, made_by="the test", metadata=metadata)


def words_of(page):
    return " ".join(" ".join(Page(page).words).split())


def test_header_claims_an_unused_test_split_only_when_true(report, paper_page):
    claim = "on which nothing was fitted or tuned"

    assert claim in words_of(report[0])
    assert claim not in words_of(paper_page)
    assert "drug lookup were fitted on all patients" in words_of(paper_page)


def test_page_shows_the_rules_of_the_data(small_layout, tmp_path):
    copied_layout = type(small_layout)(shutil.copytree(small_layout.root, tmp_path / "mimic"))
    with_rules_of(copied_layout, "paper")
    other_page, metrics = write(copied_layout, tmp_path / "other", ["mimic_mortality"], preset="default")
    preset_page, _ = write(copied_layout, tmp_path / "same", ["mimic_mortality"], preset="paper")

    assert metrics["run"]["rules"]["fit_on"] == "all"
    assert {"fit_on", "clock"} <= set(metrics["run"]["other_than_preset"])
    assert "The data was built with other rules than the preset's" in words_of(other_page)
    assert "on which nothing was fitted or tuned" not in words_of(other_page)
    assert "other rules than the preset's" not in words_of(preset_page)


def test_page_explains_how_planted_effects_were_chosen(report):
    assert "shows that order can be used, not that NEST wins on real data" in words_of(report[0])


@pytest.mark.long
def test_the_same_files_give_the_same_report(layout, report, tmp_path):
    metrics_file = layout.model(f"{layout.root.name}_nest") / "metrics.json"
    content = metrics_file.read_text()
    # the duration differs from run to run
    metrics_file.write_text(json.dumps(json.loads(content) | {"seconds": 12.3}))
    page, metrics = write(layout, tmp_path / "again")
    metrics_file.write_text(content)
    assert page == report[0]
    assert metrics == report[1]


@pytest.mark.parametrize(
    ("cohort", "title"),
    [
        ("mimic_icd_chapter", "ICD chapter"),
        ("pcornet_recurrent_aom", "Recurrent AOM"),
        ("pcornet_readmission_30d_home", "Readmission 30 days home"),
        ("stroke", "Stroke"),
    ],
)
def test_title_is_the_cohort_name_without_the_source(cohort, title):
    assert title_of(cohort) == title


def test_the_table_for_the_terminal_names_every_task_and_no_mean_of_a_single_one(report):
    table = results_table(report[1])
    for words in (
        "Mortality",
        "ICD chapter",
        "ICD category, all labels",
        "NEST − LightGBM",
    ):
        assert words in table
    assert "Mean over" not in table
    assert max(map(len, table.splitlines())) < 140


def test_the_table_for_the_ui_has_the_cells_of_the_terminals(report):
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in results_markdown(report[1]).splitlines()
        if line.startswith("| ")
    ]
    lines = [line for line in results_table(report[1]).splitlines() if line and not line.startswith("--")]
    assert len(cells) == len(lines) > 10
    for row, line in zip(cells, lines, strict=True):
        assert [cell for cell in row if cell] == re.split(r"  +", line.strip())


def test_the_table_for_the_ui_says_why_a_task_has_no_scores(small_report):
    metrics = json.loads((small_report / "metrics.json").read_text())
    rows = results_markdown(metrics).splitlines()[2:]
    assert len(rows) == 5
    assert all("withheld: under 11 patients with, or without, the outcome" in row for row in rows)


def test_a_title_cannot_break_the_table_for_the_ui(report):
    metrics = json.loads(json.dumps(report[1]))
    metrics["tasks"]["mimic_mortality"]["title"] = "Death | <b>early</b>"
    assert r"| Death \| \<b>early\</b> | NEST |" in results_markdown(metrics)


def test_a_small_overlap_withholds_the_split_sizes(tmp_path):
    from nest_model.report.data import splits
    from schemas.contract import read_table
    from schemas.tables.events import SUBJECTS

    layout = made_up.write_layout(tmp_path / "mimic", subjects=200, cohorts={})
    table = read_table(layout.subjects, SUBJECTS)
    num_moved = 0
    pretrain = []
    for split in table["split"].to_pylist():
        num_moved += split == "test"
        pretrain.append("val" if split == "test" and num_moved <= 5 else split)
    table = table.set_column(table.column_names.index("pretrain_split"), "pretrain_split", [pretrain])
    write_table(table, layout.subjects, SUBJECTS, made_by="the test")

    content = splits(layout)

    assert content["overlap"]["val_in_test"] == {"patients": "withheld", "share": "–"}
    assert set(content["pretrain"].values()) == {"withheld"}


def compared(title, auroc, precision=(0.0, -0.1, 0.1)):
    """Return a task's metrics with NEST minus LightGBM: value, low and high of AUROC and of AP."""
    scores = {"auroc": auroc, "average_precision": precision}
    difference = {
        name: dict(zip(("value", "low", "high"), limits, strict=True)) for name, limits in scores.items()
    }
    return {"title": title, "models": {}, "missing": {}, "label_type": "bool", "difference": difference}


def test_verdicts_name_the_better_model_by_task_and_ties():
    category = compared("Codes", (0.0, 0.0, 0.0))
    sentences = verdicts(
        {
            "tasks": {
                "a": {
                    **compared("Mortality", (0.02, 0.01, 0.03)),
                    "differences": {
                        "probe": compared("", (-0.02, -0.03, -0.01))["difference"],
                        "logistic": compared("", (0.02, 0.01, 0.03))["difference"],
                        "best": compared("", (-0.1, -0.2, -0.05))["difference"],
                    },
                },
                "b": compared("Long stay", (0.0, -0.01, 0.01)),
                "c": {**category, "common": {**compared("", (-0.08, -0.1, -0.06)), "labels": 50}},
                "d": compared("Readmission", (0.0, -0.01, 0.01), (-0.02, -0.03, -0.01)),
                "e": compared("Sepsis", (0.01, None, None), (0.01, None, None)),
                "f": compared("Nothing", (None, None, None), (None, None, None)),
            }
        }
    )
    assert sentences == [
        "NEST is better than LightGBM: Mortality, by AUROC +0.020 (+0.010 to +0.030) (NEST − LightGBM).",
        "LightGBM is better than NEST: Codes, the 50 commonest, by AUROC −0.080 (−0.100 to −0.060) (NEST − LightGBM).",
        "LightGBM is better than NEST: Readmission, by AP −0.020 (−0.030 to −0.010) (NEST − LightGBM).",
        "No significant difference from LightGBM in AUROC or AP: Long stay.",
        "Too few patients for an interval: Sepsis.",
        "NEST, frozen is better than NEST: Mortality, by AUROC −0.020 (−0.030 to −0.010) (NEST − NEST, frozen).",
    ]


def test_both_pages_say_what_was_not_learnt_and_not_judged(report, cohort_page):
    for page, _ in (report, cohort_page[:2]):
        assert "MSM is at 2.5 nats a set, where a constant guess has 2.4: 0.1 worse." in page
        assert "Nothing is guessed for MSM." in page


def test_both_pages_contain_the_verdicts(report, cohort_page):
    for page, metrics in (report, cohort_page[:2]):
        sentences = verdicts(metrics)
        assert sentences
        for sentence in sentences:
            assert sentence in page
        assert page.count("No significant difference") == sum(
            "No significant" in sentence for sentence in sentences
        )
    of_list = report[1]["tasks"]["mimic_icd_category"].get("common", report[1]["tasks"]["mimic_icd_category"])
    assert of_list["difference"]["auroc"]["low"] is not None
    assert any(sentence.count("ICD category") for sentence in verdicts(report[1]))


@pytest.mark.long  # every day its sentences are made of a score that fell, and of one that rose
def test_page_warns_when_recalibration_worsens_a_score(tmp_path):
    layout = made_up.write_layout(tmp_path / "mimic", subjects=300, cohorts={"mimic_mortality": "bool"})
    path = layout.report("mimic_mortality_nest") / "predictions.parquet"
    honest = read_predictions(path)
    rng = np.random.default_rng(0)
    # the outcome is commoner among validation patients only
    common = rng.random(len(honest)) < 1 - 0.5 * (1 - honest.probability[:, 0])
    made_up.write_predictions(
        path,
        subject_id=honest.subject_id,
        encounter_id=honest.encounter_id,
        label=np.where(honest.split == "val", common, honest.truth[:, 0]).tolist(),
        probability=honest.probability,
        split=honest.split,
    )
    page, metrics = write(layout, tmp_path / "out", ["mimic_mortality"])
    task = metrics["tasks"]["mimic_mortality"]
    old, new = (part["models"]["nest"]["ece"]["value"] for part in (task, task["recalibrated"]))
    assert new > old + 0.01
    assert f"ECE worse on the test patients: NEST ({old:.3f} before, {new:.3f} after)" in page
    for sentence in recalibration_warnings(task):
        assert sentence in page


def test_page_has_no_warning_when_recalibration_helps():
    good = {name: {"value": value} for name, value in {"brier": 0.1, "ece": 0.02}.items()}
    bad = {name: {"value": value} for name, value in {"brier": 0.1004, "ece": 0.04}.items()}
    assert recalibration_warnings({"models": {"nest": bad}, "recalibrated": {"models": {"nest": good}}}) == []
    assert recalibration_warnings({"models": {"nest": bad}}) == []
    assert (
        len(recalibration_warnings({"models": {"nest": good}, "recalibrated": {"models": {"nest": bad}}}))
        == 1
    )


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ((1, 1, 1), "Masked tokens (MLM), masked sets (MSM), visible sets from their own [CLS] (own sets)"),
        ((1, 0, 0), "Masked tokens (MLM)"),
        ((0, 0.5, 0), "Masked sets (MSM)"),
    ],
)
def test_the_page_names_what_a_pretraining_predicts_and_no_more(weights, words):
    names = ("mlm_weight", "msm_weight", "own_set_weight")
    assert ", ".join(objectives(dict(zip(names, weights, strict=True)))) == words


def test_curves_are_withheld_when_rows_belong_to_few_patients(tmp_path):
    layout = made_up.write_layout(tmp_path / "mimic", subjects=200, cohorts={"mimic_mortality": "bool"})
    for model in ("nest", "probe", "lightgbm", "logistic"):
        path = predictions_path(layout, "mimic_mortality", model)
        predictions = read_predictions(path)
        small_layout = np.unique(predictions.subject_id[predictions.split == "test"])[:10]
        truth = predictions.truth[:, 0] & (
            (predictions.split != "test") | np.isin(predictions.subject_id, small_layout)
        )
        truth |= (predictions.split == "test") & np.isin(predictions.subject_id, small_layout)
        made_up.write_predictions(
            path,
            subject_id=predictions.subject_id,
            encounter_id=predictions.encounter_id,
            label=truth.tolist(),
            probability=predictions.probability,
            split=predictions.split,
            model=model,
        )
    assert (truth & (predictions.split == "test")).sum() >= 11
    page, metrics = write(layout, tmp_path / "out", ["mimic_mortality"])
    assert "under 11 test patients with, or without, the outcome" in page
    assert "ROC curves" not in page
    assert metrics["tasks"]["mimic_mortality"]["models"]["nest"]["reliability"] is None
    assert metrics["tasks"]["mimic_mortality"]["models"]["nest"]["auroc"]["value"] is None

import json
import re
import shutil
from html.parser import HTMLParser

import numpy as np
import pyarrow as pa
import pytest
import yaml
from sklearn.linear_model import LinearRegression

from nest_model.data.predictions import read_predictions
from nest_model.evaluation.metrics import METRICS
from nest_model.report import results_table, write_cohort_report, write_report
from nest_model.report.planted import parts_read, planted
from nest_model.report.tasks import predictions_of, title_of
from nest_model.report.verdicts import verdicts, worsened
from nest_model.training.telemetry import Telemetry
from schemas.cards import Flow, StepCard
from schemas.cohort import parse_cohort
from schemas.cohort.english import in_english
from schemas.contract import read_table, write_table
from schemas.layout import Layout
from schemas.rules import PRESETS, DataRules
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
    """The page of one cohort, with the file its labels were made from."""
    spec = parse_cohort(ROOT / "assets" / "cohorts" / "mimic_mortality.yaml").normalized()
    (layout.cohort("mimic_mortality") / "cohort.lock.yaml").write_text(yaml.safe_dump({"spec": spec}))
    out = layout.report("mimic_mortality")
    write_cohort_report(layout.root, "mimic_mortality", out, "default", Telemetry(out))
    (layout.cohort("mimic_mortality") / "cohort.lock.yaml").unlink()
    return (out / "report.html").read_text(), json.loads((out / "metrics.json").read_text())


def write(layout, out, cohorts=COHORTS, preset="default"):
    write_report(layout.root, cohorts, out, preset)
    return (out / "report.html").read_text(), json.loads((out / "metrics.json").read_text())


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """A task with fewer than eleven positives, whose page is quickly drawn: it has no curves."""
    root = tmp_path_factory.mktemp("few")
    return made_up.write_layout(root / "mimic", subjects=30, cohorts={"mimic_mortality": "bool"})


@pytest.fixture(scope="module")
def paper(few, tmp_path_factory):
    """The page of one task under the paper's preset."""
    page, _ = write(few, tmp_path_factory.mktemp("paper"), ["mimic_mortality"], preset="paper")
    return page


@pytest.fixture(scope="module")
def without_planted(layout, tmp_path_factory):
    """What is told of one task of made-up patients where nothing was planted."""
    copied = unplanted(layout, tmp_path_factory.mktemp("without_planted"), outputs=["raw"])
    return write(copied, copied.root.parent / "out", ["mimic_mortality"])


def unplanted(layout, folder, outputs):
    """Return a copy without planted probabilities, whose input has these outputs: none of a user's own."""
    copied = type(layout)(shutil.copytree(layout.root, folder / "mimic"))
    copied.planted.unlink()
    StepCard(step="raw", contract="raw/1", outputs=outputs).write(copied.cards)
    return copied


@pytest.fixture(scope="module")
def of_few(few, tmp_path_factory):
    """Its report's folder."""
    out = tmp_path_factory.mktemp("of_few")
    write_report(few.root, ["mimic_mortality"], out, "default", Telemetry(out))
    return out


@pytest.fixture(scope="module")
def children(tmp_path_factory):
    root = tmp_path_factory.mktemp("children") / "pcornet"
    return made_up.write_layout(root, subjects=300, cohorts={"autism": "bool"})


class Page(HTMLParser):
    """What of a page a test looks at: sections, links, text, and tags left open."""

    VOID = {"meta", "br", "img", "hr"}

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.words, self.stack, self.labels = [], [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag == "section":
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])
        if tag == "svg":
            self.labels.append(found.get("aria-label"))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_whole_and_its_contents_lead_to_every_section(report):
    page = Page(report[0])
    assert page.stack == []
    expected = ["results", *COHORTS, "pretraining", "data", "splits", "run", "limits"]
    assert page.ids == expected
    assert page.links == [f"#{name}" for name in expected]


def test_every_picture_says_what_it_shows(report):
    labels = Page(report[0]).labels
    assert len(labels) > 8
    assert all(labels)


def test_a_task_s_page_tells_what_nest_loses_without_a_part_of_its_input(report, cohort_page):
    for page, metrics in (report, cohort_page):
        words = " ".join(" ".join(Page(page).words).split())
        assert "than without as many events at random: DX, +0.040 (+0.020 to +0.060); LAB, +0.070" in words
        assert "It loses less without: last set, −0.070 (−0.090 to −0.050)" in words
        assert "DX < 1 % +0.050 (+0.030 to +0.070) +0.010" in words
        assert any("loses without a part of its input" in label for label in Page(page).labels)
        found = metrics["tasks"]["mimic_mortality"]["looks"]["removals"]
        assert [one["name"] for one in found["removals"]] == ["DX", "LAB", "last set"]
    assert words.count("What NEST loses without a part of its input") == 1


def test_where_nobody_asked_what_nest_loses_the_page_says_what_asks(report):
    asks = "NEST_YARDSTICKS=all measures it"
    chapter = report[0].split('<section id="mimic_icd_chapter">')[1].split("</section>")[0]
    mortality = report[0].split('<section id="mimic_mortality">')[1].split("</section>")[0]
    assert asks in chapter
    assert asks not in mortality


def test_the_page_needs_nothing_from_elsewhere(report):
    links = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", report[0])
    assert [link for link in links if not link.startswith("#")] == []
    assert "<script" not in report[0]
    assert "@import" not in report[0]


def test_a_cohort_s_page_is_whole_and_says_for_whom_before_it_says_how_well(cohort_page):
    page = Page(cohort_page[0])
    assert page.stack == []
    assert page.ids == ["whom", "mimic_mortality", "leaks", "splits", "run", "limits"]
    assert page.links == [f"#{name}" for name in page.ids]
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", cohort_page[0])
    headings = ("Who is in it", "Subgroups", "What the models look at")
    places = [words_of(cohort_page[0]).index(words) for words in headings]
    assert places == sorted(places)
    shown = (
        "ROC curves",
        "observed share",
        "net benefit",
        "attention each kind",
        "LightGBM's trees",
        "stays left",
    )
    assert [words for words in shown if not any(words in label for label in page.labels)] == []


def test_a_cohort_s_page_tells_what_the_source_s_report_tells_of_it(cohort_page, report):
    of_cohort, of_source = cohort_page[1]["tasks"], report[1]["tasks"]["mimic_mortality"]
    assert list(of_cohort) == ["mimic_mortality"]
    assert of_cohort["mimic_mortality"] | {"in_english": []} == of_source
    mortality, chapter = (of_source["models"], report[1]["tasks"]["mimic_icd_chapter"]["models"])
    assert f"{mortality['nest']['auroc']['value']:.3f}" in cohort_page[0]
    assert f"{chapter['nest']['auroc']['value']:.3f}" not in cohort_page[0]


def test_a_cohort_s_page_says_its_file_in_english(cohort_page):
    cohort = parse_cohort(ROOT / "assets" / "cohorts" / "mimic_mortality.yaml")
    page = words_of(cohort_page[0])
    for sentence in in_english(cohort)[1:]:
        assert sentence.removeprefix("  - ") in page


def test_intervals_are_spoken_of_where_a_score_has_one(few, cohort_page, tmp_path):
    write_cohort_report(few.root, "mimic_mortality", tmp_path, "default")
    said = "95 % intervals from 1,000 resamples"
    assert said in words_of(cohort_page[0])
    assert said not in words_of((tmp_path / "report.html").read_text())


def test_a_cohort_of_an_empty_data_folder_has_a_page_that_says_so(tmp_path):
    write_cohort_report(tmp_path, "mimic_mortality", tmp_path / "out", "default")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "mimic_mortality_labels</code> has not been materialized" in page
    assert page.count("its asset has not been materialized") == 4
    assert "No subjects table" in page


def test_patients_made_up_here_are_said_to_be_and_a_user_s_own_are_not(without_planted, few, tmp_path):
    own, _ = write(unplanted(few, tmp_path, outputs=[]), tmp_path / "out", ["mimic_mortality"])
    assert "The patients are made up" not in own
    assert "The patients are made up" in without_planted[0]


def test_no_id_reaches_the_page_the_numbers_or_the_telemetry(report, layout):
    told = (layout.report("mimic") / "metrics.jsonl").read_text()
    for text in (report[0], json.dumps(report[1]), told):
        assert str(made_up.FIRST_SUBJECT)[:6] not in text
        assert "727364" not in text


def test_the_numbers_hold_no_nan_and_no_small_count(report):
    json.dumps(report[1], allow_nan=False)
    assert report[1]["pretraining"]["counts"]["val_patients"] == "< 11"
    assert "no_stay 4" not in report[0]


def test_the_pretraining_stands_beside_guesses_and_what_it_has_not_learnt_comes_first(report):
    section = report[0].partition('<section id="pretraining">')[2].partition("</section>")[0]
    warning = "MSM stands at 2.5 nats a set, where a constant guess has 2.4: 0.1 worse."

    assert warning in section.partition("<figure>")[0]
    cells = re.findall(r"Recall@10 at \[CLS\] ↑</th>(.*)</tr>", section)[0]
    assert re.findall(r">([\d.–]+)<", cells) == ["0.1230", "0.0400", "0.0300", "0.0500"]
    assert "constant guess" in section.partition("<figure>")[2], "its curve is drawn beside it"


def test_a_drop_that_would_give_a_small_one_away_is_withheld(report):
    flow = report[1]["data"]["sources"]["emar"]
    assert flow["dropped"]["no_stay"] == "withheld"
    assert flow["dropped"]["no_atc"] == "withheld"
    assert flow["dropped"]["event_txt"] == "285"


def test_every_table_read_tells_what_was_dropped_and_what_was_mended(tmp_path):
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
    assert metrics["data"]["missing"] == ["vocab", "seqset"], "a CDM has no drug lookup"
    assert set(DataRules.model_fields) - set(metrics["run"]["rules"]) == {"med_link"}
    assert metrics["run"]["fitted"] == ["vocabulary", "laboratory cuts"]
    read = metrics["data"]["sources"]
    assert list(read) == ["DEMOGRAPHIC", "ENCOUNTER", "DIAGNOSIS"]
    assert read["ENCOUNTER"]["noted"] == {"time_24_00": "40", "bad_time": "< 11"}
    assert read["DIAGNOSIS"]["noted"] == {"code_cleaned": "70"}, "what is dropped later is counted there"
    told = words_of(page)
    assert all(
        words in told for words in ("born outside 20", "time 24 00 40", "bad time < 11", "the data end on")
    )


def test_two_tables_of_one_kind_do_not_give_a_small_drop_of_one_away(tmp_path):
    layout = Layout(tmp_path / "pcornet")
    layout.cards.mkdir(parents=True)
    tables = {
        "MED_ADMIN": Flow(source_rows=514, kept_rows=500, dropped={"before_birth": 8, "after_end": 6}),
        "PRESCRIBING": Flow(source_rows=945, kept_rows=900, dropped={"before_birth": 22, "after_end": 23}),
    }
    StepCard(step="events", contract="events/1", flows=tables).write(layout.cards)
    both = {"before_birth": 30, "after_end": 29, "grown_up": 100}
    kind = Flow(source_rows=1459, kept_rows=1300, dropped=both)
    counts = {"tokens": 1300, "tokens_MED": 1300, "subjects": 50, "sets": 90}
    StepCard(step="seqset", contract="seqset/1", flows={"MED": kind}, counts=counts).write(layout.cards)
    page, metrics = write(layout, tmp_path / "out", [])
    assert metrics["data"]["flows"]["MED"]["dropped"] == {"grown_up": "100"}
    assert metrics["data"]["flows"]["MED"]["source_rows"] == "1,400"
    assert "before birth 30" not in words_of(page)
    assert "before birth 22" in words_of(page)


def test_nest_tuned_and_frozen_lightgbm_and_the_best_possible_stand_side_by_side(report):
    models = report[1]["tasks"]["mimic_mortality"]["models"]
    assert list(models) == ["nest", "probe", "lightgbm", "logistic", "best"]
    assert models["best"]["auroc"]["value"] > models["nest"]["auroc"]["value"]
    assert {one["rows"] for one in models.values()} == {models["nest"]["rows"]}


def test_a_difference_is_of_the_two_values_and_has_its_own_interval(report):
    task = report[1]["tasks"]["mimic_mortality"]
    nest, lightgbm = (task["models"][name]["auroc"]["value"] for name in ("nest", "lightgbm"))
    difference = task["difference"]["auroc"]
    assert difference["value"] == pytest.approx(nest - lightgbm, abs=2e-6)
    assert difference["low"] < difference["value"] < difference["high"]


def test_the_mean_is_over_the_binary_tasks_both_models_were_scored_on(report):
    mean = report[1]["mean_auroc"]
    assert mean["tasks"] == ["Mortality"]
    value = report[1]["tasks"]["mimic_mortality"]["models"]["nest"]["auroc"]["value"]
    assert mean["models"]["nest"]["value"] == value


def test_nest_is_scored_on_all_labels_and_on_those_lightgbm_knows(layout, tmp_path):
    copied = shutil.copytree(layout.root, tmp_path / "mimic")
    path = type(layout)(copied).report("mimic_icd_category_lightgbm") / "predictions.parquet"
    from nest_model.data.predictions import read_predictions

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
    page, metrics = write(type(layout)(copied), tmp_path / "out", ["mimic_icd_category"])
    task = metrics["tasks"]["mimic_icd_category"]
    assert task["models"]["nest"]["classes_scored"] == 4
    assert task["common"]["labels"] == 2
    assert {one["classes_scored"] for one in task["common"]["models"].values()} == {2}
    assert "ICD category, the 2 commonest" in page


def test_recalibration_and_net_benefit_are_told_of_binary_tasks_alone(report):
    page, metrics = report
    found = metrics["tasks"]["mimic_mortality"]["recalibrated"]
    assert set(found["methods"]) == {"nest", "probe", "lightgbm"}
    assert set(found["methods"].values()) <= {"temperature", "isotonic"}
    assert found["models"]["nest"]["rows"] == metrics["tasks"]["mimic_mortality"]["models"]["nest"]["rows"]
    assert "recalibrated" not in metrics["tasks"]["mimic_icd_chapter"]
    labels = Page(page).labels
    assert sum("net benefit" in label for label in labels) == 1
    assert page.count("Recalibrated on the validation patients") == 1


def test_recalibration_changes_no_ranking_beyond_what_its_steps_tie(report):
    """A rising map: AUROC moves by ties alone."""
    _, metrics = report
    task = metrics["tasks"]["mimic_mortality"]
    for model in ("nest", "lightgbm"):
        before, after = (part["models"][model]["auroc"]["value"] for part in (task, task["recalibrated"]))
        assert after == pytest.approx(before, abs=0.02)


def test_what_the_models_look_at_is_drawn_where_it_was_written_down(report, layout, tmp_path):
    labels = Page(report[0]).labels
    for words in ("attention each kind", "earlier set gets", "LightGBM's trees"):
        assert sum(words in label for label in labels) == 1, words
    for model in ("nest", "lightgbm"):
        (layout.model(f"mimic_mortality_{model}") / "metrics.json").rename(tmp_path / model)
    page, _ = write(layout, tmp_path / "report", ["mimic_mortality"])
    for model in ("nest", "lightgbm"):
        (tmp_path / model).rename(layout.model(f"mimic_mortality_{model}") / "metrics.json")
    assert "What the models look at" not in page


def test_a_class_too_few_have_is_counted_on_the_page(report):
    found = report[1]["tasks"]["mimic_icd_chapter"]["models"]["nest"]
    assert found["classes_left_out"] == 1
    of_all = f"{found['classes_scored']} of {found['classes_scored'] + 1} classes"
    assert (
        f"{of_all} scored; left out are those with under 11 test patients with, or without, it" in report[0]
    )
    assert f'<span class="note">{of_all}</span>' in report[0], "beside its score too"


def test_without_planted_probabilities_there_is_no_best_possible(without_planted):
    page, metrics = without_planted
    assert "Planted risk" not in page
    assert "best" not in metrics["mean_auroc"]["models"]
    assert "nest" in metrics["mean_auroc"]["models"]


@pytest.mark.parametrize(
    ("planted_for", "is_shown"), [(1.0, True), pytest.param(0.95, True, marks=pytest.mark.long), (0.8, False)]
)
def test_a_risk_planted_for_a_child_is_the_best_possible_whichever_visit_is_the_index(
    children, tmp_path, planted_for, is_shown
):
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
    assert ("Planted risk (what can be had)</th>" in page) == is_shown
    assert "parts_read" not in metrics["tasks"]["autism"]
    if is_shown:
        best = planted(children, "autism", test)
        assert set(best.subject_id) == set(subjects)
        assert best.probability[:, 0].tolist() == ((best.subject_id % 97) / 100).tolist()
        assert metrics["tasks"]["autism"]["models"]["best"]["rows"] == len(best)


def test_of_each_planted_part_it_is_told_how_much_a_model_reads(report, layout):
    """Of a score that has half of one part and all of another, beside scikit-learn's own least squares."""
    test = read_predictions(predictions_of(layout, "mimic_mortality", "nest")).of("test")
    rows = {row["encounter_id"]: row for row in read_table(layout.planted, PLANTED).to_pylist()}
    terms = np.array([[rows[one][part] for part in PARTS] for one in test.encounter_id])
    noise = np.random.default_rng(0).normal(0, 0.3, len(terms))
    log_odds = terms @ [0.5, 1.0, 0.0, -0.2] - 1 + noise
    score = test.with_probability(made_up.sigmoid(log_odds)[:, None])

    read = parts_read(layout, "mimic_mortality", {"nest": score}, seed=1)["nest"]

    assert list(read) == list(PARTS)
    expected = LinearRegression().fit(terms, log_odds).coef_
    assert [one["value"] for one in read.values()] == pytest.approx(expected.tolist(), abs=1e-5)
    truths = (0.5, 1.0, 0.0, -0.2)
    assert all(
        one["low"] < truth < one["high"] and one["high"] - one["low"] < 0.3
        for one, truth in zip(read.values(), truths, strict=True)
    )
    of_best = report[1]["tasks"]["mimic_mortality"]["parts_read"]["best"]
    assert [one["value"] for one in of_best.values()] == pytest.approx([1] * 4, abs=1e-5)
    assert "How much of each part of the planted risk" in report[0]


def test_no_risk_is_told_of_a_user_s_own_patients_whatever_lies_in_the_folder(layout, tmp_path):
    copied = Layout(shutil.copytree(layout.root, tmp_path / "mimic"))
    StepCard(step="raw", contract="raw/1", outputs=[]).write(copied.cards)
    test = read_predictions(predictions_of(copied, "mimic_mortality", "nest")).of("test")
    assert planted(copied, "mimic_mortality", test) is None
    assert parts_read(copied, "mimic_mortality", {"nest": test}, seed=1) == {}


def test_an_empty_data_folder_is_said_not_crashed_on(tmp_path):
    layout = type("Empty", (), {"root": tmp_path})
    page, metrics = write(layout, tmp_path / "out")
    assert page.count("its asset has not been materialized") >= 2 * len(COHORTS)
    assert "There is no pretrained model" in page
    assert metrics["mean_auroc"]["tasks"] == []
    assert "no predictions" in results_table(metrics)


def test_what_was_odd_about_the_labels_is_said_on_the_page(few, tmp_path):
    layout = type(few)(shutil.copytree(few.root, tmp_path / "mimic"))
    sentence = "codes.sepsis.icd10cm: 'A41<b>' matches no event"
    StepCard(step="mimic_mortality_labels", contract="labels/1", warnings=[sentence]).write(layout.cards)
    page, metrics = write(layout, tmp_path / "out", ["mimic_mortality"])
    assert metrics["tasks"]["mimic_mortality"]["warnings"] == [sentence]
    assert "A41&lt;b&gt;&#39; matches no event" in page


def test_why_a_task_was_not_trainable_is_said(few, tmp_path):
    copied = type(few)(shutil.copytree(few.root, tmp_path / "mimic"))
    (copied.report("mimic_mortality_nest") / "predictions.parquet").unlink()
    folder = copied.model("mimic_mortality_nest")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "not_trainable.json").write_text(json.dumps({"cohort": "x", "reason": "one class only"}))
    page, metrics = write(copied, tmp_path / "out", ["mimic_mortality"])
    assert "not trainable: one class only" in page
    assert "not trainable: one class only" in results_table(metrics)


def test_curves_are_withheld_under_eleven_positives(of_few):
    page, metrics = (of_few / "report.html").read_text(), json.loads((of_few / "metrics.json").read_text())
    assert metrics["tasks"]["mimic_mortality"]["models"]["nest"]["positives"] == "< 11"
    assert "ROC curves" not in page
    assert "Curves and calibration are withheld" in page


def test_a_score_that_would_tell_how_few_had_the_outcome_is_withheld_everywhere(of_few):
    metrics = json.loads((of_few / "metrics.json").read_text())
    told = json.loads((of_few / "metrics.jsonl").read_text().splitlines()[-1])
    task = metrics["tasks"]["mimic_mortality"]

    scores = [one[name] for one in (*task["models"].values(), task["difference"]) for name in METRICS]
    assert {(one["value"], one["low"]) for one in scores} == {(None, None)}
    assert metrics["mean_auroc"]["tasks"] == []
    assert told == {"event": "result", "metrics": {}}
    table = results_table(metrics).splitlines()
    assert [line.index("withheld: under 11 patients") for line in table[2:]] == [
        table[0].index("Test rows")
    ] * 5


def test_both_overlaps_are_stated(report):
    overlap = report[1]["data"]["splits"]["overlap"]
    assert overlap["train_in_test"] == {"patients": "0", "share": "0.00%"}
    assert set(overlap) == {"train_in_test", "val_in_test", "train_in_val"}
    assert "fitted on the patients of the tasks' training split alone" in report[0].replace("&#39;", "'")


def test_the_paper_preset_says_that_test_patients_were_fitted_on(paper):
    assert "those of the test split too, as in the paper" in paper


def with_rules_of(layout, preset):
    metadata = {"rules": PRESETS[preset].model_dump_json()}
    write_table(VOCAB.empty_table(), layout.vocab, VOCAB, made_by="the test", metadata=metadata)


def words_of(page):
    return " ".join(" ".join(Page(page).words).split())


def test_the_header_claims_an_untouched_test_split_only_where_nothing_was_fitted_on_it(report, paper):
    claim = "which nothing was fitted or tuned on"

    assert claim in words_of(report[0])
    assert claim not in words_of(paper)
    assert "drug lookup were fitted on all patients" in words_of(paper)


def test_the_rules_told_are_those_the_data_was_made_under(few, tmp_path):
    copied = type(few)(shutil.copytree(few.root, tmp_path / "mimic"))
    with_rules_of(copied, "paper")
    other, metrics = write(copied, tmp_path / "other", ["mimic_mortality"], preset="default")
    same, _ = write(copied, tmp_path / "same", ["mimic_mortality"], preset="paper")

    assert metrics["run"]["rules"]["fit_on"] == "all"
    assert {"fit_on", "clock"} <= set(metrics["run"]["other_than_preset"])
    assert "The data was made under other rules than the preset's" in words_of(other)
    assert "which nothing was fitted or tuned on" not in words_of(other)
    assert "other rules than the preset's" not in words_of(same)


def test_the_best_possible_says_how_its_strengths_were_chosen(report):
    assert "shows that order can be used, not that NEST wins on real data" in words_of(report[0])


@pytest.mark.long
def test_the_same_files_give_the_same_report(layout, report, tmp_path):
    trained = layout.model(f"{layout.root.name}_nest") / "metrics.json"
    before = trained.read_text()
    trained.write_text(json.dumps(json.loads(before) | {"seconds": 12.3}))  # as long as it took this time
    page, metrics = write(layout, tmp_path / "again")
    trained.write_text(before)
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
def test_a_cohort_is_called_by_its_name_without_its_source(cohort, title):
    assert title_of(cohort) == title


def test_the_table_for_the_terminal_names_every_task_and_the_mean(report):
    table = results_table(report[1])
    for words in (
        "Mortality",
        "ICD chapter",
        "ICD category, all labels",
        "Mean over mortality",
        "NEST − LightGBM",
    ):
        assert words in table
    assert max(map(len, table.splitlines())) < 140


def test_a_small_overlap_hides_the_sizes_it_could_be_worked_out_from(tmp_path):
    from nest_model.report.data import splits
    from schemas.contract import read_table
    from schemas.tables.events import SUBJECTS

    layout = made_up.write_layout(tmp_path / "mimic", subjects=200, cohorts={})
    table = read_table(layout.subjects, SUBJECTS)
    moved = 0
    pretrain = []
    for split in table["split"].to_pylist():
        moved += split == "test"
        pretrain.append("val" if split == "test" and moved <= 5 else split)
    table = table.set_column(table.column_names.index("pretrain_split"), "pretrain_split", [pretrain])
    write_table(table, layout.subjects, SUBJECTS, made_by="the test")

    found = splits(layout)

    assert found["overlap"]["val_in_test"] == {"patients": "withheld", "share": "–"}
    assert set(found["pretrain"].values()) == {"withheld"}


def compared(title, auroc, precision=(0.0, -0.1, 0.1)):
    """Return what a task's metrics say of NEST less LightGBM: value, low and high of AUROC and of AP."""
    scores = {"auroc": auroc, "average_precision": precision}
    difference = {name: dict(zip(("value", "low", "high"), one, strict=True)) for name, one in scores.items()}
    return {"title": title, "models": {}, "missing": {}, "label_type": "bool", "difference": difference}


def test_verdict_names_who_is_better_task_by_task_and_where_nobody_is():
    category = compared("Codes", (0.0, 0.0, 0.0))
    found = verdicts(
        {
            "tasks": {
                "a": compared("Mortality", (0.02, 0.01, 0.03)),
                "b": compared("Long stay", (0.0, -0.01, 0.01)),
                "c": {**category, "common": {**compared("", (-0.08, -0.1, -0.06)), "labels": 50}},
                "d": compared("Readmission", (0.0, -0.01, 0.01), (-0.02, -0.03, -0.01)),
                "e": compared("Sepsis", (0.01, None, None), (0.01, None, None)),
                "f": compared("Nothing", (None, None, None), (None, None, None)),
            }
        }
    )
    assert found == [
        "NEST is better than LightGBM: Mortality, by AUROC +0.020 (+0.010 to +0.030) (NEST − LightGBM).",
        "LightGBM is better than NEST: Codes, the 50 commonest, by AUROC −0.080 (−0.100 to −0.060) (NEST − LightGBM).",
        "LightGBM is better than NEST: Readmission, by AP −0.020 (−0.030 to −0.010) (NEST − LightGBM).",
        "This data cannot tell them apart by AUROC or AP: Long stay.",
        "There is no interval to judge by, for want of patients: Sepsis.",
    ]


def test_verdicts_stand_on_both_pages_and_follow_the_intervals(report, cohort_page):
    for page, metrics in (report, cohort_page):
        sentences = verdicts(metrics)
        assert sentences
        for sentence in sentences:
            assert sentence in page
        assert page.count("cannot tell them apart") == sum("cannot tell" in one for one in sentences)
    of_list = report[1]["tasks"]["mimic_icd_category"].get("common", report[1]["tasks"]["mimic_icd_category"])
    assert of_list["difference"]["auroc"]["low"] is not None
    assert any(one.count("ICD category") for one in verdicts(report[1]))


def test_page_says_where_recalibration_made_it_worse(tmp_path):
    layout = made_up.write_layout(tmp_path / "mimic", subjects=300, cohorts={"mimic_mortality": "bool"})
    path = layout.report("mimic_mortality_nest") / "predictions.parquet"
    honest = read_predictions(path)
    rng = np.random.default_rng(0)
    common = rng.random(len(honest)) < 1 - 0.5 * (
        1 - honest.probability[:, 0]
    )  # of validation patients alone
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
    for sentence in worsened(task):
        assert sentence in page


def test_page_says_nothing_of_recalibration_where_it_helped():
    good = {name: {"value": value} for name, value in {"brier": 0.1, "ece": 0.02}.items()}
    bad = {name: {"value": value} for name, value in {"brier": 0.1004, "ece": 0.04}.items()}
    assert worsened({"models": {"nest": bad}, "recalibrated": {"models": {"nest": good}}}) == []
    assert worsened({"models": {"nest": bad}}) == []
    assert len(worsened({"models": {"nest": good}, "recalibrated": {"models": {"nest": bad}}})) == 1


def test_curves_are_withheld_where_many_rows_are_of_few_patients(tmp_path):
    layout = made_up.write_layout(tmp_path / "mimic", subjects=200, cohorts={"mimic_mortality": "bool"})
    for model in ("nest", "probe", "lightgbm"):
        path = predictions_of(layout, "mimic_mortality", model)
        one = read_predictions(path)
        few = np.unique(one.subject_id[one.split == "test"])[:10]
        truth = one.truth[:, 0] & ((one.split != "test") | np.isin(one.subject_id, few))
        truth |= (one.split == "test") & np.isin(one.subject_id, few)
        made_up.write_predictions(
            path,
            subject_id=one.subject_id,
            encounter_id=one.encounter_id,
            label=truth.tolist(),
            probability=one.probability,
            split=one.split,
            model=model,
        )
    assert (truth & (one.split == "test")).sum() >= 11
    page, metrics = write(layout, tmp_path / "out", ["mimic_mortality"])
    assert "under 11 test patients with, or without, the outcome" in page
    assert "ROC curves" not in page
    assert metrics["tasks"]["mimic_mortality"]["models"]["nest"]["reliability"] is None
    assert metrics["tasks"]["mimic_mortality"]["models"]["nest"]["auroc"]["value"] is None

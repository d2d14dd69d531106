"""Characteristics, periods and TRIPOD+AI of a cohort's page, beside counts made another way."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from nest_model.__main__ import main
from nest_model.comparison.run_folders import predictions_by_name
from nest_model.data.labels import Labels
from nest_model.data.predictions import Predictions, earlier_predictions, read_predictions
from nest_model.evaluation.subgroups import withheld_in_cells
from nest_model.report import write_cohort_report, write_report
from nest_model.report.characteristics import characteristics, numbers_of
from nest_model.report.data import splits
from nest_model.report.earlier_diagnoses import earlier_diagnoses
from nest_model.report.periods import periods
from nest_model.report.table import LABELS
from nest_model.report.tasks import MODELS, predictions_path, withhold_in_groups
from nest_model.report.tripod import FOR_THE_AUTHORS, ITEMS
from nest_model.report.tripod_answers import _sizes
from nest_model.report.verdicts import excesses, shortfalls
from nest_model.training.seeds import predictions_of_seed
from schemas.cards import StepCard
from schemas.cohort import parse_cohort
from schemas.contract import read_table, write_table
from schemas.errors import InputError
from schemas.io.outputs import write_json
from schemas.layout import Layout
from schemas.suppress import WITHHELD, disclosing
from schemas.tables.events import ENCOUNTERS, KINDS, SUBJECTS
from schemas.tables.vocab import SPECIALS, VOCAB, content_sha256
from tests.support import one_patient
from tests.support.attacker import Attacker
from tests.support.commands import ROOT
from tests.support.examples import examples
from tests.support.factories import predictions as made_up
from tests.support.factories.shards import set_row, write_shards

COHORT, CLASSES = "mimic_mortality", "mimic_icd_chapter"
SPLITS = ("train", "val", "test")


@pytest.fixture(scope="module")
def layout(tmp_path_factory) -> Layout:
    root = tmp_path_factory.mktemp("details") / "mimic"
    layout = made_up.write_layout(root, subjects=400, cohorts={COHORT: "bool", CLASSES: "class"})
    for cohort in (COHORT, CLASSES):
        made_up.write_labels(layout, cohort)
    made_up.write_years(layout)
    return layout


@pytest.fixture(scope="module")
def page(layout, tmp_path_factory):
    """Return the page, the metrics and the checklist of the cohort, with a title and thresholds of its own."""
    spec = parse_cohort(ROOT / "assets" / "cohorts" / "mimic_mortality.yaml").normalized()
    (layout.cohort(COHORT) / "cohort.lock.yaml").write_text(yaml.safe_dump({"spec": spec}))
    with_earlier_models(layout, noise=1)
    out = tmp_path_factory.mktemp("page")
    titles = {COHORT: "Death <in> hospital"}
    write_cohort_report(layout.root, COHORT, out, "default", titles=titles, thresholds=(0.2, 0.4))
    metrics = json.loads((out / "metrics.json").read_text())
    return (out / "report.html").read_text(), metrics, (out / "tripod_ai.md").read_text()


@pytest.mark.long  # the daily suite has a second page of the cohort in its place
def test_page_of_the_source_counts_at_the_cuts_of_the_cohorts_page(layout, page, tmp_path):
    """Else a reader of both could subtract: between the cuts of one and those of the other are few patients."""

    def reliability(metrics: dict) -> dict:
        return metrics["tasks"][COHORT]["models"]["nest"]["reliability"]

    def of_the_source(thresholds: dict) -> dict:
        write_report(layout.root, [COHORT], tmp_path / "source", "default", thresholds=thresholds)
        return reliability(json.loads((tmp_path / "source" / "metrics.json").read_text()))

    own = reliability(page[1])
    assert of_the_source({COHORT: (0.2, 0.4)}) == own
    assert of_the_source({}) != own


def shown_counts(layout: Layout, cohort: str) -> dict[str, str]:
    """Return the counts of labels as if none were withheld."""
    return {
        name: str(count) for name, count in StepCard.read(layout.cards, f"{cohort}_labels").counts.items()
    }


def test_characteristics_equal_counts_of_every_row(layout):
    labels = Labels.read(layout.labels(COHORT))
    with disclosing(is_synthetic=True):
        table = characteristics(layout, COHORT, shown_counts(layout, COHORT))
    assert table["columns"] == ["All", "Training", "Validation", "Test", "With outcome", "Without"]
    stays = {row["encounter_id"]: row for row in read_table(layout.encounters, ENCOUNTERS).to_pylist()}
    races = [stays[encounter]["race"] for encounter in labels.encounter_id]
    is_black = np.array([race.startswith("BLACK") for race in races])
    is_ill = labels.truth(("true",))[:, 0]
    row = next(row for row in table["rows"] if row["group"] == "Black")
    expected = [
        is_black,
        *(is_black & (labels.split == split) for split in SPLITS),
        is_black & is_ill,
        is_black & ~is_ill,
    ]
    assert [text.split(" (")[0] for text in row["cells"]] == [f"{mask.sum():,}" for mask in expected]
    assert row["cells"][0].endswith(f"({is_black.mean():.1%})")
    missing = next(row for row in table["rows"] if row["group"] == "follow-up")
    assert missing["cells"][0].startswith(f"{-(-len(labels) // 10)} (10.")


@pytest.mark.parametrize(
    ("outcome", "days", "is_short"),
    [({"any_encounter": {}}, 30, True), ({"died": True}, 30, False), ({"died": True}, 400, True)],
)
def test_deaths_are_followed_for_longer_than_the_data(layout, outcome, days, is_short):
    cohort = one_patient.parse({"outcome": outcome | {"within": f"{days} days"}})
    lock = layout.cohort("followed") / "cohort.lock.yaml"
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(yaml.safe_dump({"spec": cohort.normalized()}))
    shutil.copy(layout.labels(COHORT), lock.with_name("labels.parquet"))
    groups = [
        row["group"] for row in characteristics(layout, "followed", shown_counts(layout, COHORT))["rows"]
    ]
    assert (f"without the outcome, followed for less than {days} days" in groups) is is_short


def test_stays_before_and_ages_are_those_of_the_index_stay(layout):
    labels = Labels.read(layout.labels(COHORT))
    numbers = numbers_of(layout, COHORT, labels)
    for place in range(0, len(labels), 37):
        earlier = (labels.subject_id == labels.subject_id[place]) & (
            labels.encounter_id < labels.encounter_id[place]
        )
        assert numbers["stays_before"][place] == earlier.sum()


def test_classes_are_columns_and_the_rare_ones_are_put_together(layout):
    counts = shown_counts(layout, CLASSES) | {"class_I_val": "< 11"}
    table = characteristics(layout, CLASSES, counts)
    assert table["columns"][:4] == ["All", "Training", "Validation", "Test"]
    assert set(table["columns"][4:]) == {"II", "IX", "X", "Other classes"}


def test_follow_up_is_missing_of_a_yes_or_no_outcome_alone(tmp_path):
    layout = made_up.write_layout(
        tmp_path / "mimic", subjects=400, cohorts={COHORT: "bool", CLASSES: "class"}
    )
    for cohort, outcome in (
        (COHORT, {"any_encounter": {}, "within": "36 hours"}),
        (
            CLASSES,
            {
                "lab_class": "potassium",
                "classes": [{"II": {"below": 3}}],
                "otherwise": "IX",
                "within": "36 hours",
            },
        ),
    ):
        made_up.write_labels(layout, cohort)
        spec = parse_cohort(ROOT / "assets" / "cohorts" / "mimic_mortality.yaml").normalized()
        spec |= {"outcome": outcome, "codes": {"potassium": {"itemid": ["50971"]}}}
        (layout.cohort(cohort) / "cohort.lock.yaml").write_text(yaml.safe_dump({"spec": spec}))
        with disclosing(is_synthetic=True):
            table = characteristics(layout, cohort, shown_counts(layout, cohort))
        short = [row["group"] for row in table["rows"] if "followed for less" in row["group"]]
        assert short == (["without the outcome, followed for less than 36 hours"] if cohort == COHORT else [])


def test_columns_whose_sizes_are_withheld_are_left_out(layout):
    counts = shown_counts(layout, COHORT)
    assert characteristics(layout, COHORT, counts | {"positives_val": "< 11"})["columns"][-1] == "Test"
    assert characteristics(layout, COHORT, counts | {"rows_val": WITHHELD})["columns"] == ["All"]
    assert characteristics(layout, COHORT, counts | {"rows": "< 11"}) is None


COUNT = st.one_of(st.integers(0, 14), st.integers(0, 100))


@settings(max_examples=examples(25))
@given(st.lists(st.lists(COUNT, min_size=6, max_size=6), min_size=1, max_size=4))
def test_small_cell_cannot_be_narrowed_by_adding_up_the_table(counts):
    """Each row of `counts` is a group, each column a split with an outcome, one stay for each patient."""
    names = [f"group {place}" for place in range(len(counts))]
    cells = [f"{split} {outcome}" for split, outcome in product(SPLITS, ("yes", "no"))]
    truth = {
        f"{name} {cell}": count
        for name, row in zip(names, counts, strict=True)
        for cell, count in zip(cells, row, strict=True)
    }
    pairs = [(name, cell) for name in names for cell in cells for _ in range(truth[f"{name} {cell}"])]
    if not pairs:
        return
    groups, places = (np.array(column, dtype=object) for column in zip(*pairs, strict=True))
    masks = [places == cell for cell in cells]
    withheld = withheld_in_cells(np.arange(len(pairs)), [mask for mask in masks if mask.any()], groups)
    attacker = Attacker()
    sizes = {cell: int(np.sum(places == cell)) for cell in cells}
    unions = {"all": cells}
    if not any(0 < size < 11 for size in sizes.values()):  # the page shows the size of every cell
        unions |= {part: [cell for cell in cells if part in cell.split()] for part in (*SPLITS, "yes", "no")}
        attacker.see({cell: str(size) for cell, size in sizes.items()})
    if sum(sizes.values()) < 11:
        return  # no table is shown
    for union, parts in unions.items():
        attacker.see({union: str(np.isin(places, parts).sum())})
        attacker.know_sum(union, [f"{name} {union}" for name in names])
        for name in names:
            count = np.sum((groups == name) & np.isin(places, parts))
            attacker.see({f"{name} {union}": WITHHELD if name in withheld else str(count)})
            attacker.know_sum(f"{name} {union}", [f"{name} {part}" for part in parts])
    for cell in cells:
        attacker.know_sum(cell, [f"{name} {cell}" for name in names])
    assert attacker.narrowed(truth) == {}


def test_earlier_diagnoses_are_those_before_the_prediction(tmp_path):
    """Half of the patients have I10 on day 0 and all have E11 on day 9, which is after the prediction."""
    layout, day = Layout(tmp_path / "mimic"), 24 * 3600 * 10**6
    tokens = [(name, "SPECIAL", None) for name in SPECIALS] + [
        ("DX:I10", "DX", "I10"),
        ("DX:E119", "DX", "E119"),
    ]
    table = pa.table(
        {
            "token_id": pa.array(range(len(tokens)), pa.uint32()),
            **{name: [row[place] for row in tokens] for place, name in enumerate(("token", "kind", "code"))},
            **{name: pa.nulls(len(tokens), pa.string()) for name in ("unit", "parent")},
            **{name: pa.nulls(len(tokens), pa.float64()) for name in ("low", "high")},
            "count_train": [1] * len(tokens),
        }
    )
    write_table(table.select(VOCAB.names), layout.vocab, VOCAB, made_by="the test")
    first, second, kind = len(SPECIALS), len(SPECIALS) + 1, KINDS.index("DX")
    rows = []
    for subject in range(60):
        events = [(second, kind, 9 * day, 9 * day)] + [(first, kind, 0, 0)] * (subject % 2)
        rows.append(
            set_row(subject, 0, subject, 0, sorted(events, key=lambda event: event[2]), end_us=10 * day)
        )
    sha256 = content_sha256(read_table(layout.vocab, VOCAB))
    write_shards(layout.seqset, rows, vocab_sha256=sha256)
    task = made_up.task(COHORT, "bool", ("false", "true")).model_copy(update={"features": made_up.Features()})
    ids = np.arange(60)
    labels = Labels(task, ids, ids, np.full(60, 2 * day), None, np.full(60, "train", dtype=object))

    (diagnosis,) = earlier_diagnoses(layout, labels, [np.ones(60, dtype=bool)])
    assert diagnosis[0] == "I10"
    assert diagnosis[1].tolist() == [subject % 2 == 1 for subject in range(60)]
    few = np.arange(60) < 20  # ten of them have I10
    assert earlier_diagnoses(layout, labels, [few, ~few]) == []


def with_earlier_models(
    layout: Layout,
    noise: float,
    *,
    has_other_labels: bool = False,
    models: Sequence[str] = ("lightgbm", "probe"),
    seed: int | None = None,
) -> None:
    """Write predictions of models trained on the first period, which in later ones are mostly noise.

    Args:
        seed: a later seed of the models; None: the first.
    """
    write_json(layout.model(f"{COHORT}_yardsticks") / "temporal.json", {"earlier": ["2008 - 2010"]})
    rng = np.random.default_rng(0 if seed is None else seed)
    for model in models:
        predictions = read_predictions(predictions_path(layout, COHORT, model))
        is_later = (predictions.subject_id - made_up.FIRST_SUBJECT) % 3 > 0
        odds = (
            np.log(predictions.probability / (1 - predictions.probability))
            + noise * rng.normal(size=predictions.probability.shape) * is_later[:, None]
        )
        file = earlier_predictions(predictions_path(layout, COHORT, "logistic"), model)
        made_up.write_predictions(
            file if seed is None else predictions_of_seed(file, seed),
            subject_id=predictions.subject_id,
            encounter_id=predictions.encounter_id,
            label=predictions.truth[:, 0] ^ has_other_labels,
            probability=made_up.sigmoid(odds),
            split=predictions.split,
            model=model,
        )


def test_a_model_that_fails_on_later_patients_shows_its_decay(tmp_path):
    layout = made_up.write_layout(tmp_path / "mimic", subjects=900, cohorts={COHORT: "bool"})
    made_up.write_years(layout)
    models = {
        name: read_predictions(predictions_path(layout, COHORT, name)).of("test")
        for name in ("nest", "probe", "lightgbm")
    }
    assert "decay" not in periods(layout, COHORT, models)
    with_earlier_models(layout, noise=8, has_other_labels=True)
    assert "decay" not in periods(layout, COHORT, models), "of labels that have changed since"
    with_earlier_models(layout, noise=8)
    content = periods(layout, COHORT, models)
    assert [group["group"] for group in content["groups"]["nest"]] == [
        "2008 - 2010",
        "2011 - 2013",
        "2014 - 2016",
    ]
    for one in content["decay"].values():
        assert one["loss"]["high"] < 0, "it is worse than the model trained on all years"
        assert one["loss"]["value"] == pytest.approx(
            one["later"]["value"] - one["all_years"]["value"], abs=2e-6
        )
        assert one["change"]["value"] == pytest.approx(one["later"]["value"] - one["same"]["value"], abs=2e-6)


def test_what_is_lost_on_later_patients_compares_as_many_seeds_of_both_models(tmp_path):
    """The mean of both models' seeds; the first seed of both where that alone was trained on earlier patients."""
    layout = made_up.write_layout(tmp_path / "mimic", subjects=900, cohorts={COHORT: "bool"})
    made_up.write_years(layout)
    names = ("nest", "lightgbm")
    first = {name: read_predictions(predictions_path(layout, COHORT, name)).of("test") for name in names}
    with_earlier_models(layout, noise=1, models=names)
    with_earlier_models(layout, noise=4, models=["nest"], seed=7)
    worse = {name: one.with_probability(1 - one.probability) for name, one in first.items()}
    several = {name: one.with_seeds([worse[name]]) for name, one in first.items()}

    decay, of_first = (periods(layout, COHORT, models)["decay"] for models in (several, first))
    assert "seeds" not in of_first["nest"]
    assert (decay["nest"]["seeds"], decay["lightgbm"]["seeds"]) == (2, 1)
    assert {**of_first["lightgbm"], "seeds": 1} == decay["lightgbm"]
    assert decay["nest"]["all_years"]["value"] == pytest.approx(0.5, abs=1e-6), "a seed and its opposite"
    file = earlier_predictions(predictions_path(layout, COHORT, "logistic"), "nest")
    later = [
        _auroc_of_later_years(read_predictions(path).of("test"))
        for path in (file, predictions_of_seed(file, 7))
    ]
    assert later[0] != later[1]
    assert decay["nest"]["later"]["value"] == pytest.approx(np.mean(later), abs=2e-6)


def _auroc_of_later_years(predictions: Predictions) -> float:
    is_later = (predictions.subject_id - made_up.FIRST_SUBJECT) % 3 > 0
    return roc_auc_score(predictions.truth[is_later, 0], predictions.probability[is_later, 0])


def test_cohort_page_has_its_sections_in_order_and_no_id(page):
    text, metrics, checklist = page
    assert "<h1>Death &lt;in&gt; hospital" in text
    sections = ("whom", COHORT, "thresholds", "subgroups", "periods", "leaks")
    places = [text.index(f'<section id="{name}">') for name in sections]
    assert places == sorted(places)
    assert "set in the cohort file" in text
    parts = {"characteristics", "thresholds_by_user", "operating_points", "act_or_defer", "periods"}
    assert set(metrics["details"]) == parts
    assert "# TRIPOD+AI: Death <in> hospital" in checklist
    for words in (text, json.dumps(metrics), checklist):
        assert str(made_up.FIRST_SUBJECT)[:6] not in words


def test_counts_of_groups_do_not_add_up_to_a_withheld_number_of_test_rows():
    def group() -> dict:
        return {"rows": "50", "positives": "25", "auroc": {"value": 0.7}}

    for texts, counts in (
        ({}, ("50", "25")),
        ({"rows_test": "100", "positives_test": "50"}, ("50", "25")),
        ({"rows_test": "100", "positives_test": "< 11"}, ("50", WITHHELD)),
        ({"rows_test": WITHHELD, "positives_test": WITHHELD}, (WITHHELD, WITHHELD)),
    ):
        groups = [group(), group()]
        withhold_in_groups(groups, texts)
        assert [(one["rows"], one["positives"]) for one in groups] == [counts, counts]
        assert groups[0]["auroc"] == {"value": 0.7}


def test_page_lists_coverage_and_errors_that_are_worse_than_stated(page):
    text, metrics, _ = page
    errors = metrics["details"]["act_or_defer"]
    assert excesses(errors)
    assert all(sentence in text for sentence in (*shortfalls(errors), *excesses(errors)))
    assert "A larger share of the predictions acted on is wrong than the stated error" in text


def test_checklist_answers_twenty_items_each_with_its_source(page):
    parts = page[2].split("\n**")[1:]
    assert [int(part.split(".")[0]) for part in parts] == list(range(1, 28)) == list(range(1, len(ITEMS) + 1))
    answers = [part for part in parts if "\nFrom: " in part]
    assert len(answers) >= 20
    assert f"{len(answers)} of the 27 items" in page[2]
    assert all(FOR_THE_AUTHORS in part for part in parts if part not in answers)


def item(checklist: str, number: int) -> str:
    return checklist.split(f"**{number}. ")[1].split(f"**{number + 1}. ")[0]


def test_checklist_says_of_thresholds_and_models_what_the_run_did(page, tmp_path):
    assert "Thresholds: set in the cohort file.\n" in item(page[2], 15)
    assert "table of characteristics shows" in item(page[2], 16)
    layout = made_up.write_layout(tmp_path / "mimic", subjects=400, cohorts={COHORT: "bool"})
    predictions_path(layout, COHORT, "lightgbm").unlink()
    write_json(layout.model(f"{COHORT}_nest") / "config.json", {})
    metrics = layout.model(f"{COHORT}_nest") / "metrics.json"
    content = json.loads(metrics.read_text())
    metrics.unlink()
    write_json(metrics, content | {"best_epoch": 0, "epochs": 3})
    write_cohort_report(layout.root, COHORT, tmp_path / "out", "default")
    checklist = (tmp_path / "out" / "tripod_ai.md").read_text()
    assert "chosen on validation patients" in item(checklist, 15)
    assert "table of characteristics" not in item(checklist, 16)
    assert "LightGBM" not in item(checklist, 12)
    assert "epoch 1 of 3" in item(checklist, 22)


def further_model(layout: Layout, folder: Path) -> Path:
    """Write a model's folder whose predictions are NEST's, and return it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"system": "core_behrt"}))
    (folder / "metrics.json").write_text("{}")
    shutil.copy(predictions_path(layout, COHORT, "nest"), folder / "predictions.parquet")
    return folder


def test_a_further_model_has_rows_in_the_tables_of_scores_thresholds_and_subgroups(layout, tmp_path):
    model = further_model(layout, tmp_path / "my_behrt")
    command = ["cohort-report", f"--root={layout.root}", f"--cohort={COHORT}", "--preset=default"]
    assert main([*command, f"--out={tmp_path / 'out'}", "--further", str(model)]) == 0

    page = (tmp_path / "out" / "report.html").read_text()
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    task, details = metrics["tasks"][COHORT], metrics["details"]
    for tables in (
        task["models"],
        task["recalibrated"]["models"],
        task["subgroups"],
        task["parts_read"],
        details["operating_points"],
        details["act_or_defer"],
    ):
        assert tables["my_behrt"] == tables["nest"], "its predictions are NEST's"
    assert task["differences"]["my_behrt"]["auroc"]["value"] == 0
    assert page.count("my_behrt") > 6


def test_a_further_model_of_other_labels_or_without_predictions_is_refused(layout, tmp_path):
    model = further_model(layout, tmp_path / "my_behrt")
    predictions = read_predictions(model / "predictions.parquet")
    of_validation = np.flatnonzero(predictions.split == "val")
    truth = predictions.truth.copy()
    truth[of_validation[0]] = 1 - truth[of_validation[0]]
    without_a_row = predictions.rows(np.delete(np.arange(len(predictions)), of_validation[0]))

    def write(cohort: str, **models):
        out = tmp_path / "out"
        write_cohort_report(layout.root, cohort, out, "default", further_models=models)

    for name in ("nest", "best", "constant"):
        with pytest.raises(InputError, match=f"{name}: a model of the page has this name"):
            write(COHORT, **{name: predictions})
    for other in (without_a_row, replace(predictions, truth=truth)):
        with pytest.raises(InputError, match="other validation or test rows, outcomes or classes"):
            write(COHORT, my_behrt=other)
    with pytest.raises(
        InputError, match=f"of the cohort {COHORT}; name a model trained on those of {CLASSES}"
    ):
        write(CLASSES, my_behrt=predictions)
    of_classes = read_predictions(predictions_path(layout, CLASSES, "nest"))
    with pytest.raises(InputError, match="rows, outcomes or classes"):
        write(CLASSES, my_behrt=of_classes.only(of_classes.classes[:-1]))
    (model / "predictions.parquet").unlink()
    with pytest.raises(InputError, match="there are no predictions in it"):
        predictions_by_name([model])
    assert not (tmp_path / "out").exists()


def test_a_second_page_of_a_cohort_counts_at_the_thresholds_of_its_own(tmp_path):
    layout = made_up.write_layout(tmp_path / "mimic", subjects=60, cohorts={COHORT: "bool"})
    own = layout.report(COHORT)
    write_cohort_report(layout.root, COHORT, own, "default", thresholds=(0.4, 0.123456))
    with pytest.raises(InputError, match=r"counts at other thresholds; pass --thresholds 0\.123456,0\.4"):
        write_cohort_report(layout.root, COHORT, tmp_path / "out", "default")
    write_cohort_report(layout.root, COHORT, tmp_path / "out", "default", thresholds=(0.123456, 0.4))
    write_cohort_report(layout.root, COHORT, own, "default")
    with pytest.raises(InputError, match="leave out --thresholds"):
        write_cohort_report(layout.root, COHORT, tmp_path / "out", "default", thresholds=(0.123456, 0.4))


@pytest.mark.parametrize("had_thresholds", [True, False])
def test_a_page_of_an_earlier_version_says_only_whether_it_had_thresholds(had_thresholds, tmp_path):
    layout = made_up.write_layout(tmp_path / "mimic", subjects=60, cohorts={COHORT: "bool"})
    write_json(layout.report(COHORT) / "metrics.json", {"details": {"thresholds_by_user": had_thresholds}})
    if had_thresholds:
        with pytest.raises(InputError, match=f"materialize {COHORT}_report again first"):
            write_cohort_report(layout.root, COHORT, tmp_path / "out", "default")
    else:
        write_cohort_report(layout.root, COHORT, tmp_path / "out", "default")
        assert (tmp_path / "out" / "report.html").exists()


def test_every_model_of_the_page_has_a_name():
    assert {*MODELS, "best", "constant"} <= {*LABELS}, "a further model alone may be missing there"


def test_checklist_leaves_withheld_sizes_to_the_authors():
    counts = {f"{unit}_{split}": WITHHELD for unit in ("rows", "subjects") for split in SPLITS}
    assert _sizes(counts) == []
    assert _sizes(counts | {"rows_val": "40", "subjects_val": "30", "positives_val": "< 11"}) == [
        "validation: 40 index stays of 30 patients, with the outcome: < 11"
    ]


def test_checklist_of_an_empty_data_folder_leaves_results_to_the_authors(tmp_path):
    write_cohort_report(tmp_path / "mimic", COHORT, tmp_path / "out", "default")
    text = (tmp_path / "out" / "tripod_ai.md").read_text()
    title = text.split("**1. Title**")[1].split("**2.")[0]
    assert FOR_THE_AUTHORS in title
    assert "From:" not in title


def test_sections_are_absent_for_lists_of_labels(tmp_path):
    layout = made_up.write_layout(tmp_path / "mimic", subjects=60, cohorts={"mimic_icd_category": "list"})
    made_up.write_years(layout)
    write_cohort_report(layout.root, "mimic_icd_category", tmp_path / "out", "default")
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["details"] == {}


def test_patients_of_a_split_outside_the_cohort_cannot_be_subtracted(layout):
    """The splits count all patients, the labels those of the cohort."""
    patients = read_table(layout.subjects, SUBJECTS)["split"].to_pylist()
    card = StepCard.read(layout.cards, f"{COHORT}_labels")
    for outside, is_disclosed in ((0, True), (5, False), (11, True)):
        counts = {f"subjects_{split}": patients.count(split) for split in SPLITS}
        counts["subjects_val"] -= outside
        card.model_copy(update={"counts": card.counts | counts}).write(layout.cards)
        content = splits(layout, COHORT)
        texts = [*content["task"].values(), *content["pretrain"].values()]
        assert all((text != WITHHELD) is is_disclosed for text in texts), outside
    card.write(layout.cards)


@pytest.mark.long  # every day a small cell cannot be narrowed by adding up the table
def test_stays_of_unknown_age_are_withheld_as_a_group_of_ages(tmp_path):
    """Beside few patients under 1 year, the subgroups' table withholds the ages that are not known too."""
    layout = made_up.write_layout(tmp_path / "mimic", subjects=400, cohorts={COHORT: "bool"})
    made_up.write_labels(layout, COHORT)
    stays = read_table(layout.encounters, ENCOUNTERS)
    age = np.full(len(stays), 50.0)
    age[np.arange(len(age)) % 9 < 4], age[:8] = np.nan, 0.5
    ages = pa.array(age, pa.float64(), mask=np.isnan(age))
    place = stays.schema.get_field_index("age_years")
    other_stays = stays.set_column(place, stays.schema.field("age_years"), ages)
    layout.encounters.unlink()
    write_table(other_stays, layout.encounters, ENCOUNTERS, made_by="the test")
    write_cohort_report(layout.root, COHORT, tmp_path / "out", "default")
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    table = metrics["details"]["characteristics"]["rows"]
    (row,) = [row for row in table if (row["name"], row["group"]) == ("Missing", "age")]
    assert set(row["cells"]) == {WITHHELD}
    groups = metrics["tasks"][COHORT]["subgroups"]["nest"]
    (group,) = [one for one in groups if (one["attribute"], one["group"]) == ("Age", "not known")]
    assert group["rows"] == WITHHELD

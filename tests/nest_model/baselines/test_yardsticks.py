"""The other baselines: their features, the signals that only one of them uses, and reasons for those not fitted."""

import json

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from sklearn.metrics import roc_auc_score

from nest_model.baselines import lightgbm, yardsticks
from nest_model.baselines.previous_stay import previous_stay_features
from nest_model.baselines.rollups import WINDOWS, rollup_features
from nest_model.data.code_groups import groups_of
from nest_model.data.history import select
from nest_model.data.measured import MeasuredItems
from nest_model.data.predictions import WITHOUT_PRETRAINING, read_predictions, yardstick_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.training.telemetry import Telemetry
from pipelines.cohorts.chapters import icd10_chapter
from schemas.contract import read_table, write_table
from schemas.icd10 import CHAPTER_RANGES, chapter_of
from schemas.io.outputs import write_json
from schemas.tables.labels import Features, labels_schema
from schemas.tables.vocab import SPECIALS, VOCAB, content_sha256
from tests.nest_model.baselines.test_lightgbm import DAY_US, write_seqset
from tests.support.factories import predictions as made_up

ITEMS = 30
CODES = [("DX", "I2510"), ("DX", "I509"), ("MED", "C03CA01"), ("MED", "RX123"), ("PR", "0SRD0J9")]
LABS = [("LAB", f"{item}_Q{decile}") for item in range(ITEMS) for decile in range(1, 11)]
TOKENS = [*((kind, kind) for kind in SPECIALS), *CODES, *LABS]
FIRST_LAB = len(SPECIALS) + len(CODES)


def write_vocab(folder) -> str:
    size = len(TOKENS)
    table = pa.table(
        {
            "token_id": pa.array(range(size), pa.uint32()),
            "token": [code if kind == code else f"{kind}:{code}" for kind, code in TOKENS],
            "kind": ["SPECIAL" if kind == code else kind for kind, code in TOKENS],
            "code": [None if kind == code else code.split("_Q")[0] for kind, code in TOKENS],
            **{name: pa.nulls(size, pa.string()) for name in ("unit", "parent")},
            **{name: pa.nulls(size, pa.float64()) for name in ("low", "high")},
            "count_train": [1] * size,
        }
    )
    write_table(table.select(VOCAB.names), folder / "vocab.parquet", VOCAB, made_by="the test")
    return content_sha256(read_table(folder / "vocab.parquet", VOCAB))


def lab(item: int, decile: int) -> int:
    return FIRST_LAB + 10 * item + int(decile) - 1


def write_task(folder, label, encounter, label_type="bool", classes=("false", "true")) -> None:
    """Write a task's labels: subject k's at its encounter, a day after the start of its set on day 100."""
    rows = len(label)
    split = np.repeat(["train", "val", "test"], [rows * 6 // 10, rows * 2 // 10, rows - rows * 8 // 10])
    table = pa.table(
        {
            "subject_id": np.arange(rows),
            "index_encounter": np.asarray(encounter),
            "index_start": pa.array([100 * DAY_US] * rows, pa.timestamp("us")),
            "predict_at": pa.array([101 * DAY_US] * rows, pa.timestamp("us")),
            "label": pa.array(list(label), labels_schema(label_type).field("label").type),
            "outcome_time": pa.nulls(rows, pa.timestamp("us")),
            "follow_up_days": pa.nulls(rows, pa.float64()),
            "split": split,
        }
    )
    task = made_up.task("mimic_made_up", label_type, classes).model_copy(update={"features": Features()})
    metadata = {"task": task.model_dump_json()}
    write_table(table, folder / "labels.parquet", labels_schema(label_type), made_by="t", metadata=metadata)


def write_nest(folder, max_sets, max_set_rows=512) -> None:
    write_json(
        folder / "nest" / "config.json", {"model": {"max_sets": max_sets, "max_set_rows": max_set_rows}}
    )


def boost(folder) -> None:
    out = folder / "boosted"
    lightgbm.run(
        labels=folder / "labels.parquet",
        seqset=folder / "seqset",
        vocab=folder / "vocab.parquet",
        out=out,
        predictions=out / "predictions.parquet",
        seed=42,
        telemetry=Telemetry(out),
    )


def run(folder, yardstick_set="default"):
    """Return the metrics of each baseline, and the predictions file of the first."""
    out = folder / "yardsticks"
    yardsticks.run(
        labels=folder / "labels.parquet",
        seqset=folder / "seqset",
        vocab=folder / "vocab.parquet",
        pretrained_model=folder / "nest",
        lightgbm_model=folder / "boosted",
        out=out,
        predictions=out / "predictions.parquet",
        yardstick_set=yardstick_set,
        seed=42,
        telemetry=Telemetry(out),
    )
    return json.loads((out / "metrics.json").read_text())["yardsticks"], out / "predictions.parquet"


def auroc(file) -> float:
    test = read_predictions(file).of("test")
    return float(roc_auc_score(test.truth[:, 0], test.probability[:, 0]))


@pytest.fixture
def drift(tmp_path):
    """500 patients whose items lie anywhere; only whether they rise from one stay to the next tells the outcome."""
    rng = np.random.default_rng(0)
    label, sets = rng.random(500) < 0.5, []
    for subject in range(500):
        earlier_values = rng.integers(2, 10, ITEMS)
        current_values = earlier_values + np.where(rng.random(ITEMS) < 0.7, 1, -1) * (
            1 if label[subject] else -1
        )
        for day, deciles in ((0, earlier_values), (100, current_values)):
            sets.append((subject, day, [lab(k, decile) for k, decile in enumerate(deciles)], [0.1] * ITEMS))
    write_seqset(tmp_path, sets, write_vocab(tmp_path))
    write_task(tmp_path, label, 2 * np.arange(500) + 1)
    return tmp_path


def test_logistic_regression_uses_the_change_from_the_previous_stay(drift, monkeypatch):
    from nest_model.baselines import boosting

    monkeypatch.setattr(boosting, "GRIDS", boosting.GRIDS | {"bool": boosting.GRIDS["bool"][:1]})
    boost(drift)
    results, predictions = run(drift)

    assert auroc(predictions) > 0.95
    assert auroc(drift / "boosted" / "predictions.parquet") < 0.75
    assert list(results) == ["logistic"]
    assert not yardstick_predictions(predictions, "lightgbm_rollups").exists()


def random_sets(rng, subjects):
    """Return sets of a few labs and codes, some known only days later."""
    sets = []
    for subject in range(subjects):
        for day in sorted(rng.choice(99, rng.integers(0, 4), replace=False)):
            sets.append((subject, int(day), rng.integers(5, 40, 6).tolist(), rng.uniform(0, 3, 6).tolist()))
        sets.append((subject, 100, rng.integers(5, 40, 9).tolist(), rng.uniform(0, 2, 9).tolist()))
    return sets


def write_and_select(folder, sets):
    write_seqset(folder, sets, write_vocab(folder))
    seqsets = SeqSets.read(folder / "seqset")
    last = [k for k, stay in enumerate(sets) if stay[1] == 100]
    at = np.full(len(last), 101 * DAY_US)
    selection = select(seqsets, Features(), np.arange(len(last)), np.array(last), at)
    return seqsets, selection, at, read_table(folder / "vocab.parquet", VOCAB)


def test_previous_stay_features_equal_a_count_by_hand(tmp_path):
    sets = random_sets(np.random.default_rng(1), 40)
    seqsets, selection, _, tokens = write_and_select(tmp_path, sets)
    measured_items = MeasuredItems.of(tokens)
    size, items = len(tokens), len(measured_items.items)
    assert (items, measured_items.items[1], measured_items.decile[lab(1, 10)]) == (ITEMS, "LAB:1", 10)

    results = previous_stay_features(seqsets, selection, measured_items, size).toarray()

    expected = np.zeros_like(results)
    for subject, day, row, known_days in sets:
        visible_tokens = [
            token for token, day_known in zip(row, known_days, strict=True) if day + day_known <= 101
        ]
        expected[subject, [token + (day < 100) * size for token in visible_tokens]] = 1
    for subject in range(40):
        subject_stays = [stay for stay in sets if stay[0] == subject]
        means = [
            {
                k: np.mean(deciles)
                for k in range(ITEMS)
                if (
                    deciles := [
                        (token - FIRST_LAB) % 10 + 1
                        for token, day_known in zip(row, known_days, strict=True)
                        if token >= FIRST_LAB and (token - FIRST_LAB) // 10 == k and day + day_known <= 101
                    ]
                )
            }
            for _, day, row, known_days in subject_stays
        ]
        for k, level in means[-1].items():
            expected[subject, 2 * size + k] = level
            expected[subject, 2 * size + items + k] = 1
            if earlier_values := [stay[k] for stay in means[:-1] if k in stay]:
                expected[subject, 2 * size + 2 * items + k] = level - np.mean(earlier_values)
                expected[subject, 2 * size + 3 * items + k] = 1
    assert np.count_nonzero(expected[:, 2 * size + 2 * items :]) > 20
    assert np.allclose(results, expected)


def test_rollups_count_tokens_and_their_groups_in_each_window(tmp_path):
    sets = [
        (0, -400, [5, 7, lab(0, 3)], [0.1, 0.1, 0.1]),
        (0, 90, [6, 9], [0.1, 0.1]),
        (0, 100, [5, lab(0, 9), lab(0, 3), 7], [-0.5, 0.5, 0.6, 1.5]),
    ]
    seqsets, selection, at, tokens = write_and_select(tmp_path, sets)

    results = rollup_features(seqsets, selection, tokens, "available_at", at).toarray()[0]

    width = (len(results) - 4) // len(WINDOWS)
    windows = dict(zip(WINDOWS, results[:-4].reshape(len(WINDOWS), width), strict=True))
    visible_tokens = {  # the MED is known only after the prediction
        "24 hours": [lab(0, 9), lab(0, 3)],
        "the stay": [5, lab(0, 9), lab(0, 3)],
        "1 year": [5, lab(0, 9), lab(0, 3), 6, 9],
        "all": [5, lab(0, 9), lab(0, 3), 6, 9, 5, 7, lab(0, 3)],
    }
    groups = {  # I25 I50 IX; C C03 C03C C03CA; 0 0SR; the item
        "24 hours": [2],
        "the stay": [1, 1, 2],
        "1 year": [1, 1, 1, 1, 2, 2],
        "all": [1, 1, 1, 1, 1, 1, 1, 2, 3, 3],
    }
    for window, counts in windows.items():
        assert (
            counts[: len(tokens)].tolist()
            == np.bincount(visible_tokens[window], minlength=len(tokens)).tolist()
        )
        assert sorted(counts[len(tokens) :][counts[len(tokens) :] > 0]) == groups[window]


def test_codes_roll_up_by_their_code_system():
    assert groups_of("DX", "I2510") == ["category I25", "chapter IX"]
    assert groups_of("MED", "C03CA01") == ["ATC C", "ATC C03", "ATC C03C", "ATC C03CA"]
    assert groups_of("PR", "0SRD0J9") == ["procedure 0", "procedure 0SR"]
    assert [groups_of(*category) for category in (("MED", "RX123"), ("IMM", "20"), ("SPECIAL", None))] == [
        [],
        [],
        [],
    ]


def test_icd_category_has_the_same_chapter_as_in_labels():
    categories = [edge for low, high, _ in CHAPTER_RANGES for edge in (low, high)] + ["D50", "U99", "123"]
    codes = pl.DataFrame({"mapped": categories, "vocab": "icd10cm", "code": categories})
    assert codes.select(icd10_chapter()).to_series().to_list() == [
        chapter_of(category) for category in categories
    ]


@pytest.fixture
def two_stays(tmp_path):
    """400 patients of two stays, the outcome a code of the first."""
    rng = np.random.default_rng(2)
    label = rng.random(400) < 0.4
    sets = []
    for subject in range(400):
        sets.append((subject, 0, [5 if label[subject] else 6, 7], [0.1, 0.1]))
        sets.append((subject, 100, rng.integers(7, 20, 4).tolist(), [0.1] * 4))
    write_seqset(tmp_path, sets, write_vocab(tmp_path))
    write_task(tmp_path, label, 2 * np.arange(400) + 1)
    return tmp_path


def test_all_yardsticks_are_fitted_and_the_cut_uses_nest_context(two_stays):
    boost(two_stays)
    write_nest(two_stays, max_sets=1)
    results, predictions = run(two_stays, "all")

    scores = {name: auroc(yardstick_predictions(predictions, name)) for name in results}
    assert scores["logistic"] > 0.95
    assert scores["lightgbm_rollups"] > 0.95
    assert 0.3 < scores["lightgbm_cut"] < 0.7
    card = (two_stays / "yardsticks" / "README.md").read_text()
    assert "NEST's context" in card

    write_nest(two_stays, max_sets=2)
    results, predictions = run(two_stays, "all")
    assert results["lightgbm_cut"] == {"reason": yardsticks.NOTHING_CUT}
    assert not yardstick_predictions(predictions, "lightgbm_cut").exists()
    assert yardstick_predictions(predictions, "lightgbm_rollups").exists()


def test_yardsticks_no_longer_requested_are_removed(two_stays):
    write_nest(two_stays, max_sets=1)
    results, predictions = run(two_stays, "all")
    assert results["lightgbm_cut"] == {"reason": yardsticks.NOT_BOOSTED}
    boost(two_stays)
    run(two_stays, "all")
    assert yardstick_predictions(predictions, "lightgbm_cut").exists()

    without_pretraining = yardstick_predictions(predictions, WITHOUT_PRETRAINING)
    model = two_stays / "yardsticks" / WITHOUT_PRETRAINING / "config.json"
    write_json(without_pretraining.with_name("metrics.json"), {})
    write_json(model, {})
    run(two_stays, "all")
    assert model.exists(), "another command trains this model and resumes"

    run(two_stays)
    assert predictions.exists()
    assert not yardstick_predictions(predictions, "lightgbm_cut").parent.exists()
    assert not model.parent.exists()
    assert not without_pretraining.parent.exists()


def test_a_task_with_a_single_class_writes_the_reason(two_stays):
    write_task(two_stays, np.zeros(400, dtype=bool), 2 * np.arange(400) + 1)
    with pytest.raises(FileNotFoundError):
        run(two_stays)
    note = json.loads((two_stays / "yardsticks" / "not_trainable.json").read_text())
    assert note["reason"].startswith("the training split has one class only; give more patients")


@pytest.mark.parametrize("label_type", ["class", "list"])
def test_logistic_regression_fits_class_and_list_tasks(two_stays, label_type):
    """Each of three classes has its own code; the list task has two of them, and class d has no rows."""
    kind = np.random.default_rng(3).integers(0, 3, 400)
    sets = [(k, day, [5 + int(kind[k])] if day else [8], [0.1]) for k in range(400) for day in (0, 100)]
    write_seqset(two_stays, sets, write_vocab(two_stays))
    label = ["abc"[k] if label_type == "class" else list("ab"[k : k + 1]) for k in kind]
    write_task(two_stays, label, 2 * np.arange(400) + 1, label_type, ("a", "b", "c", "d"))
    results, predictions = run(two_stays)

    test = read_predictions(predictions).of("test")
    assert test.classes == (("a", "b", "c", "d") if label_type == "class" else ("a", "b"))
    has_rows = np.flatnonzero(test.truth.any(axis=0))
    assert min(roc_auc_score(test.truth[:, k], test.probability[:, k]) for k in has_rows) > 0.99
    assert results["logistic"]["validation"]["average_precision"] > 0.99

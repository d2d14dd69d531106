import hashlib
import json

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from nest_model.baselines.counts import (
    SIZES,
    common_columns,
    count_features,
    feature_names,
    patients_of_columns,
)
from nest_model.baselines.lightgbm import run
from nest_model.data.history import select
from nest_model.data.predictions import read_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.training.telemetry import Telemetry
from schemas.cards import ShardCard
from schemas.contract import read_table, write_table
from schemas.errors import NestError
from schemas.io.outputs import MARK
from schemas.tables.labels import Features, labels_schema
from schemas.tables.seqset import SEQSET
from schemas.tables.vocab import SPECIALS, VOCAB, content_sha256
from tests.support.factories import predictions as made_up

DAY_US = 24 * 3600 * 10**6
TOKENS = [*SPECIALS, *(f"DX:{k}" for k in range(12))]


def write_vocab(folder) -> str:
    table = pa.table(
        {
            "token_id": pa.array(range(len(TOKENS)), pa.uint32()),
            "token": TOKENS,
            "kind": ["DX"] * len(TOKENS),
            **{name: pa.nulls(len(TOKENS), VOCAB.field(name).type) for name in ("code", "unit", "parent")},
            **{name: pa.nulls(len(TOKENS), pa.float64()) for name in ("low", "high")},
            "count_train": [1] * len(TOKENS),
        }
    )
    write_table(table, folder / "vocab.parquet", VOCAB, made_by="the test")
    return content_sha256(read_table(folder / "vocab.parquet", VOCAB))


def write_seqset(folder, sets, vocab_sha256="0" * 64) -> None:
    """Write one shard; a set is (subject, start day, tokens, days after the start on which they are known)."""
    rows, first, last_day = [], {}, {}
    for encounter, (subject, day, tokens, known_days) in enumerate(sets):
        start = first.setdefault(subject, day)
        rows.append(
            {
                "subject_id": subject,
                "set_index": sum(row["subject_id"] == subject for row in rows),
                "encounter_id": encounter,
                "start": day * DAY_US,
                "end": (day + 5) * DAY_US,
                "days_since_prior": float(day - last_day.get(subject, day)),
                "days_since_first": float(day - start),
                "tokens": tokens,
                "kinds": [0] * len(tokens),
                "hours": [24.0 * k for k in known_days],
                "times": [int((day + k) * DAY_US) for k in known_days],
                "available": [int((day + k) * DAY_US) for k in known_days],
                "flags": 0,
            }
        )
        last_day[subject] = day
    table = pa.Table.from_pylist(rows, schema=SEQSET.remove_metadata())
    file = folder / "seqset" / "shard-00000.parquet"
    write_table(table, file, SEQSET, made_by="the test")
    card = ShardCard(
        contract="seqset/1",
        file=file.name,
        subjects=len(first),
        sets=len(rows),
        tokens=sum(len(row["tokens"]) for row in rows),
        file_sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        vocab_sha256=vocab_sha256,
        config_sha256="0" * 64,
    )
    file.with_suffix(".card.json").write_text(card.model_dump_json())


def write_labels(folder, label, label_type, classes, split) -> None:
    rows = len(label)
    table = pa.table(
        {
            "subject_id": np.arange(rows),
            "index_encounter": np.arange(rows),
            "index_start": pa.array([0] * rows, pa.timestamp("us")),
            "predict_at": pa.array([DAY_US] * rows, pa.timestamp("us")),
            "label": pa.array(label, labels_schema(label_type).field("label").type),
            "outcome_time": pa.nulls(rows, pa.timestamp("us")),
            "follow_up_days": pa.nulls(rows, pa.float64()),
            "split": split,
        }
    )
    task = made_up.task("mimic_made_up", label_type, classes).model_copy(update={"features": Features()})
    metadata = {"task": task.model_dump_json()}
    write_table(table, folder / "labels.parquet", labels_schema(label_type), made_by="t", metadata=metadata)


@pytest.fixture
def folder(tmp_path):
    """400 patients with one set each; token 5 decides mortality, tokens 6 to 9 the class."""
    rng = np.random.default_rng(0)
    tokens = [rng.integers(5, len(TOKENS), 8).tolist() for _ in range(400)]
    write_seqset(tmp_path, [(k, 0, row, [0.0] * 8) for k, row in enumerate(tokens)], write_vocab(tmp_path))
    return tmp_path, tokens


SPLIT = ["train"] * 240 + ["val"] * 80 + ["test"] * 80


def fit(folder, name="model", seed=42):
    out = folder / name
    run(
        labels=folder / "labels.parquet",
        seqset=folder / "seqset",
        vocab=folder / "vocab.parquet",
        out=out,
        predictions=folder / name / "predictions.parquet",
        seed=seed,
        telemetry=Telemetry(out),
    )
    return out


def test_target_and_history_counts_use_only_known_events(tmp_path):
    write_seqset(tmp_path, [(1, 0, [5, 5, 6], [0, 1, 1]), (1, 10, [5, 7, 7], [0, 0.5, 3])])
    seqsets = SeqSets.read(tmp_path / "seqset")
    selection = select(seqsets, Features(), np.array([1]), np.array([1]), np.array([11 * DAY_US]))

    features = count_features(seqsets, selection, len(TOKENS)).toarray()[0]

    names = feature_names(TOKENS)
    counts = {names[k]: features[k] for k in np.flatnonzero(features)}
    assert counts == {
        "target DX:0": 1,
        "target DX:2": 1,  # the second 7 was known only after the prediction
        "history DX:0": 2,
        "history DX:1": 1,
        "sets": 2,
        "days_since_prior": 10,
        "tokens_in_target": 2,
        "tokens_in_history": 3,
    }
    assert tuple(names[-4:]) == SIZES


def test_rare_training_columns_are_dropped():
    from scipy import sparse

    train = sparse.csr_matrix(np.array([[1, 0, 2], [0, 0, 1], [3, 1, 1]], dtype=np.float32))
    assert common_columns(train, 2).tolist() == [0, 2]


def test_a_binary_task_is_learnt_and_every_row_predicted(folder):
    folder, tokens = folder
    write_labels(folder, [5 in row for row in tokens], "bool", ("false", "true"), SPLIT)

    out = fit(folder)

    predictions = read_predictions(out / "predictions.parquet")
    assert len(predictions) == 400
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["test"]["auroc"]["value"] > 0.99
    columns = [entry["column"] for entry in metrics["importance"]]
    shares = [entry["share"] for entry in metrics["importance"]]
    assert columns[0].startswith("target "), "the sign is in the index set"
    assert shares[0] > 0.9
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) <= 1 + 1e-5
    assert (out / "model.txt").read_text().startswith("tree")
    events = [json.loads(line)["event"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert events.count("trial") == 6
    assert events[-1] == "result"


def test_the_same_seed_gives_the_same_bytes(folder):
    folder, tokens = folder
    rng = np.random.default_rng(1)
    write_labels(
        folder, [(5 in row) ^ (rng.random() < 0.2) for row in tokens], "bool", ("false", "true"), SPLIT
    )
    first, second = fit(folder, "first"), fit(folder, "again")
    for name in ("model.txt", "predictions.parquet", "config.json", "README.md", "metrics.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_class_task_has_one_booster_and_probabilities_that_sum_to_one(folder):
    folder, tokens = folder
    label = [TOKENS[min(row)] for row in tokens]
    classes = tuple(sorted(set(label)))
    write_labels(folder, label, "class", classes, SPLIT)

    predictions = read_predictions(fit(folder) / "predictions.parquet")

    assert predictions.classes == classes
    assert np.allclose(predictions.probability.sum(axis=1), 1, atol=1e-5)


def test_a_list_task_has_a_booster_for_each_of_its_commonest_labels(folder, monkeypatch):
    from nest_model.baselines import boosting

    monkeypatch.setattr(boosting, "LABELS", 3)
    folder, tokens = folder
    label = [[name for k, name in enumerate("abcd", start=5) if k in row[: 9 - k]] for row in tokens]
    write_labels(folder, label, "list", tuple("dcba"), SPLIT)

    out = fit(folder)

    predictions = read_predictions(out / "predictions.parquet")
    assert predictions.classes == ("a", "b", "c")
    assert sorted(path.name for path in out.glob("model*.txt")) == [f"model_{k:02}.txt" for k in range(3)]


def test_a_single_training_class_writes_a_reason_and_removes_old_files(folder):
    folder, tokens = folder
    write_labels(folder, [5 in row for row in tokens], "bool", ("false", "true"), SPLIT)
    fit(folder)
    write_labels(folder, [k >= 240 for k in range(400)], "bool", ("false", "true"), SPLIT)

    out = fit(folder)

    assert "one class only" in json.loads((out / "not_trainable.json").read_text())["reason"]
    assert {file.name for file in out.iterdir()} == {MARK, "not_trainable.json", "metrics.jsonl"}


def test_too_few_training_rows_for_any_column_write_a_reason(folder):
    folder, tokens = folder
    split = ["train"] * 19 + ["val"] * 80 + ["test"] * 301
    write_labels(folder, [5 in row for row in tokens], "bool", ("false", "true"), split)

    out = fit(folder)

    assert json.loads((out / "not_trainable.json").read_text())["reason"] == (
        "no column has a count in at least 20 training rows"
    )
    assert not (out / "predictions.parquet").exists()


@pytest.mark.parametrize("positives", [0, 4])
def test_few_validation_positives_stop_boosting_without_a_score(folder, positives):
    folder, tokens = folder
    kept_positives = np.flatnonzero(np.array([5 in row for row in tokens]) & (np.array(SPLIT) == "val"))[
        :positives
    ]
    label = [
        5 in row and (split != "val" or k in kept_positives)
        for k, (row, split) in enumerate(zip(tokens, SPLIT, strict=True))
    ]
    write_labels(folder, label, "bool", ("false", "true"), SPLIT)

    out = fit(folder)

    metrics = [json.loads(line)["metrics"] for line in (out / "metrics.jsonl").open() if "metrics" in line]
    metrics.append(json.loads((out / "metrics.json").read_text())["validation"])
    assert {entry[name] for entry in metrics for name in ("average_precision", "log_loss")} == {None}
    assert all(entry["rounds"] > 0 for entry in metrics)


def test_shards_of_another_vocabulary_are_refused(folder):
    folder, tokens = folder
    write_labels(folder, [5 in row for row in tokens], "bool", ("false", "true"), SPLIT)
    table = pa.table({"token_id": pa.array([0], pa.uint32()), "token": ["[PAD]"], "kind": ["SPECIAL"]})
    for name in VOCAB.names[3:-1]:
        table = table.append_column(name, pa.nulls(1, VOCAB.field(name).type))
    table = table.append_column("count_train", pa.array([1]))
    write_table(table, folder / "vocab.parquet", VOCAB, made_by="the test")
    with pytest.raises(NestError, match="not the vocabulary the shards were written with"):
        fit(folder)


def test_labels_after_the_prediction_change_no_feature(folder):
    """Events after the prediction must not change the predictions."""
    folder, tokens = folder
    write_labels(folder, [5 in row for row in tokens], "bool", ("false", "true"), SPLIT)
    first_probability = read_predictions(fit(folder) / "predictions.parquet").probability
    later = [(k, 0, row + [5] * 9, [0.0] * 8 + [2.0] * 9) for k, row in enumerate(tokens)]
    write_seqset(folder, later, write_vocab(folder))
    assert np.array_equal(
        read_predictions(fit(folder) / "predictions.parquet").probability, first_probability
    )


def test_the_test_split_trains_no_booster_and_chooses_no_column(folder):
    """Flipped labels and an unseen token in the test split must give the same model, byte for byte."""
    folder, tokens = folder
    tokens = [[min(token, 15) for token in row] for row in tokens]
    label = [5 in row for row in tokens]
    altered_tokens = [[16] * 8 if split == "test" else row for row, split in zip(tokens, SPLIT, strict=True)]
    flipped_label = [truth != (split == "test") for truth, split in zip(label, SPLIT, strict=True)]
    models = []
    for name, rows, truth in (("a", tokens, label), ("b", altered_tokens, flipped_label)):
        write_seqset(folder, [(k, 0, row, [0.0] * 8) for k, row in enumerate(rows)], write_vocab(folder))
        write_labels(folder, truth, "bool", ("false", "true"), SPLIT)
        models.append(fit(folder, name))

    for file in ("model.txt", "config.json", "README.md"):
        assert (models[0] / file).read_bytes() == (models[1] / file).read_bytes(), file


def test_labels_of_the_validation_split_end_a_booster_and_grow_no_tree(folder, monkeypatch):
    """Without early stopping a booster depends on the training rows only."""
    from nest_model.baselines import boosting

    monkeypatch.setattr(boosting, "GRIDS", boosting.GRIDS | {"bool": boosting.GRIDS["bool"][:1]})
    monkeypatch.setattr(boosting, "ROUNDS", 1)
    folder, tokens = folder
    label = [5 in row for row in tokens]
    models = []
    for name, split in (("a", "none"), ("b", "val")):
        truth = [outcome != (row_split == split) for outcome, row_split in zip(label, SPLIT, strict=True)]
        write_labels(folder, truth, "bool", ("false", "true"), SPLIT)
        models.append((fit(folder, name) / "model.txt").read_bytes())

    assert models[0] == models[1]


def test_patients_of_columns_counts_each_patient_once():
    features = sparse.csr_matrix(np.array([[1, 0, 2], [3, 0, 0], [0, 0, 1], [0, 5, 1]]))
    assert patients_of_columns(features, np.array([7, 7, 8, 9])).tolist() == [1, 1, 3]

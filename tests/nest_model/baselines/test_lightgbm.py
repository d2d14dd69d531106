import hashlib
import json

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

from nest_model.__main__ import main
from nest_model.baselines.counts import (
    SIZES,
    common_columns,
    count_features,
    feature_names,
    patients_of_columns,
    window_features,
    window_names,
)
from nest_model.baselines.lightgbm import run
from nest_model.data.history import select
from nest_model.data.predictions import read_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.training.seeds import predictions_of_seed
from nest_model.training.telemetry import Telemetry
from schemas.cards import ShardCard
from schemas.contract import read_table, write_table
from schemas.errors import NestError
from schemas.io.outputs import MARK
from schemas.tables.labels import Features, labels_schema
from schemas.tables.seqset import SEQSET
from schemas.tables.vocab import SPECIALS, VOCAB, content_sha256
from tests.support.attrition import write_attrition
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
        contract="seqset/2",
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


def fit(folder, name="model", seed=42, **options):
    out = folder / name
    run(
        labels=folder / "labels.parquet",
        seqset=folder / "seqset",
        vocab=folder / "vocab.parquet",
        out=out,
        predictions=folder / name / "predictions.parquet",
        seed=seed,
        telemetry=Telemetry(out),
        **options,
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


def in_windows(seqsets, features, stay, predict_at_us) -> dict[str, int]:
    """Return the counts of one example of patient 1 that are not 0, by column."""
    predict_at = np.array([predict_at_us])
    selection = select(seqsets, features, np.array([1]), np.array([stay]), predict_at)
    counts = window_features(seqsets, selection, len(TOKENS), features.clock, predict_at).toarray()[0]
    names = window_names(TOKENS)
    assert len(names) == len(counts)
    return {names[column]: int(counts[column]) for column in np.flatnonzero(counts)}


def test_an_event_counts_in_the_window_of_its_age_and_on_an_edge_in_the_nearer(tmp_path):
    """Predicted on day 1000; the first stay's events are known on days 0 to 999, the second's when it starts."""
    hour, microsecond = 1 / 24, 1 / (24 * 3600 * 10**6)
    day_of_token = {
        5: 1000 - 366,
        6: 1000 - 365,
        7: 1000 - 30 - hour,
        8: 1000 - 30,
        9: 1000 - 7,
        10: 1000 - 1,
        11: 1000,
    }
    day_of_token[12] = 1000 - 1 - microsecond
    write_seqset(
        tmp_path,
        [(1, 0, list(day_of_token), list(day_of_token.values())), (1, 1000, [5, 5, 6], [0, 0, hour])],
    )
    seqsets = SeqSets.read(tmp_path / "seqset")

    counts = in_windows(seqsets, Features(), stay=1, predict_at_us=1000 * DAY_US)

    assert counts == {
        "over 365 days DX:0": 1,
        "30 to 365 days DX:1": 1,
        "30 to 365 days DX:2": 1,
        "7 to 30 days DX:3": 1,
        "1 to 7 days DX:4": 1,
        "0 to 1 days DX:5": 1,
        "0 to 1 days DX:6": 1,
        "1 to 7 days DX:7": 1,
        "0 to 1 days DX:0": 2,  # token 6 of the second stay is known an hour after the prediction
    }


def test_windows_go_by_the_tasks_clock_and_never_reach_past_the_prediction(tmp_path):
    """Token 5 happened on day 0 and was known on day 9; the prediction is on day 10."""
    write_seqset(tmp_path, [(1, 0, [5, 6, 7], [9, 10, 10.5])])
    file = tmp_path / "seqset" / "shard-00000.parquet"
    table = read_table(file, SEQSET)
    times = pa.array([[0, 8 * DAY_US, 9 * DAY_US]], table.schema.field("times").type)
    table = table.set_column(table.column_names.index("times"), table.schema.field("times"), times)
    write_table(table, file, SEQSET, made_by="the test")
    card = ShardCard.model_validate_json(file.with_suffix(".card.json").read_text())
    card = card.model_copy(update={"file_sha256": hashlib.sha256(file.read_bytes()).hexdigest()})
    file.with_suffix(".card.json").write_text(card.model_dump_json())
    seqsets = SeqSets.read(tmp_path / "seqset")

    counts_by_known_day, counts_by_event_day = (
        in_windows(seqsets, Features(clock=clock), stay=0, predict_at_us=10 * DAY_US)
        for clock in ("available_at", "time")
    )

    assert counts_by_known_day == {"0 to 1 days DX:0": 1, "0 to 1 days DX:1": 1}  # token 7 is known too late
    assert counts_by_event_day == {"7 to 30 days DX:0": 1, "1 to 7 days DX:1": 1, "0 to 1 days DX:2": 1}


def test_windows_are_learnt_from_beside_the_plain_counts(folder):
    """Token 5 is in everybody's history; who had it within the last day dies."""
    folder, _ = folder
    rng = np.random.default_rng(3)
    dies = rng.random(400) < 0.4
    stays = []
    for subject, is_recent in enumerate(dies):
        day = 99.5 if is_recent else float(rng.integers(1, 90))
        stays += [(subject, 0, [5, *rng.integers(6, len(TOKENS), 3).tolist()], [day, 0, 0, 0])]
    stays += [(subject, 99, [6], [0.0]) for subject in range(400)]
    write_seqset(folder, sorted(stays, key=lambda stay: stay[:2]), write_vocab(folder))
    write_labels(folder, dies.tolist(), "bool", ("false", "true"), SPLIT)
    table = read_table(folder / "labels.parquet", labels_schema("bool"))
    for name, values in (
        ("index_encounter", pa.array(2 * np.arange(400) + 1)),
        ("predict_at", pa.array([100 * DAY_US] * 400, pa.timestamp("us"))),
    ):
        place = table.column_names.index(name)
        table = table.set_column(place, table.schema.field(name), values.cast(table.schema.field(name).type))
    metadata = {"task": table.schema.metadata[b"task"].decode()}
    write_table(table, folder / "labels.parquet", labels_schema("bool"), made_by="t", metadata=metadata)

    plain, windows = fit(folder, "plain"), fit(folder, "windows", counts="windows")

    auroc = [
        json.loads((out / "metrics.json").read_text())["test"]["auroc"]["value"] for out in (plain, windows)
    ]
    assert auroc[0] < 0.8 < 0.99 < auroc[1]
    (first, *_) = json.loads((windows / "metrics.json").read_text())["importance"]
    assert first["column"] == "0 to 1 days DX:0"
    config = json.loads((windows / "config.json").read_text())
    assert config["counts"] == "windows"
    assert {(point["bagging_fraction"], point["bagging_freq"]) for point in config["grid"]} == {(0.7, 1)}
    assert "nearer window" in (windows / "README.md").read_text()
    plain_config = json.loads((plain / "config.json").read_text())
    assert set(config) - set(plain_config) == {"counts"}
    assert [point | config["grid"][k] for k, point in enumerate(plain_config["grid"])] == config["grid"]
    assert set(plain_config["columns"]) <= set(config["columns"])
    names = [read_predictions(out / "predictions.parquet").model for out in (plain, windows)]
    assert names == ["mimic_made_up_lightgbm", "mimic_made_up_lightgbm_windows"]


def write_noisy_labels(folder, tokens) -> list[bool]:
    """Write and return labels that token 5 decides, a fifth of them turned over."""
    rng = np.random.default_rng(1)
    label = [(5 in row) ^ (rng.random() < 0.2) for row in tokens]
    write_labels(folder, label, "bool", ("false", "true"), SPLIT)
    return label


def windows_command(folder) -> list[str]:
    """Return the command that fits on counts in windows, whose seeds differ."""
    paths = [f"--{name}={folder / name}" for name in ("seqset", "out")]
    files = [f"--{name}={folder / name}.parquet" for name in ("labels", "vocab", "predictions")]
    return ["lightgbm", *paths, *files, "--counts=windows"]


def test_bagging_makes_the_seeds_of_one_command_differ(folder):
    folder, tokens = folder
    write_noisy_labels(folder, tokens)

    assert main([*windows_command(folder), "--seeds=1,2"]) == 0

    first, second = (
        read_predictions(file).probability
        for file in (folder / "predictions.parquet", predictions_of_seed(folder / "predictions.parquet", 2))
    )
    again = read_predictions(fit(folder, "again", 1, counts="windows") / "predictions.parquet").probability
    assert np.array_equal(first, again)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("change", "num_fitted"),
    [
        ("none", 1),  # the third seed, which is new
        pytest.param("key", 3, marks=pytest.mark.long),
        ("label", 3),
        pytest.param("booster", 2, marks=pytest.mark.long),
        ("predictions", 2),
    ],
)
def test_seeds_that_were_fitted_are_kept_and_nothing_else(folder, caplog, change, num_fitted):
    """A command that was killed after two of three seeds fits the third alone when it is started again."""
    folder, tokens = folder
    label, command = write_noisy_labels(folder, tokens), windows_command(folder)
    assert main([*command, "--seeds=1,2", "--key=a"]) == 0
    second = folder / "out" / "seeds" / "2"
    boosters = (folder / "out" / "model.txt", second / "model.txt")
    times_written = [booster.stat().st_mtime_ns for booster in boosters]
    match change:
        case "label":
            write_labels(folder, [not label[0], *label[1:]], "bool", ("false", "true"), SPLIT)
        case "booster":
            (second / "model.txt").unlink()
        case "predictions":
            predictions_of_seed(folder / "predictions.parquet", 2).unlink()

    with caplog.at_level("INFO", logger="nest"):
        assert main([*command, "--seeds=1,2,3", "--key=b" if change == "key" else "--key=a"]) == 0

    assert caplog.text.count("is already fitted") == 3 - num_fitted
    if change == "none":
        assert [booster.stat().st_mtime_ns for booster in boosters] == times_written
    for seed, out in ((1, folder / "out"), (2, second), (3, folder / "out" / "seeds" / "3")):
        fresh = fit(folder, f"fresh_{seed}", seed, counts="windows")
        assert (out / "model.txt").read_bytes() == (fresh / "model.txt").read_bytes()


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
    config, trials = json.loads((out / "config.json").read_text()), metrics["trials"]
    assert [trial["settings"] for trial in trials] == config["grid"]
    assert [trial["average_precision"] > 0 for trial in trials] == [True] * 6
    (taken,) = (trial for trial in trials if trial["settings"] == config["grid_point"])
    assert {name: value for name, value in taken.items() if name != "settings"} == metrics["validation"]
    assert (out / "model.txt").read_text().count("\nTree=") == config["trees"]
    assert config["leaves"] == config["grid_point"]["num_leaves"]


def test_the_same_seed_gives_the_same_bytes(folder):
    folder, tokens = folder
    rng = np.random.default_rng(1)
    write_labels(
        folder, [(5 in row) ^ (rng.random() < 0.2) for row in tokens], "bool", ("false", "true"), SPLIT
    )
    first, second = fit(folder, "first"), fit(folder, "again")
    for name in ("model.txt", "predictions.parquet", "config.json", "README.md", "metrics.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_numbers_of_rows_that_the_attrition_withholds_are_not_written_and_the_model_file_is_warned_of(folder):
    folder, tokens = folder
    write_labels(folder, [5 in row for row in tokens], "bool", ("false", "true"), SPLIT)
    rows = len(tokens)
    shown = fit(folder, "shown")
    write_attrition(folder, rows, dropped=5)
    withheld = fit(folder, "withheld")
    (folder / "attrition.csv").unlink()

    assert "- rows: training withheld, validation withheld" in (withheld / "README.md").read_text()
    assert "give it to nobody" in (withheld / "README.md").read_text()
    assert "give it to nobody" not in (shown / "README.md").read_text()
    scores = [json.loads((out / "metrics.json").read_text())["test"] for out in (shown, withheld)]
    assert [isinstance(one["rows"], int) for one in scores] == [True, False]
    assert scores[0]["auroc"] == scores[1]["auroc"]


@pytest.mark.parametrize("counts", ["plain", "windows"])
def test_the_trees_of_dense_columns_are_those_of_sparse_ones(folder, counts, monkeypatch):
    from nest_model.baselines import boosting

    folder, tokens = folder
    write_noisy_labels(folder, tokens)
    dense = fit(folder, "dense", counts=counts)
    monkeypatch.setattr(boosting, "MOST_DENSE_CELLS", 0)
    sparse_columns = fit(folder, "sparse", counts=counts)

    trees, sparse_trees = ((out / "model.txt").read_text() for out in (dense, sparse_columns))
    assert "[is_enable_sparse: 0]" in trees
    assert trees.replace("[is_enable_sparse: 0]", "[is_enable_sparse: 1]") == sparse_trees
    assert (dense / "predictions.parquet").read_bytes() == (
        sparse_columns / "predictions.parquet"
    ).read_bytes()


def test_a_class_task_has_one_booster_and_probabilities_that_sum_to_one(folder):
    folder, tokens = folder
    label = [TOKENS[min(row)] for row in tokens]
    classes = tuple(sorted(set(label)))
    write_labels(folder, label, "class", classes, SPLIT)

    out = fit(folder)

    predictions = read_predictions(out / "predictions.parquet")
    assert (out / "model.txt").read_text().count("\nTree=") == json.loads((out / "config.json").read_text())[
        "trees"
    ]
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
    content = json.loads((out / "metrics.json").read_text())
    metrics += [content["validation"], *content["trials"]]
    assert len(content["trials"]) == 6
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


@pytest.mark.parametrize("counts", ["plain", "windows"])
def test_labels_after_the_prediction_change_no_feature(folder, counts):
    """Events after the prediction must not change the predictions."""
    folder, tokens = folder
    write_labels(folder, [5 in row for row in tokens], "bool", ("false", "true"), SPLIT)
    first_probability = read_predictions(fit(folder, counts=counts) / "predictions.parquet").probability
    later = [(k, 0, row + [5] * 9, [0.0] * 8 + [2.0] * 9) for k, row in enumerate(tokens)]
    write_seqset(folder, later, write_vocab(folder))
    assert np.array_equal(
        read_predictions(fit(folder, counts=counts) / "predictions.parquet").probability, first_probability
    )


@pytest.mark.parametrize("counts", ["plain", "windows"])
def test_the_test_split_trains_no_booster_and_chooses_no_column(folder, counts):
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
        models.append(fit(folder, name, counts=counts))

    for file in ("model.txt", "config.json", "README.md"):
        assert (models[0] / file).read_bytes() == (models[1] / file).read_bytes(), file


@pytest.mark.parametrize("counts", ["plain", "windows"])
def test_labels_of_the_validation_split_end_a_booster_and_grow_no_tree(folder, counts, monkeypatch):
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
        models.append((fit(folder, name, counts=counts) / "model.txt").read_bytes())

    assert models[0] == models[1]


def test_patients_of_columns_counts_each_patient_once():
    features = sparse.csr_matrix(np.array([[1, 0, 2], [3, 0, 0], [0, 0, 1], [0, 5, 1]]))
    assert patients_of_columns(features, np.array([7, 7, 8, 9])).tolist() == [1, 1, 3]

"""NEST from Python: what is embedded, filled in and learnt, and that none of it holds what was not known."""

import itertools
import re
import shutil
from datetime import datetime

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from safetensors.torch import load_file

import nest_model
from nest_model.__main__ import main
from nest_model.data.seqsets import SeqSets
from nest_model.training.recipe import PRETRAINING
from schemas.errors import InputError, NestError
from schemas.markdown import without_front_matter
from tests.support.factories.shards import DAY_US, HOUR_US, set_row, write_shards
from tests.support.factories.world import (
    SIGN,
    World,
    copy_world,
    fail_above,
    finetune_small,
    make_world,
    pretrain_small,
    runtime,
)

NOW = datetime(1970, 2, 5)  # between the second sets, begun on 31 January, and the third


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


@pytest.fixture(scope="module")
def model(world, tmp_path_factory) -> nest_model.Model:
    out = tmp_path_factory.mktemp("pretrained")
    pretrain_small(world, runtime(out), out, PRETRAINING["tiny"].with_changes(epochs=2), max_sets=4)
    return nest_model.load(out, device="cpu", threads=1)


def vectors(table) -> np.ndarray:
    return np.array(table["embedding"].to_pylist())


def test_embedding_tells_the_logger_how_far_it_is_after_ten_seconds(world, model, monkeypatch, caplog):
    seconds = itertools.count(0, 11)
    monkeypatch.setattr("nest_model.training.telemetry.time.monotonic", lambda: float(next(seconds)))
    with caplog.at_level("INFO", logger="nest"):
        rows = model.embed(world.seqset, at=NOW).num_rows
    assert caplog.messages[-1].startswith(f"embed: 100 % of {rows} rows · ")


def with_sign(world: World, root, *, after_hours: int, known_after_hours: int) -> World:
    """Copy a world with a canary in each first set, and the hours until it happened and until it was known."""

    def add(row: dict) -> None:
        if row["set_index"] == 0:
            sign_at, available_at = (hours * HOUR_US for hours in (after_hours, known_after_hours))
            for name, value in (
                ("tokens", SIGN), ("kinds", 3), ("hours", float(after_hours)),
                ("times", sign_at), ("available", available_at),
            ):  # fmt: skip
                row[name].append(value)

    return copy_world(world, root, add)


@pytest.mark.parametrize("level", ["patients", "sets"])
def test_an_embedding_holds_what_was_known_and_not_what_came_later(world, model, tmp_path, level):
    known_sign = with_sign(world, tmp_path / "known", after_hours=2, known_after_hours=2)
    unknown_sign = with_sign(world, tmp_path / "unknown", after_hours=2, known_after_hours=40 * 24)

    plain, with_known, with_unknown = (
        vectors(model.embed(place.seqset, at=NOW, level=level)) for place in (world, known_sign, unknown_sign)
    )

    assert np.array_equal(plain, with_unknown)
    assert not np.allclose(plain, with_known)


def test_sets_begun_after_the_moment_change_nothing(world, model):
    early = model.embed(world.seqset, at=NOW, level="sets")
    later = model.embed(world.seqset, at="1971-01-01", level="sets")
    shards = SeqSets.read(world.seqset)

    assert len(early) == np.count_nonzero(shards.start_us <= 35 * DAY_US)
    assert len(later) == shards.sets
    assert max(early["start"].to_pylist()) <= NOW
    # who had no later set is the same at both moments
    last = dict(zip(shards.subject_id, shards.start_us, strict=True))
    is_same = np.array([last[subject] <= 35 * DAY_US for subject in early["subject_id"].to_pylist()])
    rows = [
        subject in set(np.array(early["subject_id"])[is_same]) for subject in later["subject_id"].to_pylist()
    ]
    np.testing.assert_allclose(vectors(early)[is_same], vectors(later)[rows], atol=1e-5)


def end_never(row: dict) -> None:
    row["end"] = None


def code_it(row: dict) -> None:
    end_never(row)
    for name, value in (("tokens", SIGN), ("kinds", 0), ("hours", 0.0)):
        row[name].append(value)
    for name in ("times", "available"):
        row[name].append(row["start"])


def test_codes_of_a_stay_without_an_end_are_not_embedded_nor_learnt(world, model, tmp_path):
    open_stays = copy_world(world, tmp_path / "open", end_never)
    with_code = copy_world(world, tmp_path / "coded", code_it)
    first = pl.read_parquet(world.labels).group_by("subject_id").first().sort("subject_id")

    plain, same = (vectors(model.embed(place.seqset, at=first)) for place in (open_stays, with_code))

    assert np.array_equal(plain, same)
    with pytest.raises(InputError, match="index stays of 60 of 60 rows have no end"):
        model.finetune(first, with_code.seqset, with_code.subjects, tmp_path / "tuned")


def test_codes_of_a_stay_without_an_end_change_no_prediction(world, model, tmp_path):
    own = pl.read_parquet(world.labels).select("subject_id", "predict_at", "label")
    task_model = model.finetune(own, world.seqset, world.subjects, tmp_path / "tuned", epochs=1)
    places = copy_world(world, tmp_path / "open", end_never), copy_world(world, tmp_path / "coded", code_it)
    first = own.group_by("subject_id").first().sort("subject_id")

    plain, same = (task_model.predict(place.seqset, at=first)["probability"].to_pylist() for place in places)

    assert plain == same


def test_a_column_of_moments_with_a_time_zone_is_refused(world, model):
    rows = pl.DataFrame({"subject_id": [1], "predict_at": [NOW]})
    rows = rows.with_columns(pl.col("predict_at").dt.replace_time_zone("America/New_York"))
    with pytest.raises(InputError, match="column predict_at has a time zone"):
        model.embed(world.seqset, at=rows)


def test_a_row_without_an_encounter_reads_up_to_the_last_set_begun(world, model):
    labels = pl.read_parquet(world.labels)
    with_encounter = model.embed(world.seqset, at=labels)
    without_encounter = model.embed(world.seqset, at=labels.select("subject_id", "predict_at"))

    assert without_encounter["encounter_id"].to_pylist() == labels["index_encounter"].to_list()
    assert np.array_equal(vectors(with_encounter), vectors(without_encounter))


def test_a_moment_before_the_first_set_is_an_error_in_a_table(world, model):
    rows = pl.DataFrame({"subject_id": [1, 999], "at": [datetime(1969, 1, 1), NOW]})
    with pytest.raises(
        InputError, match="2 of 2 rows name a patient who is not in these shards, or has no set"
    ):
        model.embed(world.seqset, at=rows)


@pytest.mark.parametrize("at", ["yesterday", "2150-01-31T00:00+01:00", 7])
def test_what_is_no_moment_is_refused(world, model, at):
    with pytest.raises(InputError, match=r"is no date|has a time zone|is no table"):
        model.embed(world.seqset, at=at)


def test_the_command_writes_what_the_function_returns(world, model, tmp_path):
    out = tmp_path / "embeddings.parquet"
    paths = [f"--model={model.folder}", f"--seqset={world.seqset}", f"--out={out}"]

    assert main(["embed", *paths, f"--at={world.labels}", "--device=cpu", "--threads=1"]) == 0

    table = pq.read_table(out)
    assert table.schema.metadata[b"contract"] == b"embeddings/1"
    assert np.array_equal(vectors(table), vectors(model.embed(world.seqset, at=world.labels)))


def test_the_command_replaces_no_other_table(world, model, tmp_path, capsys):
    out = shutil.copy(world.labels, tmp_path / "labels.parquet")
    paths = [f"--model={model.folder}", f"--seqset={world.seqset}", f"--out={out}"]
    assert main(["embed", *paths, "--at=1971-01-01"]) == 2
    assert "a table of another kind (labels)" in capsys.readouterr().err


def test_filling_in_a_set_reads_nothing_of_it(world, model, tmp_path):
    """The guess for a hidden set stays when its content changes, and is not the same for every patient."""

    def swap(row: dict) -> None:
        row["tokens"] = [SIGN] * len(row["tokens"])

    last = pl.read_parquet(world.labels).group_by("subject_id").last().sort("subject_id")
    end = dict(last.select("subject_id", "index_encounter").rows())
    other_world = copy_world(
        world,
        tmp_path / "changed",
        lambda row: swap(row) if end[row["subject_id"]] == row["encounter_id"] else None,
    )

    guesses, same = (
        model.fill(place.seqset, vocab=world.vocab, at=last, top=3) for place in (world, other_world)
    )

    assert guesses["token"].to_pylist() == same["token"].to_pylist()
    np.testing.assert_allclose(guesses["probability"], same["probability"], atol=1e-6)
    assert len(set(np.round(np.array(guesses["probability"]), 6))) > len(last)
    assert same["is_there"].to_pylist() == [token == "LAB:0_Q3" for token in same["token"].to_pylist()]


def test_tokens_of_a_hidden_set_rank_by_presence_and_have_their_share(world, model):
    labels = pl.read_parquet(world.labels).head(1)
    before = model.fill(world.seqset, vocab=world.vocab, at=labels, top=40)
    other_model = nest_model.load(model.folder)
    log_ratio = other_model.module.set_head.log_presence_ratio
    log_ratio.copy_(-1e3 * torch.arange(len(log_ratio)))  # by token id, the lowest first

    guesses = other_model.fill(world.seqset, vocab=world.vocab, at=labels, top=40)

    tokens = guesses["token"].to_pylist()
    assert tokens == pq.read_table(world.vocab)["token"].to_pylist()[-len(tokens) :]
    shares = dict(zip(before["token"].to_pylist(), before["probability"].to_pylist(), strict=True))
    assert guesses["probability"].to_pylist() == pytest.approx([shares[token] for token in tokens])


def test_a_masked_token_is_guessed_from_the_others_alone(world, model, tmp_path):
    def change(row: dict) -> None:
        row["tokens"][1] = SIGN

    labels = pl.read_parquet(world.labels).head(5)
    other_world = copy_world(world, tmp_path / "changed", change)
    first = labels.group_by("subject_id").first()

    a, b = (
        pl.from_arrow(model.fill(place.seqset, vocab=world.vocab, at=first, hide=[1], top=40))
        for place in (world, other_world)
    )

    assert a["token"].to_list() == b["token"].to_list()
    assert a["is_there"].sum() == b["is_there"].sum() == len(first)  # the true token is among all 30
    np.testing.assert_allclose(
        a.group_by("subject_id").agg(pl.col("probability").sum())["probability"], 1, atol=0.2
    )
    with pytest.raises(InputError, match="5 of 5 sets have no event at place 99"):
        model.fill(world.seqset, vocab=world.vocab, at=labels, hide=[99])


def test_nobody_by_a_moment_is_an_empty_table_and_no_place_a_sentence(world, model):
    guesses = model.fill(world.seqset, vocab=world.vocab, at="1969-01-01")
    assert guesses.schema == model.fill(world.seqset, vocab=world.vocab, at=NOW).schema
    assert len(guesses) == 0
    with pytest.raises(InputError, match="hide: no place"):
        model.fill(world.seqset, vocab=world.vocab, at=NOW, hide=[])
    with pytest.raises(InputError, match="hide: neither"):
        model.fill(world.seqset, vocab=world.vocab, at=NOW, hide="sets")


def test_own_labels_are_learnt_and_scored(world, model, tmp_path):
    labels = pl.read_parquet(world.labels)
    own = labels.select("subject_id", "predict_at", pl.col("label").cast(pl.Int8))

    task_model = model.finetune(
        own, world.seqset, world.subjects, tmp_path / "tuned", name="mine", epochs=2, dropout=0.25, max_sets=1
    )
    scores = pl.from_arrow(task_model.predict(world.seqset, at=own))

    table = pl.read_parquet(tmp_path / "tuned" / "predictions" / "predictions.parquet")
    np.testing.assert_allclose(
        np.array(scores["probability"].to_list()), np.array(table["probability"].to_list()), atol=1e-5
    )
    assert table["split"].to_list() == labels["split"].to_list()
    assert (task_model.card.dropout, task_model.card.model.max_sets, model.card.model.max_sets) == (
        0.25,
        1,
        4,
    )
    assert scores["model"].unique().to_list() == ["mine_nest"]
    with pytest.raises(InputError, match="prediction times of their own"):
        task_model.predict(world.seqset)
    with pytest.raises(NestError, match="guesses no tokens"):
        task_model.fill(world.seqset, vocab=world.vocab, at=own)


def test_a_training_from_python_goes_on_with_less_memory(world, model, tmp_path, monkeypatch, caplog):
    own = pl.read_parquet(world.labels).select("subject_id", "predict_at", "label")
    model.finetune(own, world.seqset, world.subjects, tmp_path / "at_once", epochs=1, dropout=0.0)
    fail_above(monkeypatch, rows=60)

    model.finetune(own, world.seqset, world.subjects, tmp_path / "tuned", epochs=1, dropout=0.0)

    at_once, tuned = (load_file(tmp_path / name / "model.safetensors") for name in ("at_once", "tuned"))
    assert all((at_once[name] - weight).abs().max() <= 1e-6 for name, weight in tuned.items())
    assert "out of memory with 8,192 rows per micro-batch; running again with 4,096." in caplog.messages


def run_card(folder, seqset, monkeypatch) -> tuple[dict, pa.Table]:
    """Return the front matter of a model's README and the table that its snippet makes in the model's folder."""
    _, front, body = (folder / "README.md").read_text().split("---\n", 2)
    (code,) = re.findall(r"```python\n(.*?)```", body, re.DOTALL)
    monkeypatch.chdir(folder)
    (folder / "seqset").symlink_to(seqset)
    names: dict = {}
    exec(code, names)
    (folder / "seqset").unlink()
    return yaml.safe_load(front), names["table"]


def test_the_snippet_of_a_pretrained_card_embeds_everybody(world, model, monkeypatch):
    front, table = run_card(model.folder, world.seqset, monkeypatch)

    assert (front["library_name"], front["license"]) == ("nest", "other")
    assert {"pretrained", "nest", "safetensors"} <= set(front["tags"])
    assert "ndcg_at_10" in front["metrics"]
    assert len(table) == 60


def test_the_snippet_of_a_task_card_predicts(world, model, tmp_path, monkeypatch):
    recipe = PRETRAINING["tiny"].with_changes(epochs=1)
    folder = finetune_small(world, model.folder, tmp_path, recipe)

    front, table = run_card(folder, world.seqset, monkeypatch)

    assert front["metrics"] == ["roc_auc", "average_precision", "brier_score"]
    assert front["tags"][-1] == "mimic_made_up"
    assert set(table["model"].to_pylist()) == {"mimic_made_up_nest"}
    card = (folder / "README.md").read_text()
    assert "Do not publish them" in card
    assert without_front_matter(card).startswith("# NEST, fine-tuned: mimic_made_up")


def test_labels_that_teach_nothing_are_refused_before_a_training(world, model, tmp_path):
    own = pl.read_parquet(world.labels).select("subject_id", "predict_at", label=pl.lit(True))
    with pytest.raises(InputError, match="mine: cannot be learnt: the training split has one class only"):
        model.finetune(own, world.seqset, world.subjects, tmp_path / "tuned", name="mine")
    with pytest.raises(NestError, match="did you mean epochs"):
        model.finetune(own, world.seqset, world.subjects, tmp_path / "tuned", name="mine", epoch=1)


def test_shards_of_another_vocabulary_are_refused(model, tmp_path):
    other = make_world(tmp_path / "other", subjects=5)
    shutil.rmtree(other.seqset)
    write_shards(other.seqset, [set_row(1, 0, 10, 0, [(8, 3, 0, 0)])])
    with pytest.raises(NestError, match="reads another vocabulary"):
        model.embed(other.seqset, at="1971-01-01")

"""Which types of visit a model knows: those of eleven training patients, by name, whatever others have."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nest_model.config import ModelConfig
from nest_model.data.context import model_context
from nest_model.data.packed import pack
from nest_model.data.selection import whole_subjects
from nest_model.data.seqsets import SeqSets
from nest_model.model.checkpoint import load_pretrained, read_card
from nest_model.model.systems.gt_behrt.encoder import GtBehrt
from nest_model.options import PretrainingOptions
from nest_model.training.objectives.mnp import MissingNodeGuesses
from nest_model.training.pretraining_data import PretrainingExamples, PretrainingPatients
from nest_model.training.recipe import PRETRAINING
from schemas.errors import NestError
from tests.support.factories.shards import DAY_US, set_row, write_shards
from tests.support.factories.world import World, copy_world, make_world, pretrain_small, runtime

LIMITS = {"max_sets": 2, "max_set_rows": 9, "max_rows": None}
SIZES = {"d_model": 20, "heads": 2, "d_ff": 16}
RECIPE = PRETRAINING["tiny"].with_changes(epochs=2, least_steps=0)


def patients(folder: Path, types: list[list[str | None]], train: int) -> PretrainingPatients:
    """Return patients with sets of these types, of whom the first `train` are for training and all others validate."""
    rows = [
        set_row(subject, index, 10 * subject + index, index * DAY_US, [(7, 0, 0, 0)], admission_type=name)
        for subject, names in enumerate(types)
        for index, name in enumerate(names)
    ]
    places = np.arange(len(types))
    return PretrainingPatients(SeqSets.read(write_shards(folder, rows)), places[:train], places[train:])


def test_types_of_eleven_training_patients_are_known_in_the_order_of_their_names(tmp_path):
    types = [["URGENT"]] * 11 + [["ELECTIVE"]] * 12 + [["RARE"]] * 10 + [[None]] * 20
    assert patients(tmp_path, types, train=53).visit_types(LIMITS) == ("ELECTIVE", "URGENT")


def test_patients_are_counted_and_not_their_sets(tmp_path):
    types = [["URGENT", "URGENT"]] * 10 + [["ELECTIVE", "OTHER"]] * 11
    assert patients(tmp_path, types, train=21).visit_types(LIMITS) == ("ELECTIVE", "OTHER")


def test_sets_beyond_the_context_do_not_count(tmp_path):
    types = [["FORMER", "URGENT", "ELECTIVE"]] * 11
    assert patients(tmp_path, types, train=11).visit_types(LIMITS) == ("ELECTIVE", "URGENT")


def test_patients_of_other_splits_change_no_name(tmp_path):
    types = [["URGENT"]] * 11 + [["RARE"]] * 10
    alone = patients(tmp_path / "alone", types, train=21).visit_types(LIMITS)
    others = [["RARE"]] * 30 + [["ABOVE ALL"]] * 30
    assert patients(tmp_path / "others", types + others, train=21).visit_types(LIMITS) == alone
    assert alone == ("URGENT",)


def test_no_type_at_all_is_no_name(tmp_path):
    assert patients(tmp_path, [[None]] * 11, train=11).visit_types(LIMITS) == ()


def test_a_type_that_the_model_does_not_know_counts_as_none(tmp_path):
    of_sets = [["URGENT", "NEW", None], ["ELECTIVE"]]
    seqsets = patients(tmp_path, of_sets, train=1).seqsets
    config = ModelConfig.preset(
        "tiny", 10, system="gt_behrt", visit_types=("ELECTIVE", "NEVER SEEN", "URGENT")
    )
    selection = whole_subjects(seqsets, np.arange(2))
    assert pack(seqsets, selection, config).visit_types.tolist() == [2, -1, -1, 0]
    knows_none = replace(config, visit_types=())
    assert pack(seqsets, selection, knows_none).visit_types.tolist() == [-1] * 4
    first_set = selection.take(np.array([1, 0]))
    assert pack(seqsets, first_set, config).visit_types.tolist() == [0, 2, -1, -1]


def test_the_constant_guess_is_the_share_of_each_type_where_the_head_starts(tmp_path):
    types = [["URGENT", "URGENT"], ["ELECTIVE", None], ["URGENT", "UNKNOWN"], ["ELECTIVE"]]
    config = ModelConfig.preset(
        "tiny", 10, system="gt_behrt", visit_types=("ELECTIVE", "URGENT"), **SIZES, layers=1
    )
    examples = PretrainingExamples.of(patients(tmp_path, types, train=3), config, 4)
    objective, encoder = MissingNodeGuesses(config), GtBehrt(config)

    nats = objective.constant_nats(examples)["vtp"]
    np.testing.assert_allclose(np.exp(-nats), [(1 + 0.5) / 5, (3 + 0.5) / 5])

    objective.start_at_shares(encoder, examples)
    np.testing.assert_allclose(encoder.visit_type.bias.softmax(0).detach(), np.exp(-nats), rtol=1e-6)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


def pretrained(world: World, out: Path, **options) -> Path:
    pretrain_small(world, runtime(out), out, RECIPE, system="gt_behrt", **SIZES, **options)
    return out


def contents(folder: Path) -> tuple[dict, str]:
    """Return a model's metrics and its card."""
    return json.loads((folder / "metrics.json").read_text()), (folder / "README.md").read_text()


def test_a_model_is_saved_with_the_types_it_knows_and_read_with_them(world, tmp_path):
    out = pretrained(world, tmp_path)
    encoder, card = load_pretrained(out, vocab_sha256=read_card(out).vocab_sha256)
    assert card.model.visit_types == ("ELECTIVE", "URGENT")
    assert encoder.visit_type_embedding.num_embeddings == 4
    _, readme = contents(out)
    assert "its type, one of ELECTIVE, URGENT; any other counts as none." in readme


@pytest.mark.parametrize("case", ["no types", "switched off"])
def test_without_types_none_is_joined_or_guessed_and_it_says_so(world, tmp_path, caplog, case):
    caplog.set_level("INFO", logger="nest")
    if case == "no types":
        world = copy_world(world, tmp_path / "world", lambda row: row.update(admission_type=None))
    out = pretrained(world, tmp_path / "model", visit_types=case == "no types")

    metrics, readme = contents(out)
    assert set(metrics["validation"]) == {"val_nam", "val_mnp"} == set(metrics["yardsticks"])
    assert read_card(out).model.visit_types == ()
    assert "it is told the day of the year and no type: none was guessed either." in readme
    sentence = "GT-BEHRT learns without types of visit: the shards have none that 11 training patients have."
    assert (sentence in caplog.text) == (case == "no types")


def test_shards_without_the_types_that_a_model_knows_are_read_with_a_warning(tmp_path, caplog):
    with_types, without = (
        patients(tmp_path / name, [[kind]], train=1).seqsets for name, kind in (("a", "URGENT"), ("b", None))
    )
    config = ModelConfig.preset("tiny", 10, system="gt_behrt", visit_types=("ELECTIVE", "URGENT"))
    selection = whole_subjects(with_types, np.arange(1))
    model_context(with_types, selection, config)
    model_context(without, selection, replace(config, visit_types=()))
    assert not caplog.text
    cut, _ = model_context(without, selection, config)
    assert "the shards have none of the 2 types of visit that the model was trained with" in caplog.text
    assert len(cut) == 1


def test_a_type_that_a_sets_codes_tell_is_learnt(world, tmp_path):
    """Sets of this world are of the type that the mean of their tokens tells, so that every code hints at it."""

    def by_tokens(row: dict) -> None:
        row["admission_type"] = ("ELECTIVE", "URGENT")[sum(row["tokens"]) > 21 * len(row["tokens"])]

    learnable = copy_world(world, tmp_path / "world", by_tokens)
    recipe = RECIPE.with_changes(epochs=12, learning_rate=3e-3, examples_per_step=6)
    out = tmp_path / "model"
    pretrain_small(learnable, runtime(out), out, recipe, system="gt_behrt", **SIZES)
    metrics, _ = contents(out)
    assert metrics["validation"]["val_vtp"] < metrics["yardsticks"]["val_vtp"]["constant"] - 0.05


def test_systems_that_read_no_visits_refuse_the_switch_and_know_no_type(world, tmp_path):
    assert PretrainingOptions(visit_types=False).changes("tiny", "gt_behrt") == {}
    for system in ("nest", "bert"):
        with pytest.raises(NestError, match=f"{system} has no visit_types"):
            PretrainingOptions(visit_types=False).changes("tiny", system)
        with pytest.raises(NestError, match=f"{system} has no day_of_year"):
            PretrainingOptions.from_text("day_of_year=true").changes("tiny", system)
    pretrain_small(world, runtime(tmp_path), tmp_path, RECIPE.with_changes(epochs=1))
    assert read_card(tmp_path).model.visit_types == ()


def test_a_types_number_in_the_shards_changes_no_model(world, tmp_path):
    """Names are numbered as they first occur; the model numbers them by its own list."""
    first, second = "URGENT", "ELECTIVE"

    def other_order(row: dict) -> None:
        if row["subject_id"] == 1 and row["set_index"] == 0:
            row["admission_type"] = "COMES FIRST"

    reordered = copy_world(world, tmp_path / "world", other_order)
    before, after = (SeqSets.read(each.seqset) for each in (world, reordered))
    assert before.admission_types.index(first) != after.admission_types.index(first) or (
        before.admission_types.index(second) != after.admission_types.index(second)
    )
    config = ModelConfig.preset("tiny", 40, system="gt_behrt", visit_types=("ELECTIVE", "URGENT"))
    types = [
        pack(seqsets, whole_subjects(seqsets, np.arange(1, 60)), config).visit_types
        for seqsets in (before, after)
    ]
    assert torch.equal(*types)

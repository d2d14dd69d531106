"""A pretraining on a share of the patients: the same ones for every model, and as many steps as on all."""

import json
import math
from collections import Counter
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from nest_model.commands.pretrain import pretrain_seeds
from nest_model.config import ModelConfig
from nest_model.data.seqsets import SeqSets
from nest_model.recipe import Recipe
from nest_model.training.pretraining_data import PretrainingExamples, PretrainingPatients
from nest_model.training.recipe import PRETRAINING
from schemas.errors import NestError
from tests.support.factories.world import (
    World,
    copy_world,
    empty_sets_of,
    finetune_small,
    make_world,
    pretrain_small,
    runtime,
)

RECIPE = PRETRAINING["tiny"].with_changes(epochs=2, patience=2, examples_per_step=4, least_steps=0)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=120)


def metrics_of(out: Path) -> dict:
    return json.loads((out / "metrics.json").read_text())


def test_larger_shares_hold_the_patients_of_smaller_ones(world):
    patients = PretrainingPatients.read(world.seqset, world.subjects)
    shares = [patients.with_share(share, seed=1) for share in (0.2, 0.5, 1.0)]
    for smaller_share, larger_share in pairwise(shares):
        for split in ("train", "val"):
            small, large = getattr(smaller_share, split), getattr(larger_share, split)
            assert 0 < len(small) < len(large)
            assert np.isin(small, large).all()
    assert shares[-1] is patients
    assert set(patients.with_share(0.5, seed=2).train) != set(shares[1].train)


def test_a_share_has_as_many_steps_as_all_patients(world, tmp_path):
    for share in (1.0, 0.25):
        out = tmp_path / str(share)
        pretrain_small(world, runtime(out), out, RECIPE, patient_share=share)
    whole, part = metrics_of(tmp_path / "1.0"), metrics_of(tmp_path / "0.25")

    def steps(metrics: dict) -> int:
        return metrics["epochs"] * math.ceil(metrics["train_patients"] / RECIPE.examples_per_step)

    assert part["train_patients"] < whole["train_patients"] / 2
    assert steps(part) == pytest.approx(steps(whole), rel=0.25)
    assert part["recipe"]["patience"] == 4 * whole["recipe"]["patience"]


@pytest.mark.parametrize(("share", "epochs", "patience"), [(1.0, 10, 3), (0.25, 40, 12), (0.3, 34, 10)])
def test_epochs_and_patience_grow_as_the_share_shrinks(share, epochs, patience):
    recipe = Recipe(learning_rate=1.0, epochs=10, patience=3).for_share_of_examples(share)
    assert (recipe.epochs, recipe.patience) == (epochs, patience)


@pytest.mark.long
def test_seeds_of_a_share_draw_other_patients_and_pair_with_fine_tunings(world, tmp_path):
    """Seeds whose shares differ in size have the same recipe, so each fine-tuning starts from its own."""
    out = tmp_path / "pretrained"
    pretrain_seeds(
        seqset=world.seqset, subjects=world.subjects, vocab=world.vocab, out=out, model="tiny", position=None,
        d_model=16, heads=2, d_ff=16, seeds=(42, 7), patient_share=0.25, recipe=vars(RECIPE), runtime=runtime(out),
    )  # fmt: skip
    first, second = (metrics_of(folder) for folder in (out, out / "seeds" / "7"))
    assert first["train_patients"] != second["train_patients"]
    assert first["patient_share"] == second["patient_share"] == 0.25
    assert "It learnt from 0.25 of the training and validation subjects." in (out / "README.md").read_text()
    model = finetune_small(
        world, out, tmp_path, RECIPE.with_changes(epochs=1), seeds=(42, 7), pretraining_seeds=True
    )
    assert metrics_of(model / "seeds" / "7")["pretraining_seed"] == 7


@pytest.mark.parametrize(("max_sets", "is_refused"), [(1, True), (8, False)])
def test_no_rate_is_searched_where_nobody_validates(world, tmp_path, max_sets, is_refused):
    emptied, out = without_last_sets(world, tmp_path / "world", "val"), tmp_path / "out"
    recipe = RECIPE.with_changes(epochs=1, rate_factors=(0.5, 1.0))
    refusal = "no validation patient has an event in the context, so nothing can judge a learning rate"
    with pytest.raises(NestError, match=refusal) if is_refused else nullcontext():
        pretrain_small(emptied, runtime(out), out, recipe, max_sets=max_sets)
    assert (out / "metrics.json").exists() is not is_refused


def test_training_events_outside_the_context_are_refused(world, tmp_path):
    emptied, out = without_last_sets(world, tmp_path / "world", "train"), tmp_path / "out"
    with pytest.raises(
        NestError, match=r"no patient of the training split has an event in the context; .* larger max_sets"
    ):
        pretrain_small(emptied, runtime(out), out, RECIPE, max_sets=1)


def without_last_sets(world: World, root: Path, split: str) -> World:
    """Copy a world, emptying the last set of each patient of a split of the pretraining."""
    subjects = pq.read_table(world.subjects)
    of_split = subjects.filter(pc.equal(subjects["pretrain_split"], split))["subject_id"].to_pylist()
    counts = Counter(SeqSets.read(world.seqset).subject_id.tolist())
    last_sets = {subject: count - 1 for subject, count in counts.items()}
    return copy_world(world, root, empty_sets_of({*of_split}, from_set=last_sets))


def test_a_share_without_validation_events_says_so_once(world, caplog, tmp_path):
    share = PretrainingPatients.read(world.seqset, world.subjects).with_share(0.5, seed=1)
    first_sets = share.seqsets.subject_offsets[share.val]
    validation = set(share.seqsets.subject_id[first_sets].tolist())

    emptied = copy_world(world, tmp_path / "world", empty_sets_of(validation))
    pretrain_small(emptied, runtime(tmp_path / "out"), tmp_path / "out", RECIPE, patient_share=0.5, seed=1)

    metrics = metrics_of(tmp_path / "out")
    assert metrics["val_patients"] == 0
    assert metrics["validation"]["val_loss"] > 0, "the training patients validate"
    (sentence,) = metrics["not_judged"]
    assert sentence.startswith("No subject of the validation split has an event in the context: ")
    assert len([message for message in caplog.messages if "validation" in message]) == 1


def test_a_share_of_under_eleven_patients_is_refused(world):
    patients = PretrainingPatients.read(world.seqset, world.subjects)
    with pytest.raises(
        NestError, match=r"patient_share 0.01: under 11 training patients of the share have a set"
    ):
        patients.with_share(0.01, seed=1)


def test_a_share_in_which_under_eleven_patients_have_an_event_is_refused(world, tmp_path):
    share = PretrainingPatients.read(world.seqset, world.subjects).with_share(0.5, seed=1)
    assert len(share.train) > 20
    first_sets = share.seqsets.subject_offsets[share.train[:-10]]
    without_events = set(share.seqsets.subject_id[first_sets].tolist())
    emptied = copy_world(world, tmp_path / "world", empty_sets_of(without_events))

    patients = PretrainingPatients.read(emptied.seqset, emptied.subjects)
    with pytest.raises(NestError, match=r"patient_share 0.5: under 11 training patients of the share"):
        patients.with_share(0.5, seed=1)


def test_validation_patients_without_an_event_in_the_context_do_not_validate(world, tmp_path):
    """Where each patient's last set is empty, a context of one set holds no event."""
    emptied = without_last_sets(world, tmp_path / "world", "val")
    patients = PretrainingPatients.read(emptied.seqset, emptied.subjects)
    whole, last = (
        PretrainingExamples.of(patients, ModelConfig.preset("tiny", 40, max_sets=sets), 4) for sets in (64, 1)
    )
    assert whole.val_patients == len(patients.val)
    assert last.val_patients == 0
    assert last.val is last.train

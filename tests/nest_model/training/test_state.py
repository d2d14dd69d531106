"""Saved states of a training in progress: intact, or reported as damaged and skipped."""

import errno
import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nest_model.training.state import StateFolder, TrainingState
from schemas.errors import NestError
from tests.support.examples import examples
from tests.support.full_disk import no_room


def state(step: int) -> TrainingState:
    weights = torch.arange(6, dtype=torch.float32).reshape(2, 3) + step
    return TrainingState({"module.weight": weights}, {"step": step})


def two_states(folder: Path) -> StateFolder:
    states = StateFolder(folder, "key")
    states.clear()
    states.save(state(1))
    states.save(state(2))
    return states


def step_of(states: StateFolder) -> int | None:
    newest = states.load()
    if newest is None:
        return None
    step: int = newest.numbers["step"]
    assert torch.equal(newest.tensors["module.weight"], state(step).tensors["module.weight"])
    return step


def test_two_states_are_kept_and_the_newest_is_loaded(tmp_path):
    states = two_states(tmp_path / "state")
    states.save(state(3))

    assert len(list(states.folder.iterdir())) == 2
    assert step_of(states) == 3


def test_a_state_of_an_earlier_form_is_not_resumed(tmp_path):
    """Before forms had a number, the folder was named by the run alone."""
    states = two_states(tmp_path / "state")
    states.folder.rename(tmp_path / "state" / "key")

    assert step_of(StateFolder(tmp_path / "state", "key")) is None


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=examples(200),
)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_state_with_a_flipped_byte_is_not_loaded(tmp_path, place, flip):
    states = two_states(tmp_path / "state")
    content = bytearray(states.newest.read_bytes())
    content[int(place * len(content))] ^= flip
    states.newest.write_bytes(content)

    assert step_of(states) == 1


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30), deadline=None
)
@given(place=st.floats(0, 1, exclude_max=True))
def test_a_truncated_state_is_not_loaded(tmp_path, place):
    states = two_states(tmp_path / "state")
    content = states.newest.read_bytes()
    states.newest.write_bytes(content[: int(place * len(content))])

    assert step_of(states) == 1


def test_states_of_another_run_are_named_and_those_of_an_earlier_stage_are_none(tmp_path, caplog):
    caplog.set_level("INFO", logger="nest")
    run = StateFolder(tmp_path / "state", "key of this run")
    run.of_stage("nam").save(state(1))
    assert run.of_stage("mnp").load() is None
    assert caplog.messages == []
    assert step_of(run.of_stage("nam")) == 1

    assert StateFolder(tmp_path / "state", "another key").of_stage("nam").load() is None
    assert "holds states of other runs" in caplog.text


def test_a_full_disk_raises_one_message_and_leaves_the_earlier_states(tmp_path):
    states = two_states(tmp_path / "state")
    files = {file.name: file.read_bytes() for file in states.folder.iterdir()}

    with pytest.raises(NestError, match=r"cannot be written .*Free space") as error, no_room(100):
        states.save(state(3))

    assert "\n" not in str(error.value)
    assert {file.name: file.read_bytes() for file in states.folder.iterdir()} == files
    assert step_of(states) == 2
    states.save(state(3))
    assert step_of(states) == 3


def test_a_damaged_state_is_removed(tmp_path):
    states = two_states(tmp_path / "state")
    states.newest.write_bytes(b"")
    assert step_of(states) == 1
    states.save(state(2))
    states.newest.write_bytes(b"")

    assert step_of(states) == 1


def test_a_training_restarts_when_every_state_is_damaged(tmp_path, caplog):
    states = two_states(tmp_path / "state")
    for file in list(states.folder.iterdir()):
        file.write_bytes(b"no state")

    assert states.load() is None
    assert sum("is damaged: its 8 bytes" in message for message in caplog.messages) == 2
    assert caplog.messages[-1].endswith("no state is left; the training starts from the beginning.")


@pytest.mark.parametrize("name", [".state.new", "..state.new.part"])
def test_a_half_written_file_is_not_a_state(tmp_path, name):
    states = two_states(tmp_path / "state")
    (states.folder / name).write_bytes(b"half")
    assert step_of(states) == 2
    states.save(state(3))

    assert step_of(states) == 3
    states.clear()
    assert not (tmp_path / "state").exists()


def test_an_unreadable_state_is_kept_and_reported(tmp_path, monkeypatch):
    states = two_states(tmp_path / "state")

    def fail(_: Path) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("nest_model.training.state.sha256_of", fail)
    with pytest.raises(NestError, match=r"cannot read .*\(Input/output error\).*It is unchanged"):
        states.load()

    monkeypatch.undo()
    assert step_of(states) == 2


def test_states_of_another_run_are_kept_until_a_model_is_written(tmp_path):
    states = two_states(tmp_path / "state")
    other_run = StateFolder(tmp_path / "state", "another key")

    assert other_run.load() is None
    other_run.save(state(7))
    assert step_of(states) == 2
    assert step_of(other_run) == 7
    other_run.clear()
    assert not (tmp_path / "state").exists()

"""What is on disk of a training under way: whole, or told to be damaged and passed over."""

import errno
import os
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nest_model.training.state import StateFolder, TrainingState
from schemas.errors import NestError


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
    found = states.load()
    if found is None:
        return None
    step: int = found.numbers["step"]
    assert torch.equal(found.tensors["module.weight"], state(step).tensors["module.weight"])
    return step


def test_two_states_are_kept_and_the_newest_is_read(tmp_path):
    states = two_states(tmp_path / "state")
    states.save(state(3))

    assert len(list(states.folder.iterdir())) == 2
    assert step_of(states) == 3


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=settings.default.max_examples * 2,
)
@given(where=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_byte_flipped_anywhere_is_never_read_as_good(tmp_path, where, flip):
    states = two_states(tmp_path / "state")
    content = bytearray(states.newest.read_bytes())
    content[int(where * len(content))] ^= flip
    states.newest.write_bytes(content)

    assert step_of(states) == 1


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
@given(where=st.floats(0, 1, exclude_max=True))
def test_a_state_cut_anywhere_is_never_read_as_good(tmp_path, where):
    states = two_states(tmp_path / "state")
    content = states.newest.read_bytes()
    states.newest.write_bytes(content[: int(where * len(content))])

    assert step_of(states) == 1


def test_a_damaged_state_is_removed_so_that_two_whole_ones_are_kept(tmp_path):
    states = two_states(tmp_path / "state")
    states.newest.write_bytes(b"")
    assert step_of(states) == 1
    states.save(state(2))
    states.newest.write_bytes(b"")

    assert step_of(states) == 1


def test_with_every_state_damaged_the_training_starts_anew_and_says_so(tmp_path, caplog):
    states = two_states(tmp_path / "state")
    for file in list(states.folder.iterdir()):
        file.write_bytes(b"no state")

    assert states.load() is None
    assert sum("is damaged: its 8 bytes" in message for message in caplog.messages) == 2
    assert caplog.messages[-1].endswith("no state is left; the training starts from the beginning.")


@pytest.mark.parametrize("name", [".state.new", "..state.new.part"])
def test_what_a_kill_left_half_written_is_no_state(tmp_path, name):
    states = two_states(tmp_path / "state")
    (states.folder / name).write_bytes(b"half")
    assert step_of(states) == 2
    states.save(state(3))

    assert step_of(states) == 3
    states.clear()
    assert not (tmp_path / "state").exists()


def test_a_state_that_cannot_be_read_is_left_alone_and_told(tmp_path, monkeypatch):
    states = two_states(tmp_path / "state")

    def fail(_: Path) -> str:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("nest_model.training.state.sha256_of", fail)
    with pytest.raises(NestError, match=r"cannot read .*\(Input/output error\).*It is untouched"):
        states.load()

    monkeypatch.undo()
    assert step_of(states) == 2


def test_another_run_s_states_are_passed_over_and_kept_until_a_model_is_written(tmp_path):
    states = two_states(tmp_path / "state")
    other = StateFolder(tmp_path / "state", "another key")

    assert other.load() is None
    other.save(state(7))
    assert step_of(states) == 2
    assert step_of(other) == 7
    other.clear()
    assert not (tmp_path / "state").exists()

"""Tests of locks: one writer or any number of readers, released with the process, without a lock file."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.errors import NestError
from schemas.io.lock import reader, sole_writer
from tests.bad_inputs.files import as_ordinary_user
from tests.support.commands import ROOT

HOLDER = """
import sys, time
from pathlib import Path
from schemas.io.lock import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_second_writer_of_a_folder_is_refused(tmp_path: Path):
    with sole_writer(tmp_path), pytest.raises(NestError, match="another run"), sole_writer(tmp_path):
        pass
    with sole_writer(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_readers_share_a_folder_and_exclude_a_writer(tmp_path: Path):
    with reader(tmp_path), reader(tmp_path), pytest.raises(NestError, match="another"), sole_writer(tmp_path):
        pass
    with sole_writer(tmp_path), pytest.raises(NestError, match="another"), reader(tmp_path):
        pass


def test_lock_is_released_when_the_writer_is_killed(tmp_path: Path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(NestError, match="another"), sole_writer(tmp_path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with sole_writer(tmp_path):
        pass


@pytest.mark.parametrize(("mode", "take"), [(0o000, sole_writer), (0o555, sole_writer), (0o000, reader)])
def test_inaccessible_folder_raises_one_message(mode: int, take: Callable, tmp_path: Path):
    (tmp_path / "own").mkdir()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(mode)
    adjective = "readable" if take is reader else "writable"
    message = rf"^{theirs}: not {adjective} by you; .*\? Fix its permissions, or choose .* NEST_DATA_DIR\.$"
    with as_ordinary_user(tmp_path / "own"), pytest.raises(NestError, match=message), take(theirs):
        pass


def test_error_inside_the_lock_is_passed_on(tmp_path: Path):
    with pytest.raises(BlockingIOError), sole_writer(tmp_path):
        raise BlockingIOError

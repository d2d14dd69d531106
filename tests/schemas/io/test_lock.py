"""One writer at a time, or any number of readers; the lock goes with its process, and no file is left of it."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.errors import NestError
from schemas.io.lock import reader, sole_writer
from tests.bad_inputs.files import without_rights
from tests.support.commands import ROOT

HOLDER = """
import sys, time
from pathlib import Path
from schemas.io.lock import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_writer_of_a_folder_is_refused(tmp_path: Path):
    with sole_writer(tmp_path), pytest.raises(NestError, match="another run"), sole_writer(tmp_path):
        pass
    with sole_writer(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_readers_share_a_folder_and_keep_a_writer_out(tmp_path: Path):
    with reader(tmp_path), reader(tmp_path), pytest.raises(NestError, match="another"), sole_writer(tmp_path):
        pass
    with sole_writer(tmp_path), pytest.raises(NestError, match="another"), reader(tmp_path):
        pass


def test_a_killed_writer_holds_nothing_any_more(tmp_path: Path):
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
def test_a_folder_of_another_user_is_one_message(mode: int, take: Callable, tmp_path: Path):
    (tmp_path / "own").mkdir()
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    theirs.chmod(mode)
    does = "read" if take is reader else "written"
    said = rf"^{theirs}: may not be {does} by you .*\. Mend its permissions, or choose .* NEST_DATA_DIR\.$"
    with without_rights(tmp_path / "own"), pytest.raises(NestError, match=said), take(theirs):
        pass


def test_what_breaks_under_the_lock_is_told_as_it_is(tmp_path: Path):
    with pytest.raises(BlockingIOError), sole_writer(tmp_path):
        raise BlockingIOError

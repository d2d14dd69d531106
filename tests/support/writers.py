"""Start another process that writes to a data folder."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.commands import ROOT

_HOLDER = """
import sys, time
from pathlib import Path
from schemas.io.lock import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@contextmanager
def another_writer(folder: Path, seconds: float = 60) -> Iterator[None]:
    """Let another process lock a folder until the block ends, for at most `seconds`."""
    command = [sys.executable, "-c", _HOLDER, str(folder), str(seconds)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield
        finally:
            holder.kill()

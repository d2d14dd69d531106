"""The modules that the fork server loads for all steps; it ignores one that cannot be imported."""

import subprocess
import sys

from assets.runtime.executor import PRELOADED
from tests.support.commands import ROOT


def test_every_preloaded_module_can_be_imported() -> None:
    # as the fork server does, in a process of its own: one of them changes the process group
    code = f"import {', '.join(PRELOADED)}"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr

"""The modules that the fork server loads for all steps; it ignores one that cannot be imported."""

import importlib
import subprocess
import sys

from assets.runtime.executor import PRELOADED
from tests.support.commands import ROOT


def test_every_preloaded_module_can_be_imported() -> None:
    first, *others = PRELOADED
    for name in others:
        importlib.import_module(name)
    # in a process of its own: it changes the process group, and collects no garbage until the last one is loaded
    code = f"import gc, {first}; assert not gc.isenabled(); import {others[-1]}; assert gc.isenabled()"
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert process.returncode == 0, process.stderr

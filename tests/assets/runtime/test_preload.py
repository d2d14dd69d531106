"""The modules that the fork server loads for all steps; it ignores one that cannot be imported."""

import importlib
import subprocess
import sys

import sqlalchemy
from alembic.script import ScriptDirectory
from dagster._core.storage import sql

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


def test_scripts_read_once_are_those_that_dagster_reads() -> None:
    importlib.import_module("assets.runtime.local_storage")
    config = sql.get_alembic_config(str(sql.__file__))
    with sqlalchemy.create_engine("sqlite://").connect() as connection:
        _, head = sql.check_alembic_revision(config, connection)
    assert head == ScriptDirectory.from_config(config).get_current_head()
    assert sql.ScriptDirectory.from_config(config) is sql.ScriptDirectory.from_config(config)

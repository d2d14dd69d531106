"""A `nest_model` command in a process of its own: its failure is one message."""

from pathlib import Path

import dagster as dg
import pytest

from assets.runtime.child_process import run_nest_model
from schemas.errors import NestError


def test_failed_command_is_one_message_without_exit_code(tmp_path: Path):
    @dg.asset
    def model(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> None:
        run_nest_model(context, pipes, tmp_path, "no-such-command")

    with pytest.raises(NestError, match="nest_model no-such-command ended without an error message"):
        dg.materialize([model], resources={"pipes": dg.PipesSubprocessClient()})

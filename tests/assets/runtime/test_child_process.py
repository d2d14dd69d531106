"""A `nest_model` command in a process of its own: its failure is one message."""

from pathlib import Path

import dagster as dg
import pytest

from assets.runtime.child_process import run_nest_model
from schemas.errors import NestError


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("no-such-command", "nest_model no-such-command ended without an error message"),
        ("--help", "nest_model --help ended without a result"),  # exit status 0
    ],
)
def test_failed_command_is_one_message_that_says_where_its_log_is(tmp_path: Path, command: str, fault: str):
    @dg.asset
    def model(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> None:
        run_nest_model(context, pipes, tmp_path, command)

    with pytest.raises(NestError, match=fault) as error:
        dg.materialize([model], resources={"pipes": dg.PipesSubprocessClient()})
    assert f"Its events are in {tmp_path / 'metrics.jsonl'}, the run's messages in " in str(error.value)
    assert str(error.value).endswith(
        ".log, and what it printed last on the UI's page of the run, under stderr."
    )

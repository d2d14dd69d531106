"""A `nest_model` command in a process of its own: its failure is one message, and it withholds what its run does."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import dagster as dg
import pytest

from assets.runtime.child_process import _MetricsTail, run_nest_model
from schemas.errors import NestError
from schemas.suppress import disclosing
from schemas.tables.leak_audit import LeakAudit
from tests.silent_faults.leaky_world import Stay, write_leaky_hospital


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


def test_events_after_a_torn_line_are_read(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    file = tmp_path / "metrics.jsonl"
    events = _MetricsTail(cast(dg.AssetExecutionContext, dg.build_asset_context()), file)
    with events.follow():
        file.write_text('{"event": "progre{"event": "error"}\n{"event": "stopped", "message": "at step 4"}\n')

    assert events.last == {"stopped": {"event": "stopped", "message": "at step 4"}}
    assert f"A line of {file} is no JSON and was passed over" in caplog.text


@pytest.mark.parametrize("is_synthetic", [pytest.param(True, marks=pytest.mark.long), False])
def test_command_withholds_a_small_count_unless_the_patients_are_synthetic(
    tmp_path: Path, is_synthetic: bool
):
    def plant(stay: Stay) -> None:
        if stay.subject in (0, 5, 10):
            stay.add("DX:Z66")

    write_leaky_hospital(tmp_path, plant)
    files = {"labels": "labels.parquet", "seqset": "seqset", "vocab": "vocab.parquet"}
    arguments = [word for name, file in files.items() for word in (f"--{name}", tmp_path / file)]

    @dg.asset
    def leak_audit(
        context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        with disclosing(is_synthetic):
            run_nest_model(context, pipes, tmp_path / "audit", "audit", *arguments)
        return dg.MaterializeResult()

    assert dg.materialize([leak_audit], resources={"pipes": dg.PipesSubprocessClient()}).success
    count = LeakAudit.read(tmp_path / "audit" / "leak_audit.json").suspects[0].predictions
    assert count.isdigit() if is_synthetic else count == "< 11"


class RecordingClient(dg.PipesSubprocessClient):
    """Runs nothing, and keeps the last command."""

    command: Sequence[str] = ()

    def run(self, *, command: Sequence[str], **_: Any) -> Any:
        self.command = command


@pytest.mark.parametrize(("command", "trains"), [("pretrain", True), ("finetune", True), ("predict", False)])
def test_training_of_an_asset_goes_on_with_smaller_micro_batches(tmp_path: Path, command: str, trains: bool):
    @dg.asset
    def model(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> None:
        run_nest_model(context, pipes, tmp_path, command)

    client = RecordingClient()
    with pytest.raises(NestError, match="ended without a result"):
        dg.materialize([model], resources={"pipes": client})
    assert ("--lower-row-budget" in client.command) is trains


def test_warning_of_a_command_is_a_warning_of_its_run(tmp_path: Path):
    message = "out of memory with 64 rows per micro-batch; running again with 32."

    class WarningClient(dg.PipesSubprocessClient):
        def run(self, **_: Any) -> Any:
            events = [{"event": "warning", "message": message}, {"event": "result", "metrics": {}}]
            (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))

    @dg.asset
    def model(context: dg.AssetExecutionContext, pipes: dg.PipesSubprocessClient) -> None:
        run_nest_model(context, pipes, tmp_path, "pretrain")

    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.materialize([model], resources={"pipes": WarningClient()}, instance=instance)
        levels = {entry.user_message: entry.level for entry in instance.all_logs(run.run_id)}
    assert levels[message] == logging.WARNING
    assert levels["result: no number to show"] == logging.INFO

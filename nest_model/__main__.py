"""`python -m nest_model <command>`: pretrain, fine-tune, predict, fit baselines, audit, report."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch loads; waiting threads then do not spin

from nest_model.commands.parser import parser
from nest_model.training import torchrun
from nest_model.training.memory import is_out_of_memory
from nest_model.training.seeds import model_of_seed, predictions_of_seed
from nest_model.training.stop import Stopped, StopRequest, die_with_parent
from nest_model.training.telemetry import METRICS_FILE, NullTelemetry, Telemetry
from schemas.errors import NestError
from schemas.io.lock import sole_writer
from schemas.io.outputs import claim, refuse_foreign_files, refuse_other_table
from schemas.seeds import seeds_of
from schemas.suppress import disclosing

PIPES = "DAGSTER_PIPES_CONTEXT"  # set by Dagster for a process it starts


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit status: 0, or 2 after a one-line error on stderr.

    The status is also 0 after a request to stop: the state is saved, and the last event in metrics.jsonl is `stopped`
    instead of `result`.
    """
    options = vars(parser().parse_args(arguments))
    run: Callable[..., None] = options.pop("run")
    stop = StopRequest(at_once=torchrun.ranks() == 1)
    trains, is_synthetic = options.pop("trains", False), options.pop("synthetic")
    listening = stop.handling_signals() if trains else nullcontext()
    if options.pop("die_with_parent"):
        die_with_parent()
    has_pipes = PIPES in os.environ  # the parent process logs the progress then
    is_first_rank = torchrun.rank() == 0  # only the first rank writes files and logs
    level = logging.WARNING if has_pipes else logging.INFO if is_first_rank else logging.ERROR
    contract: str | None = options.pop("out_contract", None)  # of a file; None: --out is a folder
    folder: Path = options["out"].parent if contract else options["out"]
    # among the lines of other steps in one terminal it must say whose warning it is
    said_by = f"warning: {options['out'].stem}: ".replace("%", "%%") if has_pipes else ""
    logging.basicConfig(level=level, format=f"%(asctime)s {said_by}%(message)s", datefmt="%H:%M:%S")
    try:
        if torchrun.ranks() > 1 and not trains:
            raise NestError("only pretrain and finetune run on several ranks; run this without torchrun.")
        if "seeds" in options:
            options["seeds"] = seeds_of(options.pop("seed"), options["seeds"])
        with _pipes_session(has_pipes), sole_writer(folder) if is_first_rank else nullcontext(), listening:
            if is_first_rank:
                _refuse_foreign_outputs(options, folder, contract)
            has_borrowed_folder = bool(contract) and not has_pipes and not (folder / METRICS_FILE).exists()
            telemetry = Telemetry(folder) if is_first_rank else NullTelemetry()
            with disclosing(is_synthetic):
                status = _run_command(run, telemetry, options | {"telemetry": telemetry}, stop)
            if status and has_borrowed_folder:  # without the file nothing of it stays there
                (folder / METRICS_FILE).unlink(missing_ok=True)
            return status
    except (NestError, OSError) as error:  # the folder cannot be created, or another run uses it
        print(f"error: {_error_message(error, folder)}", file=sys.stderr)
        return 2


def _refuse_foreign_outputs(options: dict[str, Any], folder: Path, contract: str | None) -> None:
    """Refuse to overwrite files that no earlier run of this command wrote, before hours of work.

    Raises:
        InputError: the output folder, or a file to be replaced, was not written by this command.
    """
    further, predictions = options.get("seeds", ())[1:], options.get("predictions")
    if contract is None:
        for model in (folder, *(model_of_seed(folder, seed) for seed in further)):
            claim(model)
    else:
        refuse_other_table(options["out"], contract)
    if predictions:
        for file in (predictions, *(predictions_of_seed(predictions, seed) for seed in further)):
            refuse_other_table(file, "predictions")
            refuse_foreign_files([file.parent / "metrics.json"])


def _pipes_session(has_pipes: bool) -> AbstractContextManager[Any]:
    """Return the Dagster Pipes session if a Dagster process started this one, else a null context."""
    if not has_pipes:
        return nullcontext()
    from dagster_pipes import open_dagster_pipes

    return open_dagster_pipes()


def _run_command(
    run: Callable[..., None], telemetry: Telemetry, options: dict[str, Any], stop: StopRequest
) -> int:
    """Run the command; report errors a user can correct as one line on stderr and in metrics.jsonl."""
    try:
        run(stop=stop, **options)
    except Stopped as stop_error:
        telemetry.write("stopped", message=str(stop_error))
        if torchrun.rank() == 0:
            print(stop_error, file=sys.stderr)
        return 0
    except (NestError, OSError) as error:
        message = _error_message(error, options["out"])
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = (
            "out of memory; for a training, lower --row-budget; otherwise use a machine with more memory."
        )
    else:
        return 0
    with suppress(OSError):  # the disk may be the cause
        telemetry.write("error", message=message)
    rank_prefix = f"rank {torchrun.rank()}: " if torchrun.ranks() > 1 else ""
    print(f"error: {rank_prefix}{message}", file=sys.stderr)
    return 2


def _error_message(error: NestError | OSError, out: Path) -> str:
    """Return the one-line message of an error."""
    if isinstance(error, NestError):
        return str(error)
    fault = error.strerror or type(error).__name__
    return f"{error.filename or out}: {fault}; correct the path or free space. Earlier outputs are unchanged."


if __name__ == "__main__":
    sys.exit(main())

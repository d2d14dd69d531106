"""`python -m nest_model <command>`: pretrain, fine-tune, predict, the yardstick, the report."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch loads: threads that wait do not spin

from nest_model.commands.parser import parser
from nest_model.training import torchrun
from nest_model.training.memory import is_out_of_memory
from nest_model.training.seeds import model_of_seed, predictions_of_seed
from nest_model.training.stop import Stopped, StopRequest, die_with_parent
from nest_model.training.telemetry import NullTelemetry, Telemetry
from schemas.errors import NestError
from schemas.io.lock import sole_writer
from schemas.io.outputs import claim, refuse_foreign_files, refuse_other_table
from schemas.seeds import seeds_of

PIPES = "DAGSTER_PIPES_CONTEXT"  # set by Dagster for a process it starts


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0, or 2 after one clear line on stderr.

    0 too when asked to stop: the state is saved, and the last event in metrics.jsonl is `stopped` and no `result`.
    """
    options = vars(parser().parse_args(arguments))
    run: Callable[..., None] = options.pop("run")
    stop = StopRequest(at_once=torchrun.ranks() == 1)
    trains = options.pop("trains", False)
    listening = stop.handling_signals() if trains else nullcontext()
    if options.pop("die_with_parent"):
        die_with_parent()
    piped = PIPES in os.environ  # the parent tells the progress then
    first = torchrun.rank() == 0  # which alone writes and tells
    level = logging.WARNING if piped else logging.INFO if first else logging.ERROR
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    folder: Path = options["out"].parent if options.pop("out_is_file", False) else options["out"]
    try:
        if torchrun.ranks() > 1 and not trains:
            raise NestError("only pretrain and finetune run on several ranks; run this without torchrun.")
        if "seeds" in options:
            options["seeds"] = seeds_of(options.pop("seed"), options["seeds"])
        with _pipe(piped), sole_writer(folder) if first else nullcontext(), listening:
            if first:
                _claim(options, folder)
            telemetry = Telemetry(folder) if first else NullTelemetry()
            return _guarded(run, telemetry, options | {"telemetry": telemetry}, stop)
    except (NestError, OSError) as error:  # the folder could not be made, or is another run's
        print(f"error: {_in_words(error, folder)}", file=sys.stderr)
        return 2


def _claim(options: dict, folder: Path) -> None:
    """Refuse to write over what is not of an earlier run of this command, before hours of work.

    Raises:
        InputError: the folder of the outputs, or a file that is to be replaced, was not made here.
    """
    further, predictions = options.get("seeds", ())[1:], options.get("predictions")
    if options["out"] == folder:
        for model in (folder, *(model_of_seed(folder, seed) for seed in further)):
            claim(model)
    else:
        refuse_other_table(options["out"], "predictions")
    if predictions:
        for file in (predictions, *(predictions_of_seed(predictions, seed) for seed in further)):
            refuse_other_table(file, "predictions")
            refuse_foreign_files([file.parent / "metrics.json"])


def _pipe(piped: bool) -> AbstractContextManager:
    """Return the session with the Dagster process that started this one, where one did."""
    if not piped:
        return nullcontext()
    from dagster_pipes import open_dagster_pipes

    return open_dagster_pipes()


def _guarded(run: Callable[..., None], telemetry: Telemetry, options: dict, stop: StopRequest) -> int:
    """Turn the faults a user can mend into one line, on stderr and in metrics.jsonl."""
    try:
        run(stop=stop, **options)
    except Stopped as stopped:
        telemetry.write("stopped", message=str(stopped))
        if torchrun.rank() == 0:
            print(stopped, file=sys.stderr)
        return 0
    except (NestError, OSError) as error:
        message = _in_words(error, options["out"])
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        message = "out of memory; of a training, lower --row-budget; else it needs a machine with more."
    else:
        return 0
    with suppress(OSError):  # the disk may be what is wrong
        telemetry.write("error", message=message)
    who = f"rank {torchrun.rank()}: " if torchrun.ranks() > 1 else ""
    print(f"error: {who}{message}", file=sys.stderr)
    return 2


def _in_words(error: NestError | OSError, out: Path) -> str:
    """Return the one line a person is told."""
    if isinstance(error, NestError):
        return str(error)
    fault = error.strerror or type(error).__name__
    return f"{error.filename or out}: {fault}; mend the path or free space. Earlier outputs are untouched."


if __name__ == "__main__":
    sys.exit(main())

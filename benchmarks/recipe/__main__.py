"""`python -m benchmarks.recipe`: the recipe with one part taken away, variant by variant; resumes where it stopped."""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.command_line import count, resumable, seed
from benchmarks.recipe.page import page
from benchmarks.recipe.queues import run
from benchmarks.recipe.scores import results
from benchmarks.recipe.trainings import TrainingCommand, Trainings
from benchmarks.recipe.variants import RECIPE, VARIANTS, Variant, select
from benchmarks.results_folder import add_out
from nest_model.report.data import is_synthetic
from nest_model.training.telemetry import Progress
from schemas.errors import NestError
from schemas.io.lock import sole_writer
from schemas.io.outputs import claim, write_json, write_text
from schemas.layout import Layout
from schemas.settings import Settings

NAME = "recipe"
SEEDS = (42, 123, 456, 2025, 3407)
CONTRACT = "recipe/1"
log = logging.getLogger("nest")


@resumable
def main(arguments: list[str] | None = None) -> int:
    """Train the variants, update the tables after each, and print them at the end."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    data = options.data or Settings().data_folder / "mimic"
    trainings = Trainings(Layout(data), options.work, options.seeds)
    variants = select(options.variants)
    if len(set(options.seeds)) < len(options.seeds):
        raise NestError("--seeds: give each seed once.")
    trainings.require_tables()
    with sole_writer(options.work):
        claim(options.work)
        _train(variants, trainings, options)
    print((options.out / f"{NAME}.md").read_text(), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.recipe", description=__doc__)
    flags.add_argument(
        "--data",
        type=Path,
        help="folder with the tables and labels that `make mimic_full` has made (default: mimic in NEST_DATA_DIR)",
    )
    flags.add_argument(
        "--variants",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"variants to train beside the recipe (default: all): {', '.join(one.name for one in VARIANTS[1:])}",
    )
    flags.add_argument("--seeds", type=seed, nargs="+", default=list(SEEDS), help="seeds of the fine-tunings")
    flags.add_argument("--workers", type=count, default=2, help="trainings at the same time")
    flags.add_argument("--work", type=Path, required=True, help="folder of the models")
    add_out(flags, f"folder of {NAME}.md and .json")
    return flags


def _train(variants: Sequence[Variant], trainings: Trainings, options: argparse.Namespace) -> None:
    """Train what is not trained yet, the recipe's pretraining first, which others share; publish after each variant."""
    pending_variants = [variant for variant in variants if not trainings.is_done(variant)]
    log.info("%d of %d variants are done already", len(variants) - len(pending_variants), len(variants))
    queues = [[trainings.pretraining(RECIPE)], *(list(trainings.of(variant)) for variant in pending_variants)]
    pending_models = {
        training.model for queue in queues for training in queue if not training.is_done
    }  # variants with the same pretraining have it once
    progress = Progress(None, NAME, len(pending_models), "trainings")

    def report(training: TrainingCommand) -> None:
        log.info("done: %s", training.words)
        progress.advance(1)
        progress.report()
        for variant in [variant for variant in pending_variants if trainings.is_done(variant)]:
            pending_variants.remove(variant)
            _publish(trainings, options)

    run(queues[:1], options.workers, report)
    run(queues[1:], options.workers, report)
    _publish(trainings, options)


def _publish(trainings: Trainings, options: argparse.Namespace) -> None:
    """Write the tables of all variants that are done, also by an earlier command, once the recipe is."""
    variants = [variant for variant in VARIANTS if trainings.is_done(variant)]
    if RECIPE not in variants:
        return
    pretraining = json.loads((trainings.pretraining(RECIPE).model / "metrics.json").read_text())
    report = {
        "contract": CONTRACT,
        "seeds": list(trainings.seeds),
        "train_patients": pretraining["train_patients"],
        "synthetic": is_synthetic(trainings.layout),
        "rows": results(trainings, variants),
        "not_run": [variant.name for variant in VARIANTS if variant not in variants],
    }
    write_json(options.out / f"{NAME}.json", report)
    write_text(options.out / f"{NAME}.md", page(report))


if __name__ == "__main__":
    sys.exit(main())

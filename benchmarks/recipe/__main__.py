"""`python -m benchmarks.recipe`: the recipe with one part taken away, variant by variant; resumes where it stopped."""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock

from benchmarks.arguments import count, seed
from benchmarks.pipelines.measure import Machine
from benchmarks.recipe.page import page
from benchmarks.recipe.scores import results
from benchmarks.recipe.trainings import COHORTS, METRICS, Trainings
from benchmarks.recipe.variants import RECIPE, VARIANTS, Variant, select
from benchmarks.results_folder import add_out
from nest_model.report.data import is_synthetic
from nest_model.training.telemetry import Progress
from schemas.errors import NestError
from schemas.io.lock import sole_writer
from schemas.io.outputs import claim, write_json, write_text
from schemas.layout import Layout

NAME = "recipe"
SEEDS = (42, 123, 456, 2025, 3407)
CONTRACT = "recipe/1"
log = logging.getLogger("nest")


def main(arguments: list[str] | None = None) -> int:
    """Train the variants, update the tables after each, and print them at the end."""
    options = parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    trainings = Trainings(Layout(options.data), options.work, options.seeds)
    try:
        variants = select(options.variants)
        if len(set(options.seeds)) < len(options.seeds):
            raise NestError("--seeds: give each seed once.")
        trainings.require_tables()
        with sole_writer(options.work):
            claim(options.work)
            _train(variants, trainings, options)
    except (NestError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print((options.out / f"{NAME}.md").read_text(), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    flags = argparse.ArgumentParser(prog="python -m benchmarks.recipe", description=__doc__)
    flags.add_argument(
        "--data",
        type=Path,
        default=Path("data/mimic"),
        help="folder of a source that `make mimic_full` has made, whose tables and labels are used",
    )
    flags.add_argument(
        "--variants",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"variants to train beside the recipe (default: all): {', '.join(one.name for one in VARIANTS[1:])}",
    )
    flags.add_argument("--seeds", type=seed, nargs="+", default=list(SEEDS), help="seeds of the fine-tunings")
    flags.add_argument("--workers", type=count, default=2, help="variants that are trained at the same time")
    flags.add_argument("--work", type=Path, required=True, help="folder of the models")
    add_out(flags, f"folder of {NAME}.md and .json")
    return flags


def _train(variants: Sequence[Variant], trainings: Trainings, options: argparse.Namespace) -> None:
    """Train what is not trained yet, the recipe's pretraining first, which others share; publish after each variant."""
    pending_variants = [variant for variant in variants if not trainings.is_done(variant)]
    log.info("%d of %d variants are done already", len(variants) - len(pending_variants), len(variants))
    trainings_each = len(COHORTS) * len(trainings.seeds)
    progress = Progress(None, NAME, len(pending_variants) * trainings_each, "fine-tunings")
    one_at_a_time = Lock()

    def train(variant: Variant) -> Variant:
        log.info("begins: %s", variant.words)
        try:
            trainings.pretrain(variant)
            for cohort in COHORTS:
                trainings.finetune(variant, cohort)
                with one_at_a_time:
                    progress.advance(len(trainings.seeds))
                    progress.report()
        except NestError as error:
            log.info("failed: %s What has begun beside it is finished first.", error)
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return variant

    if pending_variants:
        trainings.pretrain(RECIPE)
    with ThreadPoolExecutor(options.workers) as pool:
        try:
            futures = [pool.submit(train, variant) for variant in pending_variants]
            for future in as_completed(futures):
                if not future.cancelled():
                    log.info("done: %s", future.result().words)
                    _publish(trainings, options)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    _publish(trainings, options)


def _publish(trainings: Trainings, options: argparse.Namespace) -> None:
    """Write the tables of all variants that are done, also by an earlier command, once the recipe is."""
    variants = [variant for variant in VARIANTS if trainings.is_done(variant)]
    if RECIPE not in variants:
        return
    metrics = json.loads((trainings.pretrained(RECIPE) / METRICS).read_text())
    report = {
        "contract": CONTRACT,
        "seeds": list(trainings.seeds),
        "train_patients": metrics["train_patients"],
        "synthetic": is_synthetic(trainings.layout),
        "machine": Machine.this().name,
        "rows": results(trainings, variants),
    }
    write_json(options.out / f"{NAME}.json", report)
    write_text(options.out / f"{NAME}.md", page(report))


if __name__ == "__main__":
    sys.exit(main())

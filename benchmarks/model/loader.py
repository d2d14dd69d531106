"""`python -m benchmarks.model.loader`: the cost of turning shards into packed batches on one core.

Each size is measured in a process of its own, whose anonymous memory is sampled: the kernel can reclaim pages of a
mapped file when memory is short, but not anonymous pages.
"""

import argparse
import logging
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from benchmarks.model.measure import machine
from benchmarks.model.random_shards import VOCAB_SIZE, write_shards
from benchmarks.model.results import describe_machine, publish
from benchmarks.results_folder import add_out
from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch, epoch_steps, pack, seed_of
from nest_model.data.selection import Selection, limit_context, whole_subjects
from nest_model.data.seqsets import SeqSets
from nest_model.process import resident_bytes
from nest_model.training.masking import mask_batch
from nest_model.training.ranks import balanced_runs
from nest_model.training.recipe import PRETRAINING
from schemas.errors import NestError
from schemas.io.outputs import empty_folder

SEED = 42
CONFIG, RECIPE = ModelConfig.preset("paper", VOCAB_SIZE), PRETRAINING["paper"]
_SECONDS_BETWEEN_LOOKS = 0.01
log = logging.getLogger("nest")


def main(arguments: list[str] | None = None) -> int:
    """Measure a quarter of the patients and all of them, write `<name>.md` and `<name>.json`, and print the former."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.model.loader",
        description="Shards to packed batches: rates on one core, and memory.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--patients", type=int, default=223_000, help="patients of the larger size; the default is MIMIC-IV's"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit of each kind of epoch")
    parser.add_argument(
        "--work", type=Path, required=True, help="scratch folder, for 6 GB that are deleted again"
    )
    add_out(parser, "folder of the report")
    parser.add_argument("--name", default="loader", help="name of the report's files")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(1)
    report: dict[str, Any] = {"machine": machine(torch.device("cpu"))}
    sizes = (options.patients // 4, options.patients)
    try:
        report["sizes"] = [_measure_size(options.work, patients, options.seconds) for patients in sizes]
    except NestError as error:
        log.error("error: %s", error)
        return 2
    publish(options.out, options.name, report, as_markdown(report))
    return 0


def _measure_size(work: Path, patients: int, seconds: float) -> dict[str, Any]:
    """Write shards, measure them in a new process while sampling its memory, and delete them."""
    folder = empty_folder(work / f"shards_{patients}")
    try:
        began = time.perf_counter()
        write_shards(folder, patients)
        log.info("%s patients written in %.0f s", f"{patients:,}", time.perf_counter() - began)
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            baseline, process = pool.submit(_ready).result()
            running = pool.submit(measure, folder, seconds)
            peak = baseline
            while wait([running], timeout=_SECONDS_BETWEEN_LOOKS).not_done:
                peak = max(peak, resident_bytes("RssAnon", process))
            figures = running.result()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    log.info("%s patients: %s", f"{patients:,}", figures)
    return {"patients": patients} | figures | {"anonymous_bytes_before": baseline, "anonymous_bytes": peak}


def _ready() -> tuple[int, int]:
    """Limit this process to one core; return its anonymous memory with all modules loaded, and its process id."""
    torch.set_num_threads(1)
    pa.set_cpu_count(1)
    return resident_bytes("RssAnon"), os.getpid()


def measure(folder: Path, seconds: float) -> dict[str, Any]:
    """Return the seconds of reading, hashing and selecting, and the tokens per second of packing an epoch."""
    read_seconds, seqsets = _time(lambda: SeqSets.read(folder))
    hash_seconds, _ = _time(seqsets.content_sha256)
    limits = {"max_sets": CONFIG.max_sets, "max_set_rows": CONFIG.max_set_rows}
    everyone = np.arange(seqsets.subjects)
    selection_seconds, (selection, _) = _time(
        lambda: limit_context(whole_subjects(seqsets, everyone), **limits)
    )
    arrays = (getattr(seqsets, field.name) for field in fields(seqsets))
    return {
        "sets": seqsets.sets,
        "tokens": seqsets.events,
        "parquet_bytes": sum(file.stat().st_size for file in folder.glob("*.parquet")),
        "column_bytes": sum(array.nbytes for array in arrays if isinstance(array, np.ndarray)),
        "read": read_seconds,
        "hashed": hash_seconds,
        "selected": selection_seconds,
        "packed": _rate(packed(seqsets, selection), seconds),
        "packed_and_masked": _rate(packed_and_masked(seqsets, selection), seconds),
    }


def packed(seqsets: SeqSets, selection: Selection) -> Iterator[PackedBatch]:
    """Yield the packed steps of an epoch."""
    for examples in epoch_steps(len(selection), RECIPE.examples_per_step, seed=SEED, epoch=0):
        yield pack(seqsets, selection.take(examples), CONFIG)


def packed_and_masked(seqsets: SeqSets, selection: Selection) -> Iterator[PackedBatch]:
    """Yield the same steps, each masked and cut into micro-batches as in training."""
    for step, batch in enumerate(packed(seqsets, selection)):
        masked_batch = mask_batch(batch, torch.Generator().manual_seed(seed_of(SEED, 0, step)), CONFIG)
        for run in balanced_runs(masked_batch.batch.rows, RECIPE.row_budget, 1):
            masked_batch.slice_subjects(run.start, run.stop)
        yield batch


def _rate(steps: Iterator[PackedBatch], seconds: float) -> dict[str, float]:
    """Return the tokens packed, in total, per wall-clock second and per CPU second of this process."""
    began, began_cpu, tokens = time.perf_counter(), time.process_time(), 0
    for batch in steps:
        tokens += len(batch.tokens) - batch.sets
        if time.perf_counter() - began > seconds:
            break
    took, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    return {"tokens": tokens, "tokens_per_s": tokens / took, "tokens_per_cpu_s": tokens / cpu}


def _time(work: Callable[[], Any]) -> tuple[dict[str, float], Any]:
    """Return the wall-clock and CPU seconds of the work, and its result."""
    began, began_cpu = time.perf_counter(), time.process_time()
    result = work()
    return {"s": time.perf_counter() - began, "cpu_s": time.process_time() - began_cpu}, result


def as_markdown(report: dict[str, Any]) -> str:
    """Return the machine, and a table with a column for each size."""
    sizes = report["sizes"]

    def line(words: str, cell: Callable[[dict[str, Any]], str]) -> str:
        return f"| {words} | {' | '.join(cell(size) for size in sizes)} |"

    def rate(way: str) -> Callable[[dict[str, Any]], str]:
        return lambda s: f"{s[way]['tokens_per_s'] / 1e6:.1f} ({s[way]['tokens_per_cpu_s'] / 1e6:.1f})"

    def seconds(of: str) -> Callable[[dict[str, Any]], str]:
        return lambda s: f"{s[of]['s']:.1f} ({s[of]['cpu_s']:.1f})"

    def read_at(amount: str) -> Callable[[dict[str, Any]], str]:
        return lambda s: (
            f"{s[amount] / s['read']['s'] / 1e6:,.1f} ({s[amount] / s['read']['cpu_s'] / 1e6:,.1f})"
        )

    lines = [
        describe_machine(report["machine"]),
        "Seconds and rates are by the clock, in brackets by the process's own CPU seconds.\n",
        line("", lambda s: f"{s['patients']:,} patients"),
        f"|---|{'--:|' * len(sizes)}",
        line("sets", lambda s: f"{s['sets']:,}"),
        line("tokens", lambda s: f"{s['tokens']:,}"),
        line("Parquet, MB", lambda s: f"{s['parquet_bytes'] / 1e6:,.0f}"),
        line("columns, MB", lambda s: f"{s['column_bytes'] / 1e6:,.0f}"),
        line("read, s", seconds("read")),
        line("read, M tokens / s", read_at("tokens")),
        line("read, MB of columns / s", read_at("column_bytes")),
        line("hashed, s", seconds("hashed")),
        line("selected, s", seconds("selected")),
        line("packed, M tokens / s", rate("packed")),
        line("packed, masked and cut, M tokens / s", rate("packed_and_masked")),
        line("anonymous memory before, MiB", lambda s: f"{s['anonymous_bytes_before'] / 2**20:,.0f}"),
        line("anonymous memory at its peak, MiB", lambda s: f"{s['anonymous_bytes'] / 2**20:,.0f}"),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())

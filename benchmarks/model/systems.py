"""`python -m benchmarks.model.systems`: rate and memory of each system's pretraining step, as Markdown and JSON.

A step is the product's: patients are read from shards, corrupted, moved to the device and learnt from. The systems run
one after the other, each stage of a pretraining by itself, on the same steps of the same patients. Peak memory on a CPU
is the process's, which those before have raised.
"""

import argparse
import logging
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from lightning_fabric import Fabric

from benchmarks.model.measure import machine
from benchmarks.model.random_shards import VOCAB_SIZE, write_shards
from benchmarks.model.results import describe_machine, publish
from benchmarks.results_folder import add_out
from nest_model.config import PRESETS, ModelConfig
from nest_model.data.packed import epoch_steps, seed_of
from nest_model.data.seqsets import SeqSets
from nest_model.model.encoder import encoder_class
from nest_model.process import peak_mib
from nest_model.recipe import Recipe
from nest_model.systems import systems
from nest_model.training.device import launch_fabric
from nest_model.training.objectives import objective_of
from nest_model.training.pretraining_data import PretrainingPatients
from nest_model.training.pretraining_task import Pretraining
from nest_model.training.recipe import pretraining_recipe
from nest_model.training.runtime import Runtime
from nest_model.training.stop import StopRequest
from nest_model.training.telemetry import Telemetry
from nest_model.training.trainer import adamw
from schemas.errors import NestError
from schemas.io.outputs import empty_folder
from schemas.tables.vocab import SPECIAL_KIND, SPECIALS

SEED, WARM_UP = 42, 3
VALIDATION_PATIENTS = 36
log = logging.getLogger("nest")


def main(arguments: list[str] | None = None) -> int:
    """Measure, write `<name>.md` and `<name>.json`, and print the former."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.model.systems",
        description="A pretraining step of every system: rows a second, and peak memory.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--model", choices=PRESETS, default="paper", help="preset of every system")
    parser.add_argument(
        "--systems", nargs="+", choices=systems(), default=list(systems()), metavar="SYSTEM", help="systems"
    )
    parser.add_argument("--patients", type=int, default=4_000, help="number of random patients")
    parser.add_argument("--steps", type=int, default=20, help=f"steps measured, after {WARM_UP} others")
    parser.add_argument("--row-budget", type=int, help="rows of a micro-batch; without it the recipe's")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="device")
    parser.add_argument(
        "--precision", choices=("auto", "32-true", "bf16-mixed", "16-mixed"), default="auto", help="precision"
    )
    parser.add_argument("--threads", type=int, default=1, help="number of CPU threads")
    parser.add_argument("--work", type=Path, required=True, help="scratch folder, for 8 KB a patient")
    add_out(parser, "folder of the report")
    parser.add_argument("--name", default="systems", help="name of the report's files")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    try:
        fabric = launch_fabric(options.device, options.precision, threads=options.threads)
        with random_patients(options.work, options.patients) as patients:
            rows = list(_measure(options, fabric, patients))
    except NestError as error:
        log.error("error: %s", error)
        return 2
    report = {
        "machine": machine(fabric.device),
        "precision": str(fabric.strategy.precision.precision),
        "model": options.model,
        "steps": options.steps,
        "rows": rows,
    }
    publish(options.out, options.name, report, as_markdown(report))
    return 0


@contextmanager
def random_patients(work: Path, patients: int) -> Iterator[PretrainingPatients]:
    """Yield random patients with histories as long as in MIMIC-IV; their shards are deleted at the end."""
    folder = empty_folder(work / "shards")
    try:
        write_shards(folder, patients)
        places = np.arange(patients)
        yield PretrainingPatients(
            SeqSets.read(folder), places[:-VALIDATION_PATIENTS], places[-VALIDATION_PATIENTS:]
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def random_vocabulary() -> pa.Table:
    """Return a vocabulary of diagnoses, procedures and drugs in turn, with codes that have levels."""
    kinds, codes = [SPECIAL_KIND] * len(SPECIALS), [None] * len(SPECIALS)
    for number in range(VOCAB_SIZE - len(SPECIALS)):
        kind, prefix = (("DX", "I1"), ("PR", "0B"), ("MED", "C01AA"))[number % 3]
        kinds.append(kind)
        codes.append(f"{prefix}{number // 6}{number}")
    tokens = [*SPECIALS, *map("{}:{}".format, kinds[len(SPECIALS) :], codes[len(SPECIALS) :])]
    return pa.table({"token": tokens, "kind": kinds, "code": codes})


def _measure(
    options: argparse.Namespace, fabric: Fabric, patients: PretrainingPatients
) -> Iterator[dict[str, Any]]:
    for name in options.systems:
        for stage in systems()[name].stages:
            try:
                yield PretrainingStep.of(name, stage, options, fabric, patients).measure(options.steps)
            except torch.OutOfMemoryError:
                log.warning("%s by %s does not fit into the device's memory.", name, stage)
            if fabric.device.type == "cuda":
                torch.cuda.empty_cache()


@dataclass
class PretrainingStep:
    """A stage of a system's pretraining, step by step."""

    system: str
    stage: str
    task: Pretraining
    recipe: Recipe
    fabric: Fabric
    module: Any
    optimizer: Any

    @classmethod
    def of(
        cls,
        system: str,
        stage: str,
        options: argparse.Namespace,
        fabric: Fabric,
        patients: PretrainingPatients,
    ) -> "PretrainingStep":
        """Prepare the encoder, its objective and its optimiser as a pretraining does."""
        recipe = pretraining_recipe(options.model, system).on_device(fabric.device.type)
        recipe = recipe.with_changes(row_budget=options.row_budget)
        config = ModelConfig.preset(options.model, VOCAB_SIZE, system=system)
        if systems()[system].reads_visits:
            config = replace(config, visit_types=patients.visit_types(config.context))
        torch.manual_seed(SEED)
        encoder = encoder_class(system)(config)
        encoder.describe_tokens(random_vocabulary())
        runtime = Runtime(fabric, Telemetry(options.work), StopRequest())
        task = Pretraining(patients, encoder, objective_of(stage, config), recipe, runtime)
        module = fabric.setup_module(task.module)
        optimizer = fabric.setup_optimizers(adamw(task, recipe, fabric))
        return cls(system, stage, task, recipe, fabric, module, optimizer)

    def measure(self, steps: int) -> dict[str, Any]:
        """Return the rate, the milliseconds and the peak memory of so many steps."""
        seconds, loading_seconds, rows = [], [], []
        for turn, examples in enumerate(islice(self._steps(), WARM_UP + steps)):
            if turn == WARM_UP and self.fabric.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
            began = time.perf_counter()
            loading = self._run(examples, turn)
            if turn >= WARM_UP:
                seconds.append(time.perf_counter() - began)
                loading_seconds.append(loading)
                rows.append(int(self.task.rows[examples].sum()))
        figures = {
            "system": self.system,
            "stage": self.stage,
            "parameters": self.task.num_parameters,
            "rows_per_second": sum(rows) / sum(seconds),
            "milliseconds_a_step": 1e3 * float(np.median(seconds)),
            "milliseconds_of_host_a_step": 1e3 * float(np.median(loading_seconds)),
            "rows_a_step": float(np.mean(rows)),
            "peak_mib": peak_mib(),
        }
        log.info("%s by %s: %s rows a second", self.system, self.stage, f"{figures['rows_per_second']:,.0f}")
        return figures

    def _steps(self) -> Iterator[np.ndarray]:
        epoch = 0
        while True:
            yield from epoch_steps(len(self.task.rows), self.recipe.examples_per_step, seed=SEED, epoch=epoch)
            epoch += 1

    def _run(self, examples: np.ndarray, turn: int) -> float:
        """Run a step to its end on the device; return the seconds until its patients were there."""
        began = time.perf_counter()
        micro_batches = self.task.micro_batches(examples, seed_of(SEED, 0, turn))
        loading = time.perf_counter() - began
        self.optimizer.zero_grad()
        for micro_batch in micro_batches:
            losses = self.task.losses(self.module, micro_batch)
            self.fabric.backward(losses["loss"])
        if self.recipe.clip_norm is not None:
            self.fabric.clip_gradients(self.module, self.optimizer, max_norm=self.recipe.clip_norm)
        self.optimizer.step()
        self.task.after_step()
        if self.fabric.device.type == "cuda":
            torch.cuda.synchronize()
        return loading


def as_markdown(report: Mapping[str, Any]) -> str:
    """Return the machine, and a row for each stage of each system; rates also as a share of NEST's."""
    rows: Sequence[Mapping[str, Any]] = report["rows"]
    nest = next((row["rows_per_second"] for row in rows if row["system"] == "nest"), None)
    lines = [
        f"{describe_machine(report['machine'])} Preset {report['model']}, {report['precision']}, {report['steps']} "
        "steps each; rows are those a system reads of its patients, a [CLS] for each set included.",
        "",
        "| system | objective | weights (M) | K rows / s | of NEST's | ms a step | of it loading | peak memory (GiB) |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        share = f"{row['rows_per_second'] / nest:.2f}" if nest else ""
        lines.append(
            f"| {systems()[row['system']].title} | {row['stage']} | {row['parameters'] / 1e6:.1f} | "
            f"{row['rows_per_second'] / 1e3:,.1f} | {share} | {row['milliseconds_a_step']:.1f} | "
            f"{row['milliseconds_of_host_a_step']:.1f} | {row['peak_mib'] / 1024:.2f} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())

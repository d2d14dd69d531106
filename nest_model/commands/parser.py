"""The commands of `python -m nest_model` and their flags; each imports what it needs itself."""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nest_model.config import PRESETS
from nest_model.options import (
    FineTuningOptions,
    Options,
    PretrainingOptions,
    add_flags,
    preset_choice,
    preset_for,
    take_options,
)
from nest_model.training.stop import StopRequest
from nest_model.training.telemetry import Telemetry
from schemas.errors import NestError
from schemas.seeds import DEFAULT, read_seed, read_seeds

if TYPE_CHECKING:
    from nest_model.training.runtime import Runtime

T = TypeVar("T")

DESCRIPTION = "Pretrain, fine-tune, predict, the yardstick, the reports."


PATHS = {
    "boosted": "the folder of the cohort's LightGBM, whose settings are taken over",
    "labels": "the label table of a cohort, `labels.parquet`",
    "model": "the folder of a trained model",
    "out": "where to write: a folder; of `predict` a Parquet file",
    "predictions": "the Parquet file of the predictions to write",
    "pretrained": "the folder of a pretrained model",
    "root": "the folder of a source, such as `data/mimic`",
    "seqset": "the folder of the shards",
    "subjects": "the table of the patients and their splits, `subjects.parquet`",
    "vocab": "the vocabulary the shards were written with, `vocab.parquet`",
}
SEED = "seed of all that is drawn by chance"


def parser() -> argparse.ArgumentParser:
    """Return the commands and their flags."""
    top = argparse.ArgumentParser(prog="python -m nest_model", description=DESCRIPTION)
    commands = top.add_subparsers(required=True, metavar="command")

    pretrain = _command(commands, "pretrain", _pretrain, "pretrain on shards: MLM and MSM")
    _paths(pretrain, "seqset", "subjects", "vocab", "out")
    pretrain.add_argument(
        "--model",
        type=preset_choice,
        default="auto",
        metavar="{" + ",".join(("auto", *PRESETS)) + "}",
        help="its preset; auto: tiny on a CPU, paper on a GPU",
    )
    add_flags(pretrain, PretrainingOptions)
    _seeds(pretrain)
    _device(pretrain)
    _training(pretrain)

    finetune = _command(commands, "finetune", _finetune, "fine-tune a pretrained model on a cohort's labels")
    _paths(finetune, "pretrained", "labels", "seqset", "out", "predictions")
    add_flags(finetune, FineTuningOptions)
    finetune.add_argument(
        "--start",
        choices=("pretrained", "fresh"),
        default="pretrained",
        help="weights the encoder begins at; fresh: drawn with the seed, and of the pretrained model only its config "
        "and what its tokens measure are read: the yardstick NEST without pretraining",
    )
    _seeds(finetune)
    finetune.add_argument(
        "--pretraining-seeds",
        action="store_true",
        help="begin each further seed at the model pretrained with it, `seeds/SEED` below --pretrained",
    )
    _device(finetune)
    _training(finetune)

    lightgbm = _command(commands, "lightgbm", _lightgbm, "fit LightGBM on counts of the same features")
    _paths(lightgbm, "labels", "seqset", "vocab", "out", "predictions")
    _seeds(lightgbm)

    yardsticks = _command(
        commands, "yardsticks", _yardsticks, "fit the other models NEST is compared with on a cohort"
    )
    _paths(yardsticks, "labels", "seqset", "vocab", "pretrained", "boosted", "out", "predictions")
    yardsticks.add_argument(
        "--which",
        choices=("default", "all"),
        default="default",
        help="default: the logistic regression; all: LightGBM under NEST's context and on roll-ups too",
    )
    yardsticks.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED)

    removals = _command(
        commands, "removals", _removals, "ask what a fine-tuned model loses when events are taken out"
    )
    _paths(removals, "model", "labels", "seqset", "out")
    removals.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED)
    _device(removals)

    audit = _command(
        commands, "audit", _audit, "ask whether what a cohort's models see could tell the outcome"
    )
    _paths(audit, "labels", "seqset", "vocab", "out")
    audit.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED)

    predict = _command(commands, "predict", _predict, "score new patients with a fine-tuned model")
    _paths(predict, "model", "seqset", "out")
    predict.set_defaults(out_is_file=True)
    predict.add_argument(
        "--index",
        type=Path,
        help="whom to score when: Parquet or CSV with subject_id, encounter_id, predict_at; left out: each patient's "
        "last stay, at the time the task predicts",
    )
    predict.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED)
    _device(predict)

    next_set = _command(
        commands, "next-set", _next_set, "score a pretrained model on test subjects' next sets"
    )
    _paths(next_set, "model", "seqset", "subjects", "vocab", "out")
    next_set.add_argument(
        "--target",
        choices=("last_visible", "held_out"),
        default="last_visible",
        help="which set of each patient is to be predicted",
    )
    next_set.add_argument("--raw", type=Path, help="the folder of `held_out`; read for that target alone")
    next_set.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED)
    _device(next_set)

    report = _command(commands, "report", _report, "one page over every model of some cohorts")
    _paths(report, "root", "out")
    report.add_argument(
        "--cohorts", type=lambda names: names.split(","), required=True, help="their names, between commas"
    )
    report.add_argument(
        "--preset", required=True, help="the preset the models were made under, named on the page"
    )

    cohort_report = _command(
        commands, "cohort-report", _cohort_report, "one page over the models of one cohort"
    )
    _paths(cohort_report, "root", "out")
    cohort_report.add_argument("--cohort", required=True, help="its name")
    cohort_report.add_argument(
        "--preset", required=True, help="the preset the models were made under, named on the page"
    )
    return top


def _command(commands: argparse._SubParsersAction, name: str, run: Callable[..., None], text: str):
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(run=run)
    command.add_argument("--die-with-parent", action="store_true", help=argparse.SUPPRESS)
    return command


def _paths(command: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        command.add_argument(f"--{name}", type=Path, required=True, help=PATHS[name])


def _seeds(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=_seed, help=f"{SEED} (default: {DEFAULT}, or the first of --seeds)")
    command.add_argument(
        "--seeds",
        type=_seed_list,
        metavar="SEED,SEED,…",
        help="seeds to train with, one model each, such as 42,123; the first lies in --out, each other in `seeds/SEED` "
        "below it",
    )


def _seed(text: str) -> int:
    return _or_refuse(read_seed, text)


def _seed_list(text: str) -> tuple[int, ...]:
    return _or_refuse(read_seeds, text)


def _or_refuse(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except NestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU where there is one"
    )
    command.add_argument(
        "--precision",
        choices=("auto", "32-true", "bf16-mixed", "16-mixed"),
        default="auto",
        help="of the numbers; auto: as the device allows",
    )
    command.add_argument(
        "--threads", type=int, default=2, help="of the CPU; part of what makes a run repeatable"
    )


def _training(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--row-budget",
        type=int,
        help="rows of a micro-batch: memory, not the result; without: as the recipe says",
    )
    command.add_argument(
        "--lower-row-budget", action="store_true", help="halve it when memory runs out, and go on"
    )
    command.add_argument(
        "--seconds-between-states",
        type=float,
        default=30.0,
        help="after which a training can be gone on with",
    )
    command.add_argument(
        "--key", default="", help="of what it is made from; no state of another is gone on with"
    )
    command.add_argument(
        "--strategy",
        choices=("auto", "ddp", "fsdp"),
        default="auto",
        help="under torchrun: ddp, every rank holds the weights, or fsdp, a part of them; auto: ddp",
    )
    command.set_defaults(trains=True)  # looks for a request to end, and saves its state


# Each imports what it needs itself: `--help` and a wrong flag should not wait for torch.
def _pretrain(*, model: str, **values) -> None:
    from nest_model.commands import pretrain as train

    options = take_options(PretrainingOptions, values)

    def run(runtime: "Runtime", **more) -> None:
        preset = preset_for(model, gpu=runtime.fabric.device.type != "cpu")
        changes = {"position": None, **options.changes(preset)}
        train.pretrain_seeds(runtime=runtime, model=preset, **changes, **more)

    _train(run, options, **values)


def _finetune(*, pretraining_seeds: bool, **values) -> None:
    from nest_model.commands import finetune

    options = take_options(FineTuningOptions, values)
    run = partial(
        finetune.finetune_seeds,
        readout=options.readout,
        freeze=options.freeze or (),
        pretraining_seeds=pretraining_seeds,
    )
    _train(run, options, **values)


def _train(
    run: Callable[..., None],
    changed: Options,
    *,
    device: str,
    precision: str,
    threads: int,
    strategy: str,
    telemetry: Telemetry,
    stop: StopRequest,
    seconds_between_states: float,
    lower_row_budget: bool,
    row_budget: int | None,
    **options,
) -> None:
    from nest_model.training.device import launch_fabric
    from nest_model.training.runtime import Runtime

    fabric = launch_fabric(device, precision, threads=threads, strategy=strategy)
    run(
        runtime=Runtime(fabric, telemetry, stop, seconds_between_states, lower_row_budget),
        recipe={"epochs": changed.epochs, "learning_rate": changed.learning_rate, "row_budget": row_budget},
        **options,
    )


def _predict(*, device: str, precision: str, threads: int, seed: int, stop: StopRequest, **options) -> None:
    from nest_model.commands import predict
    from nest_model.training.device import launch_fabric

    predict.predict(fabric=launch_fabric(device, precision, threads=threads), **options)


def _next_set(*, device: str, precision: str, threads: int, seed: int, stop: StopRequest, **options) -> None:
    from nest_model.next_set import score
    from nest_model.training.device import launch_fabric

    score.score_next_sets(fabric=launch_fabric(device, precision, threads=threads), **options)


def _lightgbm(*, stop: StopRequest, telemetry: Telemetry, out: Path, predictions: Path, **options) -> None:
    from nest_model.baselines import lightgbm
    from nest_model.training.seeds import train_seeds

    seeds = options.pop("seeds")

    def train(seed: int, model: Path, file: Path, telemetry: Telemetry):
        return lightgbm.run(seed=seed, out=model, predictions=file, telemetry=telemetry, **options)

    train_seeds(train, seeds, out, predictions, telemetry, writes=True)


def _yardsticks(*, stop: StopRequest, **options) -> None:
    from nest_model.baselines import yardsticks

    yardsticks.run(**options)


def _removals(*, device: str, precision: str, threads: int, seed: int, stop: StopRequest, **options) -> None:
    from nest_model.commands import removals
    from nest_model.training.device import launch_fabric

    removals.run(fabric=launch_fabric(device, precision, threads=threads), **options)


def _audit(*, stop: StopRequest, **options) -> None:
    from nest_model.audit import audit

    audit.run(**options)


def _report(*, stop: StopRequest, telemetry: Telemetry, **options) -> None:
    from nest_model.report import write_report

    write_report(telemetry=telemetry, **options)


def _cohort_report(*, stop: StopRequest, telemetry: Telemetry, **options) -> None:
    from nest_model.report import write_cohort_report

    write_cohort_report(telemetry=telemetry, **options)

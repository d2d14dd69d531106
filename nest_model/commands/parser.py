"""The commands of `python -m nest_model` and their flags; each command imports its dependencies when it runs."""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nest_model.config import PRESETS
from nest_model.options import (
    FineTuningOptions,
    Options,
    PretrainingOptions,
    add_flags,
    preset_choice,
    preset_for,
    system_choice,
    take_options,
)
from nest_model.systems import systems
from nest_model.training.stop import StopRequest
from nest_model.training.telemetry import Telemetry
from schemas.errors import NestError
from schemas.loading import loading
from schemas.nouns import with_capital
from schemas.seeds import DEFAULT, read_seed, read_seeds

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from nest_model.training.device import Device, Precision, Scaling
    from nest_model.training.runtime import Runtime

T = TypeVar("T")

DESCRIPTION = (
    "Pretrain and fine-tune NEST, fit baselines, predict, audit labels for leaks, and write reports."
)


PATHS = {
    "boosted": "folder of the cohort's LightGBM model, whose settings the other boosters start from",
    "baskets": "folder of the baskets of products (`baskets/`)",
    "labels": "label table of the cohort (`labels.parquet`)",
    "model": "folder of the trained model",
    "out": "folder to write the outputs to",
    "predictions": "Parquet file to write the predictions to",
    "pretrained": "folder of the pretrained model",
    "root": "folder of the source, such as `data/mimic`",
    "seqset": "folder of the SeqSet shards",
    "years": "table of the real years of each patient's records (`subject_years.parquet`)",
    "subjects": "table of the patients and their splits (`subjects.parquet`)",
    "vocab": "vocabulary the shards were written with (`vocab.parquet`)",
}
DESTINATIONS = {"boosted": "lightgbm_model", "pretrained": "pretrained_model", "years": "subject_years"}
"""Parameters whose name differs from the flag's."""

SEED = "seed of every random draw"
SEED_WITH_DEFAULT = f"{SEED} (default: {DEFAULT})"
PRESET = "name of the preset the models were made with, shown on the page"


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands and their flags."""
    main_parser = argparse.ArgumentParser(prog="python -m nest_model", description=DESCRIPTION)
    commands = main_parser.add_subparsers(required=True, metavar="command")

    pretrain = _command(commands, "pretrain", _pretrain, "pretrain a model on SeqSet shards")
    _paths(pretrain, "seqset", "subjects", "vocab", "out")
    pretrain.add_argument(
        "--model",
        type=preset_choice,
        default="auto",
        metavar="{" + ",".join(("auto", *PRESETS)) + "}",
        help="preset of the model (default: auto, which is tiny on a CPU and paper on a GPU)",
    )
    pretrain.add_argument(
        "--system",
        type=system_choice,
        default="nest",
        metavar="{" + ",".join(systems()) + "}",
        help="encoder to pretrain with its own objective (default: nest)",
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
        help="initial weights of the encoder (default: pretrained); fresh: random weights drawn with the seed, as in "
        "the baseline without pretraining, which reads only the config and the measured items from --pretrained. "
        "NEST then has a larger learning rate with the presets tiny and small, but not for times to an event",
    )
    _seeds(finetune)
    finetune.add_argument(
        "--pretraining-seeds",
        action="store_true",
        help="start each further seed from the model pretrained with that seed, `seeds/SEED` below --pretrained",
    )
    _device(finetune)
    _training(finetune)

    _labelled_share(finetune)

    lightgbm = _command(commands, "lightgbm", _lightgbm, "fit LightGBM on counts of the same events")
    _paths(lightgbm, "labels", "seqset", "vocab", "out", "predictions")
    lightgbm.add_argument(
        "--counts",
        choices=("plain", "windows"),
        default="plain",
        help="counts to learn from; plain (the default): in the index set and in the history before it; windows: also "
        "up to 1, 7, 30, 365 and more days before the prediction, with rows drawn anew for each tree",
    )
    lightgbm.add_argument(
        "--key",
        default="",
        help="key of the inputs and code; of several seeds those fitted with another key are fitted again",
    )
    _seeds(lightgbm)

    _labelled_share(lightgbm)

    yardsticks = _command(commands, "yardsticks", _yardsticks, "fit the other baselines of a cohort")
    _paths(yardsticks, "labels", "seqset", "vocab", "pretrained", "boosted", "out", "predictions")
    yardsticks.add_argument(
        "--which",
        dest="yardstick_set",
        choices=("default", "all"),
        default="default",
        help="baselines to fit; default: the logistic regression; all: also LightGBM on NEST's context and on roll-ups",
    )
    yardsticks.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED_WITH_DEFAULT)

    removals = _command(
        commands,
        "removals",
        _removals,
        "measure what a fine-tuned model loses when events are removed from its input",
    )
    _paths(removals, "model", "labels", "seqset", "out")
    _device(removals)

    temporal = _command(
        commands, "temporal", _temporal, "train on patients of earlier years, to score those of later years"
    )
    _paths(temporal, "labels", "seqset", "vocab", "years", "pretrained", "boosted", "out", "predictions")
    temporal.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED_WITH_DEFAULT)
    _device(temporal)

    audit = _command(
        commands, "audit", _audit, "check whether the input of a cohort's models could reveal the outcome"
    )
    _paths(audit, "labels", "seqset", "vocab", "out")
    audit.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED_WITH_DEFAULT)

    predict = _command(commands, "predict", _predict, "score new patients with a fine-tuned model")
    _paths(predict, "model", "seqset")
    _output_file(predict, "predictions")
    predict.add_argument(
        "--index",
        type=Path,
        help="table of the stays to score, Parquet or CSV with subject_id, encounter_id and predict_at (default: each "
        "patient's last stay, at the task's prediction time)",
    )
    _device(predict)

    embed = _command(
        commands, "embed", _embed, "write vectors of patients or of their sets, as known at a moment"
    )
    _paths(embed, "model", "seqset")
    embed.add_argument(
        "--at",
        required=True,
        help="moment as of which everybody is read, such as 2150-01-31; or a table of such moments, Parquet or CSV "
        "with subject_id, predict_at and, if it has that column, encounter_id: without it a patient is read up to the "
        "last set begun by then",
    )
    embed.add_argument(
        "--level",
        choices=("patients", "sets"),
        default="patients",
        help="patients (the default): a row for each patient and moment; sets: a row for each of their sets",
    )
    _output_file(embed, "embeddings")
    _device(embed)

    _sweep_command(commands)

    few_shot = _command(
        commands, "few-shot", _few_shot, "score models of a yes-or-no task that learn from few labelled rows"
    )
    _paths(few_shot, "pretrained", "labels", "seqset", "vocab", "out")
    few_shot.add_argument(
        "--systems",
        type=_names,
        default=["frozen", "lightgbm", "logistic"],
        help="models, separated by commas: frozen (NEST, frozen), lightgbm, logistic, nest (NEST fine-tuned on every "
        "draw, which takes a training each) (default: frozen,lightgbm,logistic)",
    )
    few_shot.add_argument(
        "--shots",
        dest="shot_counts",
        type=lambda counts: [_count(count) for count in counts.split(",")],
        default=[1, 2, 4, 8, 16, 32, 64, 128],
        help="numbers of rows of either outcome, separated by commas (default: 1,2,4,8,16,32,64,128, and always all)",
    )
    few_shot.add_argument(
        "--draws", type=_count, default=5, help="number of draws for each number of rows (default: 5)"
    )
    few_shot.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED_WITH_DEFAULT)
    add_flags(few_shot.add_argument_group("fine-tuning of the system nest"), FineTuningOptions)
    _device(few_shot)

    compare = _command(
        commands,
        "compare",
        _compare,
        "compare runs: their settings, curves and scores, as text and as a page",
    )
    compare.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="folders of trained models")
    compare.add_argument(
        "--out", type=Path, default=Path("comparison"), help="folder of the page (default: comparison)"
    )

    _next_basket_command(commands)

    comparison = _command(
        commands,
        "next-basket-report",
        _next_basket_report,
        "compare systems that recommend next baskets on a page",
    )
    comparison.add_argument(
        "--systems", type=Path, required=True, help="folder with the output folder of each system"
    )
    comparison.add_argument(
        "--pretrained", type=Path, help="folder of the pretrained NEST, on which the page has a section"
    )
    _paths(comparison, "out")

    recommendation = _command(
        commands, "recommend", _recommend, "recommend next baskets to new users with a system that was scored"
    )
    recommendation.add_argument(
        "--scored",
        dest="scored_run",
        metavar="SCORED",
        type=Path,
        required=True,
        help="output folder of the system's next-basket run",
    )
    _paths(recommendation, "baskets", "subjects", "out")
    recommendation.add_argument(
        "--users", type=Path, help="baskets of the users to recommend to (default: all users of the shop)"
    )
    recommendation.add_argument(
        "--top", type=_count, default=10, help="number of products in each list (default: 10)"
    )
    _backbone(recommendation)
    _device(recommendation)

    report = _command(commands, "report", _report, "write a page on all models of some cohorts")
    _paths(report, "root", "out")
    report.add_argument(
        "--cohorts",
        type=_names,
        required=True,
        help="names of the cohorts, separated by commas",
    )
    report.add_argument("--preset", required=True, help=PRESET)
    _titles(report)
    report.add_argument(
        "--thresholds",
        type=_probabilities_by_cohort,
        default={},
        metavar="JSON",
        help='probabilities from which the pages of cohorts count alerts, such as {"my_cohort": [0.1, 0.2]}: the page '
        "on all cohorts counts at the same (default: chosen on validation patients)",
    )

    evidence = _command(
        commands, "evidence", _evidence, "write a page on the paper's systems and ablations on some cohorts"
    )
    _paths(evidence, "root", "out")
    evidence.add_argument(
        "--rows", type=_names, required=True, help="names of the rows of the table, separated by commas"
    )
    evidence.add_argument(
        "--tasks",
        type=_names,
        default=[],
        help="names of the cohorts, separated by commas; none: rows that need no cohort",
    )

    cohort_report = _command(
        commands, "cohort-report", _cohort_report, "write a page on the models of one cohort"
    )
    _paths(cohort_report, "root", "out")
    cohort_report.add_argument("--cohort", required=True, help="name of the cohort")
    cohort_report.add_argument("--preset", required=True, help=PRESET)
    _titles(cohort_report)
    cohort_report.add_argument(
        "--thresholds",
        type=_probabilities,
        default=(),
        metavar="P,P,…",
        help="probabilities from which to count alerts (default: chosen on validation patients)",
    )
    cohort_report.add_argument(
        "--further",
        nargs="+",
        type=Path,
        default=(),
        metavar="MODEL",
        help="folders of more models of the cohort, with rows in the tables of scores, thresholds and subgroups",
    )
    return main_parser


def _titles(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--titles",
        type=json.loads,
        default={},
        metavar="JSON",
        help='titles of cohorts, such as {"my_cohort": "My cohort"} (default: made from their names)',
    )


def _sweep_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _command(
        commands, "sweep", _sweep, "train at every point of a grid and name the best on validation"
    )
    command.add_argument(
        "--grid",
        required=True,
        help="options and their values, such as 'learning_rate=3e-4,1e-3 layers=2,3': every combination is a point",
    )
    command.add_argument(
        "--set",
        dest="common_options",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="option that all points have; several are separated by spaces, and the flag may be repeated",
    )
    _paths(command, "seqset", "out")
    for name, text in (
        (
            "pretrained",
            "with --labels: a grid of fine-tunings, judged by their validation AP, a number or time by the loss",
        ),
        ("labels", "with --pretrained"),
        ("subjects", "with --vocab: a grid of pretrainings, judged by their validation loss"),
        ("vocab", "with --subjects"),
    ):
        command.add_argument(
            f"--{name}",
            dest=DESTINATIONS.get(name),
            metavar=name.upper(),
            type=Path,
            help=f"{PATHS[name]}; {text}",
        )
    command.add_argument(
        "--model", type=preset_choice, help="preset of a grid of pretrainings (default: auto)"
    )
    command.add_argument("--seed", type=_seed, default=DEFAULT, help=SEED_WITH_DEFAULT)
    _device(command)
    _training(command)


def _next_basket_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = _command(
        commands, "next-basket", _next_basket, "tune, fit and score a system that recommends next baskets"
    )
    command.add_argument("--system", required=True, help="name of the system; a wrong one prints all names")
    command.add_argument(
        "--option",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="fix an option of the system, which tuning then leaves alone; may be given several times",
    )
    _paths(command, "baskets", "subjects", "out")
    _next_basket_questions(command)
    command.add_argument(
        "--points",
        type=_count,
        default=20,
        help="number of points of the search on the validation users (default: 20); 1, and always by --protocol "
        "published: the defaults, untuned",
    )
    command.add_argument(
        "--training-users",
        type=_count_or_zero,
        help="most training users to learn from, drawn at random; 0: all (default: as many as the system bears on two "
        "cores)",
    )
    _backbone(command)
    command.add_argument(
        "--key",
        help="key of the code; what a run of another key kept is removed (default: a hash of the code)",
    )
    _seeds(command)
    _device(command)


def _backbone(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--pretrained",
        dest=DESTINATIONS["pretrained"],
        metavar="PRETRAINED",
        type=Path,
        help=f"{PATHS['pretrained']}; needed by the systems that start from NEST",
    )
    command.add_argument("--vocab", type=Path, help=f"{PATHS['vocab']}; needed with --pretrained")


def _next_basket_questions(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--target",
        choices=("last_visible", "held_out"),
        default="last_visible",
        help="basket of each test user to predict (default: last_visible)",
    )
    command.add_argument(
        "--raw", type=Path, help="folder of the `held_out` file; needed for --target held_out"
    )
    command.add_argument(
        "--protocol",
        choices=("official", "published"),
        default="official",
        help="official (the default): tune on validation users; published: as earlier studies, without tuning, every "
        "user's last order in no history, and all histories to learn from",
    )
    command.add_argument(
        "--query-time",
        choices=("given", "expected"),
        default="given",
        help="day of the basket asked for: given (the default) by the data, or expected from the user's median gap",
    )


def _names(text: str) -> list[str]:
    """Return the names in a list with commas; an empty text has none."""
    return [name for name in text.split(",") if name]


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    run: Callable[..., None],
    text: str,
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=f"{with_capital(text)}.")
    command.set_defaults(run=run)
    command.add_argument("--die-with-parent", action="store_true", help=argparse.SUPPRESS)
    command.add_argument("--synthetic", action="store_true", help=argparse.SUPPRESS)  # withholds no count
    return command


def _output_file(command: argparse.ArgumentParser, contract: str) -> None:
    command.add_argument("--out", type=Path, required=True, help=f"Parquet file to write the {contract} to")
    command.set_defaults(out_contract=contract)


def _paths(command: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        command.add_argument(
            f"--{name}",
            dest=DESTINATIONS.get(name),
            metavar=name.upper(),
            type=Path,
            required=True,
            help=PATHS[name],
        )


def _seeds(command: argparse.ArgumentParser) -> None:
    command.add_argument("--seed", type=_seed, help=f"{SEED} (default: {DEFAULT}, or the first of --seeds)")
    command.add_argument(
        "--seeds",
        type=_seed_list,
        metavar="SEED,SEED,…",
        help="seeds to train one model each with, such as 42,123; the first model is written to --out, the others to "
        "`seeds/SEED` below it",
    )


def _labelled_share(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--labelled-share",
        type=_share,
        default=1.0,
        help="share of the training and validation patients whose labels are used, drawn with the seed (default: 1); "
        "under 1 LightGBM may make smaller leaves",
    )


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no share above 0 and up to 1")
    return share


def _probabilities(text: str) -> tuple[float, ...]:
    try:
        values = tuple(float(word) for word in text.split(","))
    except ValueError:
        values = (0.0,)
    if not all(0 < value < 1 for value in values):
        raise argparse.ArgumentTypeError(f"'{text}' are no probabilities above 0 and below 1")
    return values


def _probabilities_by_cohort(text: str) -> dict[str, tuple[float, ...]]:
    try:
        lists = json.loads(text).items()
        return {cohort: _probabilities(",".join(map(str, values))) for cohort, values in lists}
    except (ValueError, AttributeError, TypeError):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no JSON of lists of probabilities by cohort, such as {{\"my_cohort\": [0.1, 0.2]}}"
        ) from None


def _count(text: str) -> int:
    return _whole_number(text, least=1)


def _count_or_zero(text: str) -> int:
    return _whole_number(text, least=0)


def _whole_number(text: str, *, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise argparse.ArgumentTypeError(f"'{text}' is no whole number of {least} or more")
    return int(text)


def _seed(text: str) -> int:
    return _parse_argument(read_seed, text)


def _seed_list(text: str) -> tuple[int, ...]:
    return _parse_argument(read_seeds, text)


def _parse_argument(read: Callable[[str], T], text: str) -> T:
    try:
        return read(text)
    except NestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _device(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="device to run on (default: auto, which is a GPU if there is one)",
    )
    command.add_argument(
        "--precision",
        choices=("auto", "32-true", "bf16-mixed", "16-mixed"),
        default="auto",
        help="numerical precision (default: auto, the best the device supports)",
    )
    command.add_argument(
        "--threads",
        type=int,
        default=2,
        help="number of CPU threads (default: 2); results are repeatable with the same number",
    )


def _training(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--row-budget",
        type=int,
        help="number of rows in a micro-batch, which affects memory but not the result (default: the recipe's, on a "
        "GPU eight times as many)",
    )
    command.add_argument(
        "--lower-row-budget", action="store_true", help="halve --row-budget and continue when memory runs out"
    )
    command.add_argument(
        "--seconds-between-states",
        type=float,
        default=30.0,
        help="number of seconds between saved training states (default: 30)",
    )
    command.add_argument(
        "--key", default="", help="key of the inputs and code; saved states with another key are ignored"
    )
    command.add_argument(
        "--strategy",
        choices=("auto", "ddp", "fsdp"),
        default="auto",
        help="distribution of the weights under torchrun; ddp: every rank holds all; fsdp: every rank holds a part "
        "(default: auto, which is ddp)",
    )
    command.set_defaults(trains=True)  # it saves its state when asked to stop


# Each function imports its dependencies itself: `--help` and a wrong flag should not wait for torch.
def _pretrain(*, model: str, system: str, **values: Any) -> None:
    with loading():
        from nest_model.commands import pretrain as train

    options = take_options(PretrainingOptions, values)

    def run(runtime: "Runtime", **arguments: Any) -> None:
        preset = preset_for(model, gpu=runtime.fabric.device.type != "cpu")
        changes = {"position": None, **options.changes(preset, system)}
        train.pretrain_seeds(
            runtime=runtime,
            model=preset,
            system=system,
            **options.of_data,
            **changes,
            **arguments,
        )

    _train(run, options, **values)


def _finetune(*, pretraining_seeds: bool, **values: Any) -> None:
    with loading():
        from nest_model.commands import finetune

    options = take_options(FineTuningOptions, values)
    run = partial(
        finetune.finetune_seeds,
        readout=options.readout,
        freeze=options.freeze or (),
        shuffle_sets=bool(options.shuffle_sets),
        context=options.context,
        pretraining_seeds=pretraining_seeds,
    )
    _train(run, options, **values)


def _train(
    run: Callable[..., None],
    training_options: Options,
    *,
    device: "Device",
    precision: "Precision",
    threads: int,
    strategy: "Scaling",
    telemetry: Telemetry,
    stop: StopRequest,
    seconds_between_states: float,
    lower_row_budget: bool,
    row_budget: int | None,
    **options: Any,
) -> None:
    with loading():
        from nest_model.training.device import launch_fabric
        from nest_model.training.runtime import Runtime

    fabric = launch_fabric(device, precision, threads=threads, strategy=strategy)
    run(
        runtime=Runtime(fabric, telemetry, stop, seconds_between_states, lower_row_budget),
        recipe=training_options.recipe | {"row_budget": row_budget},
        **options,
    )


def _predict(
    *, device: "Device", precision: "Precision", threads: int, stop: StopRequest, **options: Any
) -> None:
    with loading():
        from nest_model.commands import predict
        from nest_model.training.device import launch_fabric

    predict.predict(fabric=launch_fabric(device, precision, threads=threads), **options)


def _embed(
    *, device: "Device", precision: "Precision", threads: int, stop: StopRequest, **options: Any
) -> None:
    from nest_model.commands import embed
    from nest_model.training.device import launch_fabric

    embed.run(fabric=launch_fabric(device, precision, threads=threads), **options)


def _sweep(*, common_options: list[str], model: str | None, **values: Any) -> None:
    from nest_model.commands import sweep

    of_finetuning = {name: values.pop(name) for name in ("pretrained_model", "labels")}
    of_pretraining = {name: values.pop(name) for name in ("subjects", "vocab")}
    is_finetuning, is_pretraining = (all(paths.values()) for paths in (of_finetuning, of_pretraining))
    if is_finetuning == is_pretraining or any((of_pretraining if is_finetuning else of_finetuning).values()):
        raise NestError(
            "sweep needs either --pretrained and --labels, for fine-tunings, or --subjects and --vocab, for "
            "pretrainings."
        )
    if is_finetuning and model:
        raise NestError(
            "--model is the preset of pretrainings; fine-tunings have that of --pretrained, so leave --model out."
        )

    def run(**arguments: Any) -> None:
        arguments |= {"common_options": " ".join(common_options)} | (
            of_finetuning if is_finetuning else of_pretraining
        )
        sys.stdout.write(
            sweep.sweep_finetunings(**arguments)
            if is_finetuning
            else sweep.sweep_pretrainings(model=model or "auto", **arguments)
        )

    _train(run, Options(), **values)


def _few_shot(
    *, device: "Device", precision: "Precision", threads: int, stop: StopRequest, **options: Any
) -> None:
    from nest_model.commands.finetune import finetune
    from nest_model.few_shot import curve
    from nest_model.training.device import launch_fabric
    from nest_model.training.runtime import Runtime

    fabric = launch_fabric(device, precision, threads=threads)
    training = take_options(FineTuningOptions, options)
    if "nest" not in options["systems"] and training != FineTuningOptions():
        raise NestError(
            "options of a fine-tuning have no effect without the system nest, the only one that is fine-tuned; add it "
            "to --systems, or leave them out."
        )

    def finetune_draw(labels: Path, model: Path, predictions: Path) -> None:
        names = ("pretrained_model", "seqset", "seed")
        finetune(
            **{name: options[name] for name in names},
            labels=labels,
            out=model,
            predictions=predictions,
            runtime=Runtime(fabric, options["telemetry"].with_curves_in(model), stop, lower_row_budget=True),
            recipe=training.recipe,
            readout=training.readout,
            freeze=training.freeze or (),
            shuffle_sets=bool(training.shuffle_sets),
            context=training.context,
            skip_finished=True,
        )

    curve.run(fabric=fabric, finetune=finetune_draw, **options)


def _compare(*, stop: StopRequest, **options: Any) -> None:
    from nest_model.comparison.command import run

    sys.stdout.write(run(**options))


def _next_basket(*, system: str, stop: StopRequest, **options: Any) -> None:
    from nest_model.next_set.run import run

    _with_lazy_fabric(partial(run, name=system), **options)


def _recommend(*, stop: StopRequest, **options: Any) -> None:
    from nest_model.next_set.recommend import recommend

    _with_lazy_fabric(recommend, **options)


def _with_lazy_fabric(
    run: Callable[..., None], *, device: "Device", precision: "Precision", threads: int, **options: Any
) -> None:
    """Run a command that loads torch only if it calls `fabric`."""
    from threadpoolctl import threadpool_limits

    def fabric() -> "Fabric":
        from nest_model.training.device import launch_fabric

        return launch_fabric(device, precision, threads=threads)

    with threadpool_limits(1, user_api="blas"):  # small products, for which several threads only spin
        run(fabric=fabric, **options)


def _next_basket_report(*, stop: StopRequest, **options: Any) -> None:
    from nest_model.next_set.report import write_next_basket_report

    write_next_basket_report(**options)


def _lightgbm(
    *, stop: StopRequest, telemetry: Telemetry, out: Path, predictions: Path, **options: Any
) -> None:
    with loading():
        from nest_model.baselines import lightgbm
        from nest_model.training.seeds import list_other_seeds, train_seeds

    seeds = options.pop("seeds")
    skip_finished = len(seeds) > 1 or bool(list_other_seeds(out))

    def train(seed: int, model: Path, file: Path, telemetry: Telemetry) -> dict[str, float | None] | None:
        return lightgbm.run(
            seed=seed,
            out=model,
            predictions=file,
            telemetry=telemetry,
            skip_finished=skip_finished,
            **options,
        )

    train_seeds(train, seeds, out, predictions, telemetry, writes=True)


def _yardsticks(*, stop: StopRequest, **options: Any) -> None:
    with loading():
        from nest_model.baselines import yardsticks

    yardsticks.run(**options)


def _removals(
    *, device: "Device", precision: "Precision", threads: int, stop: StopRequest, **options: Any
) -> None:
    with loading():
        from nest_model.commands import removals
        from nest_model.training.device import launch_fabric

    removals.run(fabric=launch_fabric(device, precision, threads=threads), **options)


def _temporal(
    *, device: "Device", precision: "Precision", threads: int, stop: StopRequest, **options: Any
) -> None:
    from nest_model.commands import temporal
    from nest_model.training.device import launch_fabric

    temporal.run(fabric=launch_fabric(device, precision, threads=threads), **options)


def _audit(*, stop: StopRequest, **options: Any) -> None:
    from nest_model.audit import audit

    audit.run(**options)


def _report(*, stop: StopRequest, telemetry: Telemetry, **options: Any) -> None:
    from nest_model.report import write_report

    write_report(telemetry=telemetry, **options)


def _cohort_report(*, stop: StopRequest, telemetry: Telemetry, further: list[Path], **options: Any) -> None:
    from nest_model.comparison.run_folders import predictions_by_name
    from nest_model.report import write_cohort_report

    write_cohort_report(telemetry=telemetry, further_models=predictions_by_name(further), **options)


def _evidence(*, stop: StopRequest, telemetry: Telemetry, **options: Any) -> None:
    from nest_model.evidence.report import write_evidence

    write_evidence(telemetry=telemetry, **options)

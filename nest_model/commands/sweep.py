"""The `sweep` command: one training for each point of a small grid, and the best by the validation patients alone.

A point is a model's folder like any other, named by its values. A killed sweep goes on with the same command: finished
points are skipped, by the rule of several seeds, and the point that was being trained continues from its saved state.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from nest_model.commands.finetune import finetune
from nest_model.commands.pretrain import pretrain
from nest_model.comparison.compare import compare
from nest_model.comparison.page import render
from nest_model.comparison.run_folders import Run, read_runs
from nest_model.data.labels import Labels, is_validation_disclosable, untrainable_reason
from nest_model.options import FineTuningOptions, Options, PretrainingOptions, preset_for
from nest_model.training.runtime import Runtime
from nest_model.training.trainer import NotFiniteError
from schemas.errors import InputError, NestError
from schemas.io.outputs import claim, remove_outputs, write_json, write_text
from schemas.markdown import markdown_table
from schemas.suppress import SMALLEST_SHOWN, shown_fraction
from schemas.tables.labels import WITHOUT_CLASSES

log = logging.getLogger("nest")

MOST_POINTS = 100
SEVERAL_NUMBERS = ("rate_factors", "thinning", "freeze")
OF_THE_LOSS = frozenset(
    {
        "mlm_weight",
        "msm_weight",
        "own_set_weight",
        "token_mask_share",
        "set_mask_share",
        "max_sets",
        "max_set_rows",
    }
    | {"max_rows", "leave_out_last_set", "patient_share", "visit_types"}
)
"""Options that change what a pretraining guesses, or on whom: losses of two values do not compare."""


@dataclass(frozen=True)
class GridPoint:
    """One point of a grid: its values as text, and the options of its training."""

    values: Mapping[str, str]
    options: Options

    @property
    def name(self) -> str:
        """Its folder's name."""
        return ",".join(f"{name}={value}" for name, value in self.values.items())


def points_of(grid: str, common_options: str, kind: type[Options]) -> list[GridPoint]:
    """Return every combination of a grid's values.

    Args:
        grid: `name=value,value` pairs separated by spaces.
        common_options: those that all points have.

    Raises:
        NestError: a name is no option, or has no value or the same one twice; or there are too many points.
    """
    axes: dict[str, list[str]] = {}
    for part in grid.split():
        name, equals, text = part.partition("=")
        values = text.split(",")
        if not (name and equals and all(values)) or len(set(values)) < len(values) or name in axes:
            raise NestError(
                f"grid: '{name}' needs values, each once, as in learning_rate=3e-4,1e-3; names are separated by spaces."
            )
        if name in SEVERAL_NUMBERS:
            raise NestError(f"grid: {name} is itself a list; set it for all points with --set.")
        axes[name] = values
    combinations = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    if not 2 <= len(combinations) <= MOST_POINTS:
        raise NestError(f"grid: it has {len(combinations):,} points; a sweep takes 2 to {MOST_POINTS}.")
    return [
        GridPoint(
            point,
            kind.from_text(
                f"{' '.join(f'{name}={value}' for name, value in point.items())} {common_options}"
            ),
        )
        for point in combinations
    ]


def sweep_pretrainings(
    *,
    grid: str,
    common_options: str,
    seqset: Path,
    subjects: Path,
    vocab: Path,
    model: str,
    out: Path,
    seed: int,
    key: str,
    recipe: Mapping[str, Any],
    runtime: Runtime,
) -> str:
    """Pretrain at every point of a grid; the best has the smallest validation loss. See `_sweep`."""
    points = points_of(grid, common_options, PretrainingOptions)
    if incomparable := sorted(OF_THE_LOSS & set(points[0].values)):
        raise NestError(
            f"grid: {', '.join(incomparable)} changes what is guessed, so the losses do not compare; pretrain each "
            "by itself and compare fine-tuned models."
        )
    preset = preset_for(model, gpu=runtime.fabric.device.type != "cpu")
    changes = {}
    for point in points:
        assert isinstance(point.options, PretrainingOptions)
        # contradictions show before the first training
        changes[point.name] = point.options.changes(preset) | point.options.of_data

    def train(point: GridPoint, folder: Path) -> None:
        pretrain(
            seqset=seqset, subjects=subjects, vocab=vocab, out=folder, model=preset, position=None, seed=seed,
            runtime=_runtime(runtime, folder), recipe={**recipe, **point.options.recipe}, key=key,
            skip_finished=True, **changes[point.name],
        )  # fmt: skip

    return _sweep(points, out, train, metric="val_loss", smaller_is_better=True, runtime=runtime)


def sweep_finetunings(
    *,
    grid: str,
    common_options: str,
    seqset: Path,
    pretrained_model: Path,
    labels: Path,
    out: Path,
    seed: int,
    key: str,
    recipe: Mapping[str, Any],
    runtime: Runtime,
) -> str:
    """Fine-tune at every point of a grid; the best has the greatest validation AP. See `_sweep`.

    Of a number or a time it has the smallest validation loss.
    """
    points = points_of(grid, common_options, FineTuningOptions)
    table = Labels.read(labels)
    if reason := untrainable_reason(table):
        raise InputError(f"{labels}: these labels cannot be learnt at any point: {reason}.")
    if not is_validation_disclosable(table):
        raise InputError(
            f"{labels}: too few patients validate, so that the score of every point is withheld, and none can be shown "
            f"to be the best; take more, so that {_enough(table.task.label_type)}. A learning rate alone can be "
            "searched with rate_factors, whose choice shows no score."
        )
    by_loss = table.task.label_type in WITHOUT_CLASSES

    def train(point: GridPoint, folder: Path) -> None:
        options = point.options
        assert isinstance(options, FineTuningOptions)
        finetune(
            pretrained_model=pretrained_model, labels=labels, seqset=seqset, out=folder,
            predictions=folder / "predictions" / "predictions.parquet", seed=seed,
            runtime=_runtime(runtime, folder), recipe={**recipe, **options.recipe}, key=key,
            readout=options.readout, freeze=options.freeze or (), shuffle_sets=bool(options.shuffle_sets),
            context=options.context, skip_finished=True,
        )  # fmt: skip

    return _sweep(
        points,
        out,
        train,
        metric="val_loss" if by_loss else "val_average_precision",
        smaller_is_better=by_loss,
        runtime=runtime,
    )


def _runtime(runtime: Runtime, folder: Path) -> Runtime:
    return replace(runtime, telemetry=runtime.telemetry.with_curves_in(folder))


def _sweep(
    points: list[GridPoint],
    out: Path,
    train: Callable[[GridPoint, Path], None],
    *,
    metric: str,
    smaller_is_better: bool,
    runtime: Runtime,
) -> str:
    """Train every point, write `out`/sweep.json and sweep.html, and return the table as text.

    A point whose loss is not finite has no score. Test scores are shown of no point, so that none is chosen by them.

    Raises:
        InputError: the score of a point is withheld. Points share their patients, so it is the first finite one.
        NestError: no point has a finite loss.
    """
    if runtime.fabric.world_size > 1:
        raise NestError("a sweep runs in one process; run its points yourself to train each with torchrun.")
    remove_outputs(out / "sweep.json", out / "sweep.html")  # they would name a best of earlier points
    runs: dict[str, Run] = {}
    failures: dict[str, str] = {}
    for number, point in enumerate(points, start=1):
        folder = out / "points" / point.name
        log.info("point %d of %d: %s", number, len(points), point.name)
        claim(folder)
        try:
            train(point, folder)
        except NotFiniteError as error:
            failures[point.name] = str(error)
            continue
        runs[point.name] = read_runs([folder], least=1)[0]
        if metric not in runs[point.name].validation:
            raise InputError(
                f"{out}: under {SMALLEST_SHOWN} subjects validate, so that {metric} is withheld of every point, and "
                "none can be shown to be the best; take more subjects. A learning rate alone can be searched with "
                "rate_factors, whose choice shows no score."
            )
    if not runs:
        raise NestError(f"{out}: the loss of no point was finite; take smaller learning rates.")
    scores = {name: run.validation[metric] for name, run in runs.items()}
    shown = {name: shown_fraction(score) for name, score in scores.items()}
    # the first on ties
    best = (min if smaller_is_better else max)(scores, key=scores.__getitem__)
    rows = [
        {
            **point.values,
            metric: "the loss was not finite" if point.name in failures else f"{scores[point.name]:.4f}",
            "": _mark(point, best),
        }
        for point in points
    ]
    comparison = compare([replace(run, predictions=None) for run in runs.values()])
    write_text(out / "sweep.html", render(comparison | {"points": rows}))
    best_folder = str(Path("points") / best)
    write_json(
        out / "sweep.json", {"metric": metric, "best": best_folder, "scores": shown, "failures": failures}
    )
    runtime.telemetry.result({metric: scores[best]}, best=best)
    return f"{markdown_table(rows)}\n\nThe best by {metric} on validation patients: {out / best_folder}\n"


def _enough(label_type: str) -> str:
    """Return which validation patients it takes for a score, see `is_validation_disclosable`."""
    if label_type == "number":
        return f"{SMALLEST_SHOWN} have a number"
    outcome = {"bool": "the outcome", "time": "the event"}.get(label_type, "some class")
    return f"{SMALLEST_SHOWN} have {outcome} and {SMALLEST_SHOWN} do not"


def _mark(point: GridPoint, best: str) -> str:
    return "best" if point.name == best else ""

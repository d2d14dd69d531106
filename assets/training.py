"""Pretraining, and for each cohort a fine-tuned NEST, the LightGBM yardstick, and the report over all."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from assets.child import run_nest_model
from assets.materialize import column_schema, content_version, pictures_metadata, plainly
from assets.resources import Workspace

MODELS = {"owners": ["team:research"]}


def pretrained(source: str) -> dg.AssetsDefinition:
    """Return the asset `<source>_nest`: NEST pretrained on the shards of a source."""

    @dg.asset(
        name=f"{source}_nest",
        deps=[f"{source}_{table}" for table in ("subjects", "vocab", "seqset")],
        group_name=f"{source}_models",
        kinds={"pytorch"},
        description=(
            "NEST pretrained on the training patients (MLM + MSM), stopped early on the validation patients."
        ),
        **MODELS,
    )
    @plainly
    def nest(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        from nest_model import pictures  # matplotlib: only where it draws

        layout, settings = workspace.layout(source), workspace.settings
        out = layout.model(f"{source}_nest")
        arguments = ["--seqset", layout.seqset, "--subjects", layout.subjects, "--vocab", layout.vocab]
        arguments += ["--model", settings.model, "--position", settings.rules.cse_position]
        arguments += ["--seed", str(settings.seed)]
        result = run_nest_model(context, pipes, out, "pretrain", *arguments)
        return dg.MaterializeResult(
            metadata={**numbers(result), **pictures_metadata(pictures.of_training(out))},
            data_version=content_version([out / "model.safetensors"]),
        )

    return nest


def fine_tuned(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_nest`: NEST fine-tuned on the cohort's labels."""

    @dg.asset(
        name=f"{cohort}_nest",
        deps=[f"{source}_nest", f"{cohort}_labels"],
        group_name=f"{source}_models",
        kinds={"pytorch"},
        description=f"NEST fine-tuned on the labels of {cohort}, with predictions for every split.",
        **MODELS,
    )
    @plainly
    def nest(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        layout = workspace.layout(source)
        arguments = ["--pretrained", layout.model(f"{source}_nest"), "--threads", "1"]  # two run side by side
        return _task_model(context, workspace, pipes, "finetune", source, cohort, "nest", arguments)

    return nest


def lightgbm(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_lightgbm`: the honest yardstick on counts."""

    @dg.asset(
        name=f"{cohort}_lightgbm",
        deps=[f"{source}_seqset", f"{source}_vocab", f"{cohort}_labels"],
        group_name=f"{source}_models",
        kinds={"lightgbm"},
        description=f"LightGBM on token counts for {cohort}: the same patients, the same cut, tuned on validation.",
        **MODELS,
    )
    @plainly
    def boosted(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        arguments = ["--vocab", workspace.layout(source).vocab]
        return _task_model(context, workspace, pipes, "lightgbm", source, cohort, "lightgbm", arguments)

    return boosted


def report(source: str, cohorts: list[str]) -> dg.AssetsDefinition:
    """Return the asset `<source>_report` over the models of these cohorts."""

    @dg.asset(
        name=f"{source}_report",
        deps=[f"{cohort}_{model}" for cohort in cohorts for model in ("nest", "lightgbm")],
        group_name=f"{source}_report",
        kinds={"html"},
        description=(
            "One self-contained page and `metrics.json`: every model, every metric with its interval, the data card."
        ),
        owners=["team:research"],
    )
    @plainly
    def page(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        from nest_model import pictures  # matplotlib: only where it draws

        layout, settings = workspace.layout(source), workspace.settings
        out = layout.report(source)
        arguments = ["--root", layout.root, "--cohorts", ",".join(cohorts), "--preset", settings.preset]
        result = run_nest_model(context, pipes, out, "report", *arguments)
        return dg.MaterializeResult(
            metadata={
                "report": dg.MetadataValue.path(out / "report.html"),
                **pictures_metadata(pictures.of_report(out)),
                **numbers(result),
            },
            data_version=content_version([out / "metrics.json"]),
        )

    return page


def written(predictions: Path) -> dict[str, Any]:
    """Return where the predictions lie and what columns they have; how many they are, the labels tell."""
    if not predictions.exists():
        return {}
    return {
        "dagster/uri": predictions.as_uri(),
        "dagster/column_schema": column_schema(pq.read_schema(predictions)),
    }


def outcome(event: dict) -> dict[str, dg.MetadataValue]:
    """Return what came of a task's model: its numbers, or why there is none."""
    reason = event.get("reason")
    return {"not_trainable": dg.MetadataValue.text(reason)} if reason else numbers(event)


def numbers(event: dict) -> dict[str, dg.MetadataValue]:
    """Return the numbers of a result as metadata."""
    return {
        name: dg.MetadataValue.float(float(value))
        for name, value in event.get("metrics", {}).items()
        if isinstance(value, int | float)
    }


def _task_model(
    context: dg.AssetExecutionContext,
    workspace: Workspace,
    pipes: dg.PipesSubprocessClient,
    command: str,
    source: str,
    cohort: str,
    model: str,
    arguments: list,
) -> dg.MaterializeResult:
    from nest_model import pictures  # matplotlib: only where it draws

    layout = workspace.layout(source)
    name = f"{cohort}_{model}"
    predictions = layout.report(name) / "predictions.parquet"
    arguments += ["--labels", layout.labels(cohort), "--seqset", layout.seqset, "--predictions", predictions]
    arguments += ["--seed", str(workspace.settings.seed)]
    out = layout.model(name)
    result = run_nest_model(context, pipes, out, command, *arguments)
    drawn = {**pictures.of_training(out), **pictures.of_predictions(predictions, model)}
    return dg.MaterializeResult(
        metadata={**outcome(result), **pictures_metadata(drawn), **written(predictions)},
        data_version=content_version([predictions] if predictions.exists() else []),
    )

"""Pretraining, for each cohort a fine-tuned NEST, the yardsticks and a page, and the report over all."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from assets.metadata import column_schema, pictures_metadata
from assets.resources import Workspace, has_gpu
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import plainly
from assets.runtime.step_cache import key_of, once
from nest_model.data.predictions import WITHOUT_PRETRAINING, of_yardstick
from nest_model.options import FineTuningOptions, PretrainingOptions
from nest_model.training.guesses import table as guesses
from nest_model.training.guesses.judgement import Judgement
from schemas.cards import OF_A_COHORT, StepCard
from schemas.layout import Layout
from schemas.markdown import markdown_table
from schemas.settings import Settings
from schemas.sources import sources
from schemas.tables.leak_audit import LeakAudit

MODELS = {"owners": ["team:research"]}
COMMAND = "nest_model.commands.parser"


def pretrained(source: str, model: Mapping[str, Any] | None = None) -> dg.AssetsDefinition:
    """Return the asset `<source>_nest`: NEST pretrained on the shards of a source.

    Args:
        source: whose shards.
        model: flags of the command beside the settings' own, for sets that are not stays.
    """

    @dg.asset(
        name=f"{source}_nest",
        deps=[f"{source}_{table}" for table in ("subjects", "vocab", "seqset")],
        group_name=f"{source}_models",
        kinds={"pytorch"},
        code_version=code_version(
            "nest_model.commands.pretrain", "nest_model.training.device", started_by=COMMAND
        ),
        description=(
            "NEST pretrained on the training subjects (MLM + MSM), stopped early on the validation subjects."
        ),
        **MODELS,
    )
    @plainly
    def nest(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        from nest_model.report import previews

        layout, settings = workspace.layout(source), workspace.settings
        out = layout.model(f"{source}_nest")
        options = {"model": settings.model, "seed": settings.seed}
        if settings.rules.cse_position is not None:
            options["position"] = settings.rules.cse_position
        options |= (
            {"threads": 2} | dict(model or {}) | PretrainingOptions.from_text(settings.pretraining).flags()
        )
        gpu = {"gpu": settings.model == "auto" and has_gpu()}
        paths = {"seqset": layout.seqset, "subjects": layout.subjects, "vocab": layout.vocab}
        key = {"key": key_of(layout, options | gpu)}  # whichever seeds there are beside this one
        if settings.pretraining_seeds:
            options |= several_seeds(settings)
        reads = options | gpu

        def make() -> StepCard:
            return model_card(run_nest_model(context, pipes, out, "pretrain", *flags(options | paths | key)))

        card = once(layout, [out], reads, make)
        return dg.MaterializeResult(
            metadata={
                **numbers(card),
                "beside_guesses": beside_guesses(out),
                **pictures_metadata(previews.of_training(out)),
                **described(out),
            },
            data_version=dg.DataVersion(card.version),
        )

    return nest


def beside_guesses(model: Path) -> dg.MetadataValue:
    """Return a pretraining's validation beside the guesses it is held against, as the UI shows it."""
    judgement = Judgement.read(model)
    return dg.MetadataValue.md(markdown_table(guesses.rows(judgement.validation, judgement.yardsticks)))


def fine_tuned(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_nest`: NEST fine-tuned on the cohort's labels."""

    @dg.asset(
        name=f"{cohort}_nest",
        deps=[f"{source}_seqset", f"{source}_nest", f"{cohort}_labels"],
        group_name=f"{source}_models",
        kinds={"pytorch"},
        code_version=code_version(
            "nest_model.commands.finetune", "nest_model.training.device", started_by=COMMAND
        ),
        description=f"NEST fine-tuned on the labels of {cohort}, with predictions for every split.",
        **MODELS,
    )
    @plainly
    def nest(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        layout, settings = workspace.layout(source), workspace.settings
        options = {"seed": settings.seed, "threads": 1}  # two run side by side
        options |= FineTuningOptions.from_text(settings.finetuning).flags()
        # whichever seeds there are beside this one; a training knows its pretrained weights itself
        key = key_of(layout, options, but=("nest",))
        paths = {"pretrained": layout.model(f"{source}_nest"), "key": key}
        options |= several_seeds(settings)
        if settings.pretraining_seeds:
            options["pretraining-seeds"] = True
        return _task_model(context, pipes, layout, "finetune", cohort, "nest", options, paths)

    return nest


def lightgbm(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_lightgbm`: the honest yardstick on counts."""

    @dg.asset(
        name=f"{cohort}_lightgbm",
        kinds={"lightgbm"},
        code_version=code_version("nest_model.baselines.lightgbm", started_by=COMMAND),
        description=f"LightGBM on token counts for {cohort}: the same patients, the same cut, tuned on validation.",
        **_on_tokens_and_labels(source, cohort),
    )
    @plainly
    def boosted(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        layout, settings = workspace.layout(source), workspace.settings
        options = {"seed": settings.seed, **several_seeds(settings)}
        paths = {"vocab": layout.vocab}
        return _task_model(context, pipes, layout, "lightgbm", cohort, "lightgbm", options, paths)

    return boosted


def yardsticks(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_yardsticks`: the other models NEST is compared with, in one process."""

    @dg.asset(
        name=f"{cohort}_yardsticks",
        deps=[f"{source}_{step}" for step in ("seqset", "vocab", "nest")]
        + [f"{cohort}_{what}" for what in ("labels", "nest", "lightgbm")],
        group_name=f"{source}_models",
        kinds={"scikitlearn"},
        code_version=code_version(
            "nest_model.baselines.yardsticks",
            "nest_model.commands.removals",
            "nest_model.commands.finetune",
            "nest_model.training.device",
            started_by=COMMAND,
        ),
        description=(
            f"Logistic regression with the previous stay for {cohort}; with NEST_YARDSTICKS=all also LightGBM under "
            "NEST's context and on roll-ups in time windows, and NEST without pretraining. The same patients, the same "
            "cut, tuned on validation. "
            "With NEST_YARDSTICKS=all also what NEST loses when events of a kind are taken out of its test examples."
        ),
        **MODELS,
    )
    @plainly
    def fitted(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        layout, settings = workspace.layout(source), workspace.settings
        options: dict[str, Any] = {"seed": settings.seed, "which": settings.yardsticks}
        boosted = layout.model(f"{cohort}_lightgbm")
        paths = {"vocab": layout.vocab, "pretrained": layout.model(f"{source}_nest"), "boosted": boosted}
        if settings.yardsticks == "default":
            return _task_model(context, pipes, layout, "yardsticks", cohort, "yardsticks", options, paths)
        removals = {"removals": {"model": layout.model(f"{cohort}_nest"), "threads": 1}}
        training = FineTuningOptions.from_text(settings.finetuning).unfrozen().flags()
        alone = options | training  # whichever seeds there are beside this one
        training |= several_seeds(settings)

        def without_pretraining() -> Mapping[str, float]:
            name = f"{cohort}_yardsticks"
            file = of_yardstick(layout.report(name) / "predictions.parquet", WITHOUT_PRETRAINING)
            arguments = {
                **training,
                "start": "fresh",
                "seed": settings.seed,
                "threads": 1,  # two run side by side
                "pretrained": paths["pretrained"],
                "labels": layout.labels(cohort),
                "seqset": layout.seqset,
                "predictions": file,
                "key": key_of(layout, alone, but=("nest", f"{cohort}_nest", f"{cohort}_lightgbm")),
            }
            out = layout.model(name) / WITHOUT_PRETRAINING
            card = model_card(run_nest_model(context, pipes, out, "finetune", *flags(arguments)))
            return {f"{WITHOUT_PRETRAINING}_{name}": value for name, value in card.metrics.items()}

        return _task_model(
            context,
            pipes,
            layout,
            "yardsticks",
            cohort,
            "yardsticks",
            options,
            paths,
            removals,
            training=training,
            beside=without_pretraining,
        )

    return fitted


def leak_audit(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_leak_audit`: whether what the models see could tell the outcome."""

    @dg.asset(
        name=f"{cohort}_leak_audit",
        kinds={"json"},
        code_version=code_version("nest_model.audit.audit", started_by=COMMAND),
        description=(
            f"What the models of {cohort} see, held against its outcome: codes that tell it, features found in the "
            "data, and by how much each raises the AUROC. The test split is not looked at."
        ),
        **_on_tokens_and_labels(source, cohort),
    )
    @plainly
    def audit(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        layout, options = workspace.layout(source), {"seed": workspace.settings.seed}
        file = layout.leak_audit(cohort)
        paths = {"labels": layout.labels(cohort), "seqset": layout.seqset, "vocab": layout.vocab}

        def make() -> StepCard:
            return model_card(
                run_nest_model(context, pipes, file.parent, "audit", *flags({**options, **paths}))
            )

        card = once(layout, [file.parent], options, make)
        return dg.MaterializeResult(
            metadata={**numbers(card), "audit": suspects_table(LeakAudit.read(file))},
            data_version=dg.DataVersion(card.version),
        )

    return audit


def suspects_table(audit: LeakAudit) -> dg.MetadataValue:
    """Return the suspects of an audit as the UI shows them."""
    rows = [
        {
            "suspect": suspect.name,
            "in predictions": suspect.predictions,
            "inflation of the AUROC": suspect.inflation.in_words(signed=True),
            "verdict": suspect.verdict,
        }
        for suspect in audit.suspects
    ]
    return dg.MetadataValue.md(markdown_table(rows))


def report(source: str, cohorts: list[str]) -> dg.AssetsDefinition:
    """Return the asset `<source>_report` over the models of these cohorts."""
    about = "One self-contained page and `metrics.json`: every model, every metric with its interval, the data card."
    return _page(source, source, cohorts, "report", {"cohorts": ",".join(cohorts)}, about)


def cohort_report(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_report`: the page of one cohort's models."""
    about = (
        f"One self-contained page on {cohort}: for whom, who was left out, every model and metric with its "
        "interval, calibration, net benefit, subgroups, what the models look at, limits."
    )
    return _page(source, cohort, [cohort], "cohort-report", {"cohort": cohort}, about)


def _page(
    source: str, name: str, cohorts: list[str], command: str, of: Mapping[str, str], about: str
) -> dg.AssetsDefinition:
    """Return the asset `<name>_report`, made by a command of the model's that is told what it is `of`."""

    @dg.asset(
        name=f"{name}_report",
        deps=[
            *(f"{source}_{step}" for step in (*("raw", *sources()[source].tables), "nest")),
            *(f"{cohort}_{what}" for cohort in cohorts for what in OF_A_COHORT if what != "report"),
        ],
        group_name=f"{source}_report",
        kinds={"html"},
        code_version=code_version("nest_model.report"),
        description=about,
        owners=["team:research"],
    )
    @plainly
    def page(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult:
        from nest_model.report import previews

        layout = workspace.layout(source)
        out, options = layout.report(name), {**of, "preset": workspace.settings.preset}

        def make() -> StepCard:
            arguments = flags({**options, "root": layout.root})
            return model_card(run_nest_model(context, pipes, out, command, *arguments))

        card = once(layout, [out], options, make)
        return dg.MaterializeResult(
            metadata={
                "report": dg.MetadataValue.path(out / "report.html"),
                **pictures_metadata(previews.of_report(out)),
                **numbers(card),
            },
            data_version=dg.DataVersion(card.version),
        )

    return page


def described(model: Path) -> dict[str, dg.MetadataValue]:
    """Return a model's folder, and what its card says: its size, data, run and limits."""
    card = model / "README.md"
    if not card.exists():  # not trainable
        return {}
    return {"model": dg.MetadataValue.path(model), "model_card": dg.MetadataValue.md(card.read_text())}


def written(predictions: Path) -> dict[str, Any]:
    """Return where the predictions lie and what columns they have; how many they are, the labels tell."""
    if not predictions.exists():
        return {}
    return {
        "dagster/uri": predictions.as_uri(),
        "dagster/column_schema": column_schema(pq.read_schema(predictions)),
    }


def model_card(event: dict[str, Any]) -> StepCard:
    """Return what a command said at its end as the card of its step: its numbers, or why there is no model."""
    reason = event.get("reason")
    metrics = {
        name: value for name, value in event.get("metrics", {}).items() if isinstance(value, int | float)
    }
    return StepCard(
        step="model",
        contract="model/1",
        metrics=metrics,
        warnings=[f"not trainable: {reason}"] if reason else [],
    )


def numbers(card: StepCard) -> dict[str, dg.MetadataValue]:
    """Return what came of a model as metadata: its numbers, or why there is none."""
    told = {name: dg.MetadataValue.float(_rounded(value)) for name, value in card.metrics.items()}
    return told | ({"not_trainable": dg.MetadataValue.text(" ".join(card.warnings))} if card.warnings else {})


def _rounded(value: float) -> float:
    """Return four digits of a fraction; a count whole."""
    return float(value) if float(value).is_integer() else float(f"{value:.4g}")


def several_seeds(settings: Settings) -> dict[str, str]:
    """Return the flag that names all seeds; nothing where there is one."""
    seeds = settings.all_seeds
    return {"seeds": ",".join(map(str, seeds))} if len(seeds) > 1 else {}


def flags(options: Mapping[str, Any]) -> list[str]:
    """Return options as a command line has them; one that is True is its name alone."""
    pairs = (
        [f"--{name}", str(value)] if value is not True else [f"--{name}"] for name, value in options.items()
    )
    return [part for pair in pairs for part in pair]


def _on_tokens_and_labels(source: str, cohort: str) -> dict[str, Any]:
    """Return what assets have in common that read a cohort's labels, its source's sets and their vocabulary."""
    return {
        "deps": [f"{source}_seqset", f"{source}_vocab", f"{cohort}_labels"],
        "group_name": f"{source}_models",
        **MODELS,
    }


def _task_model(
    context: dg.AssetExecutionContext,
    pipes: dg.PipesSubprocessClient,
    layout: Layout,
    command: str,
    cohort: str,
    model: str,
    options: Mapping[str, Any],
    paths: Mapping[str, Path | str],
    more: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    training: Mapping[str, str] = MappingProxyType({}),
    beside: Callable[[], Mapping[str, float]] = dict,
) -> dg.MaterializeResult:
    """Run a command on a task, then `more` commands on its labels and shards, by name with their own flags.

    Args:
        training: options that `beside` reads.
        beside: what else is trained into the same folders, if the task can be learnt; returns its numbers.
    """
    from nest_model.report import previews

    name = f"{cohort}_{model}"
    out, scored = layout.model(name), layout.report(name)
    predictions = scored / "predictions.parquet"
    task = {"labels": layout.labels(cohort), "seqset": layout.seqset}
    paths = {**paths, **task, "predictions": predictions}

    def make() -> StepCard:
        card = model_card(run_nest_model(context, pipes, out, command, *flags({**options, **paths})))
        if card.warnings:  # not trainable
            return card
        said = [run_nest_model(context, pipes, out, one, *flags(own | task)) for one, own in more.items()]
        metrics = [model_card(event).metrics for event in said]
        return card.model_copy(update={"metrics": reduce(or_, [*metrics, beside()], card.metrics)})

    card = once(layout, [out, scored], {**options, **training}, make)
    drawn = {
        **previews.of_training(out),
        **previews.of_predictions(predictions, model),
        **previews.of_removals(out),
    }
    return dg.MaterializeResult(
        metadata={**numbers(card), **pictures_metadata(drawn), **described(out), **written(predictions)},
        data_version=dg.DataVersion(card.version),
    )

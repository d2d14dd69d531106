"""The assets of a cohort's models: the fine-tuned NEST, LightGBM, the yardsticks and the leak audit."""

from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import (
    COMMAND,
    MODELS,
    described,
    flags,
    model_card,
    numbers,
    several_seeds,
    written,
)
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import plainly
from assets.runtime.step_cache import key_of, once
from nest_model.data.predictions import WITHOUT_PRETRAINING, yardstick_predictions
from nest_model.options import FineTuningOptions
from schemas.cards import StepCard
from schemas.layout import Layout
from schemas.markdown import markdown_table
from schemas.tables.leak_audit import LeakAudit


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
            file = yardstick_predictions(layout.report(name) / "predictions.parquet", WITHOUT_PRETRAINING)
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

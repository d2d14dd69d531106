"""The assets of a cohort's models: the fine-tuned NEST, LightGBM, the yardsticks and the leak audit."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import (
    COMMAND_LINE,
    RESEARCH_TEAM,
    TRAINING,
    boosting_code,
    finetuning_code,
    finetuning_seed_flags,
    flags,
    metrics_metadata,
    model_folder_metadata,
    predictions_metadata,
    result_card,
    seed_flags,
)
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import ALSO_READS, FAILURES_ARE_RESULTS, cached_step, step_key
from nest_model.data.predictions import (
    EARLIER,
    EARLIER_LABELS,
    WITHOUT_PRETRAINING,
    earlier_predictions,
    yardstick_predictions,
)
from nest_model.options import FineTuningOptions
from schemas.cards import StepCard
from schemas.code_names import CodeNames
from schemas.layout import Layout
from schemas.markdown import markdown_table
from schemas.sources import sources
from schemas.tables.leak_audit import LeakAudit


def finetuning_asset(source: str, cohort: str, thresholds: Sequence[float] = ()) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_nest`: NEST fine-tuned on the cohort's labels.

    Args:
        thresholds: those of the cohort's file, at which its page counts and so do the figures in the UI.
    """

    @dg.asset(
        name=f"{cohort}_nest",
        deps=[f"{source}_nest", f"{cohort}_labels"],
        metadata={ALSO_READS: [f"{source}_seqset"]},
        group_name=f"{source}_models",
        kinds={"pytorch"},
        op_tags=TRAINING,
        code_version=finetuning_code("nest"),
        description=f"NEST fine-tuned on the labels of {cohort}, with predictions for every split.",
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def nest(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        layout, settings = workspace.experiment_layout(source), workspace.settings
        options: dict[str, Any] = {"seed": settings.seed, "threads": 1}  # two steps run at the same time
        options |= FineTuningOptions.from_text(settings.finetuning).flags()
        # does not depend on the further seeds, nor on the pretrained weights, which the training itself compares
        key = step_key(layout, options, exclude=("nest",))
        paths: dict[str, Path | str] = {"pretrained": layout.model(f"{source}_nest"), "key": key}
        options |= finetuning_seed_flags(settings)
        return _task_model(
            context, pipes, layout, "finetune", cohort, "nest", options, paths, thresholds=thresholds
        )

    return nest


def lightgbm_asset(source: str, cohort: str, thresholds: Sequence[float] = ()) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_lightgbm`: LightGBM on token counts, the main baseline; see `finetuning_asset`."""

    @dg.asset(
        name=f"{cohort}_lightgbm",
        kinds={"lightgbm"},
        code_version=boosting_code(),
        description=f"LightGBM on token counts for {cohort}: the same patients, the same cut, tuned on validation.",
        deps=[f"{source}_seqset", f"{cohort}_labels"],
        metadata={ALSO_READS: [f"{source}_vocab"]},
        group_name=f"{source}_models",
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def fit_lightgbm(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        layout, settings = workspace.experiment_layout(source), workspace.settings
        options: dict[str, Any] = {"seed": settings.seed}
        # the key does not depend on the further seeds, so that those that were fitted are kept
        paths: dict[str, Path | str] = {"vocab": layout.vocab, "key": step_key(layout, options)}
        options |= seed_flags(settings)
        return _task_model(
            context, pipes, layout, "lightgbm", cohort, "lightgbm", options, paths, thresholds=thresholds
        )

    return fit_lightgbm


def yardsticks_asset(source: str, cohort: str, thresholds: Sequence[float] = ()) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_yardsticks`: the other models NEST is compared with; see `finetuning_asset`."""
    has_years = "subject_years" in sources()[source].tables

    @dg.asset(
        name=f"{cohort}_yardsticks",
        deps=[f"{cohort}_nest", f"{cohort}_lightgbm"] + ([f"{source}_subject_years"] if has_years else []),
        metadata={
            ALSO_READS: [*(f"{source}_{step}" for step in ("seqset", "vocab", "nest")), f"{cohort}_labels"]
        },
        group_name=f"{source}_models",
        kinds={"scikitlearn"},
        op_tags=TRAINING,  # with all yardsticks NEST is trained without a pretraining
        code_version=finetuning_code(
            "nest",
            "nest_model.baselines.yardsticks",
            "nest_model.commands.removals",
            "nest_model.commands.temporal",
        ),
        description=(
            f"Logistic regression with the previous stay for {cohort}"
            + (
                ", LightGBM and NEST's frozen probe trained on the patients of earlier years"
                if has_years
                else ""
            )
            + "; with NEST_YARDSTICKS=all also LightGBM on "
            "NEST's context and on roll-ups in time windows, and NEST without pretraining"
            + (" and on earlier patients" if has_years else "")
            + ". The same patients, the same cut, tuned on validation. "
            "With NEST_YARDSTICKS=all also what NEST loses when events of one kind are removed from its test examples."
        ),
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def fit_yardsticks(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        layout, settings = workspace.experiment_layout(source), workspace.settings
        options: dict[str, Any] = {"seed": settings.seed, "which": settings.yardsticks}
        paths = {
            "vocab": layout.vocab,
            "pretrained": layout.model(f"{source}_nest"),
            "boosted": layout.model(f"{cohort}_lightgbm"),
        }
        name = f"{cohort}_yardsticks"
        models, predictions = layout.model(name), layout.report(name) / "predictions.parquet"
        temporal: dict[str, dict[str, Any]] = {}
        if has_years:
            years = {"years": layout.subject_years, "predictions": predictions}
            temporal = {"temporal": {"seed": settings.seed, "threads": 1, **paths, **years}}
        if settings.yardsticks == "default":
            return _task_model(
                context, pipes, layout, "yardsticks", cohort, "yardsticks", options, paths, temporal,
                thresholds=thresholds,
            )  # fmt: skip
        removals = {"removals": {"model": layout.model(f"{cohort}_nest"), "threads": 1}}
        training = FineTuningOptions.from_text(settings.finetuning)

        def fine_tune(
            folder: str, file: Path, labels: Path, options_used: FineTuningOptions, **seeds_and_start: Any
        ) -> dict[str, Any]:
            # the key depends neither on the further seeds nor on the pretrained weights
            exclude = ("nest", f"{cohort}_nest", f"{cohort}_lightgbm")
            arguments = {
                **options_used.flags(),
                **seeds_and_start,
                "seed": settings.seed,
                "threads": 1,  # two steps run at the same time
                "pretrained": paths["pretrained"],
                "labels": labels,
                "seqset": layout.seqset,
                "predictions": file,
                "key": step_key(layout, options | options_used.flags(), exclude=exclude),
            }
            card = result_card(run_nest_model(context, pipes, models / folder, "finetune", *flags(arguments)))
            return {f"{folder}_{name}": value for name, value in card.metrics.items()}

        def train_more() -> Mapping[str, float]:
            file = yardstick_predictions(predictions, WITHOUT_PRETRAINING)
            labels = layout.labels(cohort)
            fresh = training.unfrozen()
            metrics = fine_tune(
                WITHOUT_PRETRAINING, file, labels, fresh, start="fresh", **seed_flags(settings)
            )
            if (models / EARLIER_LABELS).exists():
                file, labels = earlier_predictions(predictions, "nest"), models / EARLIER_LABELS
                metrics |= fine_tune(EARLIER, file, labels, training, **finetuning_seed_flags(settings))
            return metrics

        return _task_model(
            context,
            pipes,
            layout,
            "yardsticks",
            cohort,
            "yardsticks",
            options,
            paths,
            temporal | removals,
            training_flags=training.flags() | finetuning_seed_flags(settings),
            train_more=train_more,
            thresholds=thresholds,
        )

    return fit_yardsticks


def leak_audit_asset(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_leak_audit`: whether the features could reveal the outcome."""

    @dg.asset(
        name=f"{cohort}_leak_audit",
        kinds={"json"},
        code_version=code_version("nest_model.audit.audit", entry_point=COMMAND_LINE),
        description=(
            f"Leaks suspected in the features of {cohort}: codes that reveal the outcome, other features that predict "
            "it too well, and by how much each raises the AUROC. The test split is not read."
        ),
        deps=[f"{source}_seqset", f"{cohort}_labels"],
        metadata={ALSO_READS: [f"{source}_vocab"]},
        group_name=f"{source}_models",
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def audit(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        layout, options = workspace.experiment_layout(source), {"seed": workspace.settings.seed}
        file = layout.leak_audit(cohort)
        paths = {"labels": layout.labels(cohort), "seqset": layout.seqset, "vocab": layout.vocab}

        def make() -> StepCard:
            return result_card(
                run_nest_model(context, pipes, file.parent, "audit", *flags({**options, **paths}))
            )

        card = cached_step(layout, [file.parent], options, make)
        findings = LeakAudit.read(file).in_words(CodeNames.read(layout.code_names))
        return dg.MaterializeResult(
            metadata={**metrics_metadata(card), "audit": suspects_table(findings)},
            data_version=dg.DataVersion(card.version),
        )

    return audit


def suspects_table(audit: LeakAudit) -> dg.MetadataValue:
    """Return a table for the UI: the suspects of an audit."""
    rows = [
        {
            "suspect": suspect.name,
            "in predictions": suspect.predictions,
            "inflation of the AUROC": suspect.inflation.in_words(with_sign=True),
            "verdict": suspect.verdict,
        }
        for suspect in audit.suspects
    ]
    return dg.MetadataValue.md(markdown_table(rows))


def _task_model(
    context: dg.AssetExecutionContext,
    pipes: dg.PipesSubprocessClient,
    layout: Layout,
    command: str,
    cohort: str,
    model: str,
    options: Mapping[str, Any],
    paths: Mapping[str, Path | str],
    more_commands: Mapping[str, dict[str, Any]] = MappingProxyType({}),
    training_flags: Mapping[str, str | bool] = MappingProxyType({}),
    train_more: Callable[[], Mapping[str, float]] = dict,
    thresholds: Sequence[float] = (),
) -> dg.MaterializeResult[Any]:
    """Run a command on a task, and more commands on the same labels and shards if the task is trainable.

    Args:
        more_commands: by the command's name, its own flags.
        training_flags: flags that `train_more` reads; the step's key depends on them.
        train_more: trains further models into the same folders and returns their metrics.
        thresholds: those of the cohort's file, at which its page counts.
    """
    from nest_model.report import previews

    name = f"{cohort}_{model}"
    out, report_folder = layout.model(name), layout.report(name)
    predictions = report_folder / "predictions.parquet"
    task = {"labels": layout.labels(cohort), "seqset": layout.seqset}
    paths = {**paths, **task, "predictions": predictions}

    def make() -> StepCard:
        card = result_card(run_nest_model(context, pipes, out, command, *flags({**options, **paths})))
        if card.warnings:  # not trainable
            return card
        events = [
            run_nest_model(context, pipes, out, name, *flags(command_flags | task))
            for name, command_flags in more_commands.items()
        ]
        metrics = [result_card(event).metrics for event in events]
        return card.model_copy(update={"metrics": reduce(or_, [*metrics, train_more()], card.metrics)})

    card = cached_step(
        layout, [out, report_folder], {**options, **training_flags}, make,
        failures_are_results=FAILURES_ARE_RESULTS in context.run.tags,
    )  # fmt: skip
    if card.failure:  # the folders may hold an earlier model
        return dg.MaterializeResult(
            metadata=metrics_metadata(card), data_version=dg.DataVersion(card.version)
        )
    pictures = {
        **previews.training_previews(out),
        **previews.prediction_previews(predictions, model, thresholds),
        **previews.removal_previews(out),
    }
    return dg.MaterializeResult(
        metadata={
            **metrics_metadata(card),
            **pictures_metadata(pictures),
            **model_folder_metadata(out),
            **predictions_metadata(predictions),
        },
        data_version=dg.DataVersion(card.version),
    )

"""The assets of pretraining, one for each source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import (
    RESEARCH_TEAM,
    TRAINING,
    flags,
    metrics_metadata,
    model_folder_metadata,
    pretraining_code,
    result_card,
    seed_flags,
)
from assets.resources import Workspace, has_gpu
from assets.runtime.child_process import run_nest_model
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import ALSO_READS, FAILURES_ARE_RESULTS, cached_step, step_key
from nest_model.options import PretrainingOptions
from nest_model.training.guesses import table as guesses
from nest_model.training.guesses.judgement import Judgement
from schemas.cards import StepCard
from schemas.markdown import markdown_table
from schemas.settings import Settings

TABLES = ("subjects", "vocab", "seqset")
"""The tables of a source that a pretraining reads."""


def pretraining_asset(source: str, model: Mapping[str, Any] | None = None) -> dg.AssetsDefinition:
    """Return the asset `<source>_nest`: NEST pretrained on the shards of a source.

    Args:
        source: the source whose shards are read.
        model: more flags of the command, for sets that are not hospital stays.
    """

    @dg.asset(
        name=f"{source}_nest",
        deps=[f"{source}_seqset"],
        metadata={ALSO_READS: [f"{source}_{table}" for table in TABLES if table != "seqset"]},
        group_name=f"{source}_models",
        kinds={"pytorch"},
        op_tags=TRAINING,
        code_version=pretraining_code("nest"),
        description=(
            "NEST pretrained on the training patients by the recipe's losses (MLM and MSM, by default also a set "
            "from its own [CLS]); the weights of the epoch with the lowest validation loss."
        ),
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def nest(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        options = {"threads": 2, **flags_of_nest(workspace.settings, model)}
        card = pretrain(
            context, workspace, pipes, source, f"{source}_nest", options,
            failures_are_results=FAILURES_ARE_RESULTS in context.run.tags,
        )  # fmt: skip
        return pretraining_result(workspace.experiment_layout(source).model(f"{source}_nest"), card)

    return nest


def flags_of_nest(settings: Settings, of_source: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the flags of a source's NEST: the preset's position, the source's own, then the run's options."""
    position = settings.rules.cse_position
    flags = {} if position is None else {"position": position}
    return flags | dict(of_source or {}) | PretrainingOptions.from_text(settings.pretraining).flags()


def pretrain(
    context: dg.AssetExecutionContext,
    workspace: Workspace,
    pipes: dg.PipesSubprocessClient,
    source: str,
    name: str,
    options: Mapping[str, Any],
    *,
    failures_are_results: bool = False,
) -> StepCard:
    """Pretrain on the shards of a source, into the folder of this name, unless that is done already.

    Args:
        options: flags that the result depends on.
        failures_are_results: a failed training has a card that says why, instead of ending the run.
    """
    layout, settings = workspace.experiment_layout(source), workspace.settings
    out = layout.model(name)
    options = {"model": settings.model, "seed": settings.seed, **options}
    gpu = {"gpu": settings.model == "auto" and has_gpu()}
    paths = {"seqset": layout.seqset, "subjects": layout.subjects, "vocab": layout.vocab}
    key = {"key": step_key(layout, options | gpu)}  # does not depend on the further seeds
    if settings.pretraining_seeds:
        options |= seed_flags(settings)

    def make() -> StepCard:
        return result_card(run_nest_model(context, pipes, out, "pretrain", *flags(options | paths | key)))

    return cached_step(layout, [out], options | gpu, make, failures_are_results=failures_are_results)


def pretraining_result(model: Path, card: StepCard) -> dg.MaterializeResult[Any]:
    """Return the materialization of a pretraining: its metrics beside guesses, its curves and its card."""
    from nest_model.report import previews

    if card.failure:  # the folder may hold an earlier model
        return dg.MaterializeResult(
            metadata=metrics_metadata(card), data_version=dg.DataVersion(card.version)
        )
    return dg.MaterializeResult(
        metadata={
            **metrics_metadata(card),
            "beside_guesses": guesses_table(model),
            **pictures_metadata(previews.training_previews(model)),
            **model_folder_metadata(model),
        },
        data_version=dg.DataVersion(card.version),
    )


def guesses_table(model: Path) -> dg.MetadataValue:
    """Return a table for the UI: the validation losses of a pretraining beside those of the constant guesses."""
    judgement = Judgement.read(model)
    return dg.MetadataValue.md(markdown_table(guesses.rows(judgement.validation, judgement.yardsticks)))

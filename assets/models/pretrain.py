"""The assets of pretraining, one for each source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import (
    COMMAND_LINE,
    RESEARCH_TEAM,
    flags,
    metrics_metadata,
    model_folder_metadata,
    result_card,
    seed_flags,
)
from assets.resources import Workspace, has_gpu
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import cached_step, step_key
from nest_model.options import PretrainingOptions
from nest_model.training.guesses import table as guesses
from nest_model.training.guesses.judgement import Judgement
from schemas.cards import StepCard
from schemas.markdown import markdown_table


def pretraining_asset(source: str, model: Mapping[str, Any] | None = None) -> dg.AssetsDefinition:
    """Return the asset `<source>_nest`: NEST pretrained on the shards of a source.

    Args:
        source: the source whose shards are read.
        model: more flags of the command, for sets that are not hospital stays.
    """

    @dg.asset(
        name=f"{source}_nest",
        deps=[f"{source}_{table}" for table in ("subjects", "vocab", "seqset")],
        group_name=f"{source}_models",
        kinds={"pytorch"},
        code_version=code_version(
            "nest_model.commands.pretrain",
            "nest_model.model.systems.nest",
            "nest_model.training.objectives.mlm_msm",
            "nest_model.training.device",
            entry_point=COMMAND_LINE,
        ),
        description=(
            "NEST pretrained on the training patients (MLM + MSM), stopped early on the validation patients."
        ),
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def nest(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        from nest_model.report import previews

        layout, settings = workspace.layout(source), workspace.settings
        out = layout.model(f"{source}_nest")
        options: dict[str, Any] = {"model": settings.model, "seed": settings.seed}
        if settings.rules.cse_position is not None:
            options["position"] = settings.rules.cse_position
        options |= (
            {"threads": 2} | dict(model or {}) | PretrainingOptions.from_text(settings.pretraining).flags()
        )
        gpu = {"gpu": settings.model == "auto" and has_gpu()}
        paths = {"seqset": layout.seqset, "subjects": layout.subjects, "vocab": layout.vocab}
        key = {"key": step_key(layout, options | gpu)}  # does not depend on the further seeds
        if settings.pretraining_seeds:
            options |= seed_flags(settings)
        reads = options | gpu

        def make() -> StepCard:
            return result_card(run_nest_model(context, pipes, out, "pretrain", *flags(options | paths | key)))

        card = cached_step(layout, [out], reads, make)
        return dg.MaterializeResult(
            metadata={
                **metrics_metadata(card),
                "beside_guesses": guesses_table(out),
                **pictures_metadata(previews.training_previews(out)),
                **model_folder_metadata(out),
            },
            data_version=dg.DataVersion(card.version),
        )

    return nest


def guesses_table(model: Path) -> dg.MetadataValue:
    """Return a table for the UI: the validation losses of a pretraining beside those of the constant guesses."""
    judgement = Judgement.read(model)
    return dg.MetadataValue.md(markdown_table(guesses.rows(judgement.validation, judgement.yardsticks)))

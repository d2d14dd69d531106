"""The assets of pretraining, one for each source."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import COMMAND, MODELS, described, flags, model_card, numbers, several_seeds
from assets.resources import Workspace, has_gpu
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import plainly
from assets.runtime.step_cache import key_of, once
from nest_model.options import PretrainingOptions
from nest_model.training.guesses import table as guesses
from nest_model.training.guesses.judgement import Judgement
from schemas.cards import StepCard
from schemas.markdown import markdown_table


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

"""The few-shot curve of a cohort: how well models do that learn from a handful of its labelled rows."""

import json
from typing import Any

import dagster as dg

from assets.metadata import page_metadata, pictures_metadata
from assets.models.common import RESEARCH_TEAM, TRAINING, finetuning_code, flags, result_card
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import ALSO_READS, cached_step
from nest_model.options import FineTuningOptions
from schemas.cards import StepCard
from schemas.io.outputs import remove_outputs
from schemas.io.verify import verified
from schemas.markdown import markdown_table


def few_shot_asset(source: str, cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_few_shot`, which no job runs: it fine-tunes NEST on every draw."""

    @dg.asset(
        name=f"{cohort}_few_shot",
        deps=[f"{source}_nest", f"{cohort}_labels"],
        metadata={ALSO_READS: [f"{source}_seqset", f"{source}_vocab"]},
        group_name=f"{source}_few_shot",
        kinds={"pytorch"},
        op_tags=TRAINING,
        code_version=finetuning_code("nest", "nest_model.few_shot.curve"),
        description=f"The curve of {cohort} over few labelled rows, as EHRSHOT draws it: NEST frozen and fine-tuned, "
        "LightGBM and logistic regression. In no job; NEST_FEW_SHOT sets models, numbers of rows and draws.",
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def few_shot(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        from nest_model.few_shot import page  # matplotlib: only where it draws
        from nest_model.report.figures import ui_png

        layout, settings = workspace.experiment_layout(source), workspace.settings
        out = layout.report(f"{cohort}_few_shot")
        options: dict[str, Any] = {"seed": settings.seed, **settings.few_shot_flags}
        if "nest" in options["systems"].split(","):
            options |= FineTuningOptions.from_text(settings.finetuning).flags()
        paths = {
            "pretrained": layout.model(f"{source}_nest"),
            "labels": layout.labels(cohort),
            "seqset": layout.seqset,
            "vocab": layout.vocab,
        }
        arguments = flags({"threads": 1, **options, **paths})  # two steps run at the same time

        def make() -> StepCard:
            card = result_card(run_nest_model(context, pipes, out, "few-shot", *arguments))
            # a finished curve needs the models of its draws no more
            remove_outputs(*(out / "nest").rglob("*.safetensors"))
            return card

        card = cached_step(layout, [out], options, make)
        content = json.loads(verified(out / "few_shot.json").read_text())
        return dg.MaterializeResult(
            metadata={
                **page_metadata(out / "few_shot.html"),
                **pictures_metadata({"AUROC and AP from few labels": ui_png(page.picture(content))}),
                **{
                    words: dg.MetadataValue.md(markdown_table(page.table(content, metric)))
                    for metric, words in page.NAMES.items()
                },
            },
            data_version=dg.DataVersion(card.version),
        )

    return few_shot

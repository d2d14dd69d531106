"""The next basket of each test user: NEST beside plain counting."""

import json
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import COMMAND_LINE, RESEARCH_TEAM, flags, result_card
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import cached_step
from assets.sources.common import steps_of
from pipelines.reading.tables import find_file
from schemas.cards import StepCard
from schemas.io.hashing import file_sha256
from schemas.io.verify import verified
from schemas.markdown import markdown_table


@dg.asset(
    deps=["instacart_raw", "instacart_subjects", "instacart_vocab", "instacart_seqset", "instacart_nest"],
    group_name="instacart_report",
    kinds={"pytorch"},
    code_version=code_version(
        "nest_model.next_set.score", "nest_model.training.device", entry_point=COMMAND_LINE
    ),
    owners=RESEARCH_TEAM,
)
@with_clear_errors
def instacart_next_basket(
    context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
) -> dg.MaterializeResult[Any]:
    """What the test users buy next: NEST, asked by an appended query set, beside their most frequent products."""
    from nest_model.next_set import pictures

    steps = steps_of(workspace, "instacart")
    layout, settings, raw = steps.layout, steps.settings, steps.locations["found_in"]
    out = layout.report("instacart_next_basket")
    paths = {"model": layout.model("instacart_nest"), "seqset": layout.seqset, "subjects": layout.subjects}
    options = {"target": settings.instacart_target, "threads": 2}
    held_out = find_file(raw, "held_out") if settings.instacart_target == "held_out" else None
    reads = options | ({"held_out": file_sha256(held_out)} if held_out else {})

    def make() -> StepCard:
        arguments = flags({**options, **paths, "vocab": layout.vocab, "raw": raw})
        return result_card(run_nest_model(context, pipes, out, "next-set", *arguments))

    card = cached_step(layout, [out], reads, make)
    metrics = json.loads(verified(out / "metrics.json").read_text())
    return dg.MaterializeResult(
        metadata={
            "asked": metrics["target"],
            "users": metrics["users"],
            "scores": dg.MetadataValue.md(markdown_table(pictures.rows(metrics))),
            **pictures_metadata({"Next baskets": pictures.overview(metrics)}),
            **{name: dg.MetadataValue.float(value) for name, value in card.metrics.items()},
        },
        data_version=dg.DataVersion(card.version),
    )

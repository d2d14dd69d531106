"""Next baskets of a shop: an asset for each system that recommends them, and the page that compares all."""

from pathlib import Path
from typing import Any

import dagster as dg

from assets.models.common import (
    COMMAND_LINE,
    RESEARCH_TEAM,
    TRAINING,
    comparison_metadata,
    flags,
    metrics_metadata,
    result_card,
    seed_flags,
)
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import ALSO_READS, cached_step
from assets.sources.common import steps_of
from nest_model.next_set.system import NextBasketSystem, load_system, names
from nest_model.next_set.systems import __name__ as SYSTEMS
from pipelines.reading.tables import find_file
from schemas.cards import StepCard
from schemas.io.hashing import file_sha256
from schemas.settings import Settings

SOURCE = "instacart"
TABLES = tuple(f"{SOURCE}_{table}" for table in ("raw", "subjects", "baskets"))
BACKBONE = (f"{SOURCE}_vocab", f"{SOURCE}_nest")


def next_basket_assets() -> list[dg.AssetsDefinition]:
    """Return the asset of every system, and the comparison."""
    return [*(system_asset(name) for name in names()), comparison_asset()]


def _may_use_gpu(system: type[NextBasketSystem]) -> bool:
    return system.reads_backbone or system.traits.has_random_start


def system_asset(name: str) -> dg.AssetsDefinition:
    """Return `instacart_<system>`: one system tuned, fitted and scored."""
    system = load_system(name)

    @dg.asset(
        name=asset_name(name),
        deps=[*TABLES, *(BACKBONE if system.reads_backbone else ())],
        group_name=f"{SOURCE}_systems",
        kinds={"pytorch"} if system.traits.has_random_start else {"numpy"},
        # the key of what a run keeps holds the options, so the code alone is versioned
        code_version=code_version(
            f"{SYSTEMS}.{name}",
            "nest_model.next_set.run",
            "nest_model.training.device",
            entry_point=COMMAND_LINE,
        ),
        description=f"{system.about} Tuned on validation users, scored on test users.",
        owners=RESEARCH_TEAM,
        # the pretraining, for which most systems wait, starts first
        op_tags={"dagster/priority": "-1"} | (TRAINING if _may_use_gpu(system) else {}),
    )
    @with_clear_errors
    def recommendations(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        steps = steps_of(workspace, SOURCE)
        settings, raw = steps.settings, steps.locations["found_in"]
        layout = workspace.experiment_layout(SOURCE)
        out = layout.next_baskets(settings.instacart_question) / name
        options = system_options(system, settings)
        paths: dict[str, Path] = {"baskets": layout.baskets, "subjects": layout.subjects, "raw": raw}
        if system.reads_backbone:
            paths |= {"pretrained": layout.model(f"{SOURCE}_nest"), "vocab": layout.vocab}
        held_out = find_file(raw, "held_out") if settings.instacart_target == "held_out" else None
        reads = {**options, "quick": quick_options(system, settings)}
        reads |= {"held_out": file_sha256(held_out)} if held_out else {}
        code = {"key": context.assets_def.get_asset_spec(context.asset_key).code_version or ""}

        def make() -> StepCard:
            option_flags = [
                part for option in quick_options(system, settings) for part in ("--option", option)
            ]
            arguments = flags({"system": name, **options, **paths, **code})
            return result_card(run_nest_model(context, pipes, out, "next-basket", *arguments, *option_flags))

        card = cached_step(layout, [out], reads, make)
        return dg.MaterializeResult(
            metadata={**metrics_metadata(card), "lists": dg.MetadataValue.path(out / "rankings.parquet")},
            data_version=dg.DataVersion(card.version),
        )

    return recommendations


def comparison_asset() -> dg.AssetsDefinition:
    """Return `instacart_next_basket`: the page over all systems."""

    @dg.asset(
        name=f"{SOURCE}_next_basket",
        deps=[asset_name(name) for name in names()],
        metadata={ALSO_READS: [f"{SOURCE}_nest"]},
        group_name=f"{SOURCE}_report",
        kinds={"html"},
        code_version=code_version("nest_model.next_set.report", entry_point=COMMAND_LINE),
        description="Which system recommends next baskets best, by how much, how surely, at what cost: one page.",
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def comparison(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        from nest_model.next_set import page  # matplotlib: only where it draws

        layout, settings = workspace.experiment_layout(SOURCE), workspace.settings
        out = layout.next_basket_report(settings.instacart_question)

        def make() -> StepCard:
            paths = {
                "systems": layout.next_baskets(settings.instacart_question),
                "pretrained": layout.model(f"{SOURCE}_nest"),
            }
            return result_card(run_nest_model(context, pipes, out, "next-basket-report", *flags(paths)))

        card = cached_step(layout, [out], {"question": settings.instacart_question}, make)
        return dg.MaterializeResult(
            metadata=comparison_metadata(page, out), data_version=dg.DataVersion(card.version)
        )

    return comparison


def asset_name(system: str) -> str:
    """Return the name of a system's asset."""
    return f"{SOURCE}_system_{system}"


def system_options(system: type[NextBasketSystem], settings: Settings) -> dict[str, Any]:
    """Return the flags of a system's run that its result depends on."""
    options: dict[str, Any] = {
        "target": settings.instacart_target,
        "protocol": settings.instacart_protocol,
        "query-time": settings.instacart_query_time,
        "points": settings.instacart_points,
        "seed": settings.seed,
        "threads": 2,
    }
    return options | (seed_flags(settings) if system.traits.has_random_start else {})


def quick_options(system: type[NextBasketSystem], settings: Settings) -> list[str]:
    """Return the options that keep a run on synthetic users short; on a shop's own data there are none."""
    return [] if settings.instacart_dir else [f"{name}={value}" for name, value in system.quick.items()]

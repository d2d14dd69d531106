"""Faults in the other sources: a CDM's clock, a shop's targets."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import dagster as dg
import polars as pl

from assets.checks import source_checks
from assets.instacart import INSTACART_ASSETS
from assets.pcornet import PCORNET_ASSETS
from assets.resources import Workspace
from pipelines import instacart_corpus
from pipelines.sources.pcornet import events as pcornet_events
from schemas.expectations import BASKET_SUITES, PCORNET_SUITES
from tests.silent_faults.chain import findings_of
from tests.silent_faults.chain_code import replaced
from tests.silent_faults.fault import Expectation, Fault, Findings, Use, World

SMALL = {"synthetic_users": 100, "synthetic_children": 200}


def materialize(
    assets: Sequence[dg.AssetsDefinition],
    checks: Sequence[dg.AssetChecksDefinition],
    world: World,
    **options: Any,
) -> Findings:
    """Materialize a source's assets and run their checks, on a small synthetic input."""
    workspace = Workspace(data_dir=str(world.data), **SMALL, **options)
    definitions = dg.Definitions(assets=assets, asset_checks=checks, resources={"workspace": workspace})
    job = definitions.resolve_implicit_global_asset_job_def()
    return findings_of(job.execute_in_process(raise_on_error=False))


@cache
def up_to(source: str, table: str, preset: str = "default") -> Use:
    """Return a use that materializes a source up to one of its tables, and runs the checks on them."""
    assets, suites = SOURCES[source]
    keys = [asset.key.to_user_string() for asset in assets]
    chain = list(assets[: keys.index(f"{source}_{table}") + 1])
    made = {name: suites[name] for name in suites if f"{source}_{name}" in keys[: len(chain)]}
    return partial(materialize, chain, source_checks(source, made), preset=preset)


SOURCES: Mapping[str, tuple[Sequence[dg.AssetsDefinition], Mapping[str, Any]]] = {
    "instacart": (INSTACART_ASSETS, BASKET_SUITES),
    "pcornet": (PCORNET_ASSETS, PCORNET_SUITES),
}


def of_its_day(right: Callable[[str], pl.Expr]) -> Callable[[str], pl.Expr]:
    """Let a procedure be known by the end of its day, as a measurement is."""
    return lambda kind: right("VIT" if kind == "PR" else kind)


def nothing(_: Any) -> Any:
    return lambda layout: pl.Series("encounter_id", [], pl.Int64)


FAULTS = [
    Fault(
        "PCORnet: a procedure known by the end of its day, its stay going on",
        "code",
        replaced(pcornet_events, "_available", of_its_day),
        up_to("pcornet", "events"),
        Expectation("pcornet_events", "procedure_code_is_known_from_the_end_on"),
    ),
    *(
        Fault(
            f"Instacart: the orders asked for are fitted on, preset {preset}",
            "code",
            replaced(instacart_corpus, "held_back", nothing),
            up_to("instacart", "vocab", preset),
            Expectation("instacart_vocab", "product_is_counted_without_the_orders_asked_for"),
        )
        for preset in ("default", "paper")
    ),
]

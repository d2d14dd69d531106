"""Faults in the other sources: the clock of a CDM, the targets of a shop, a MEDS dataset made from OMOP."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import dagster as dg
import polars as pl
import pytest

from assets.checks import source_checks
from assets.resources import Workspace
from assets.sources.common import source_assets
from pipelines.events import clock
from pipelines.sources.instacart import corpus as instacart_corpus
from pipelines.sources.meds import codes
from pipelines.sources.meds import rows as meds
from pipelines.sources.pcornet import events as pcornet_events
from schemas.expectations import INSTACART_SUITES, MEDS_SUITES, PCORNET_SUITES
from tests.silent_faults.chain import findings_of
from tests.silent_faults.chain_code import replace_function
from tests.silent_faults.fault import Expectation, Findings, Sandbox, SilentFault, Use
from tests.support.omop_tables import omop_dataset

INSTACART_ASSETS = source_assets("instacart")
MEDS_ASSETS = source_assets("meds")
PCORNET_ASSETS = source_assets("pcornet")

SMALL = {"synthetic_users": 100, "synthetic_children": 200}


def materialize(
    assets: Sequence[dg.AssetsDefinition],
    checks: Sequence[dg.AssetChecksDefinition],
    sandbox: Sandbox,
    **options: Any,
) -> Findings:
    """Materialize the assets of a source on a small synthetic input and run their checks."""
    workspace = Workspace(data_dir=str(sandbox.data), **SMALL, **options)
    definitions = dg.Definitions(assets=assets, asset_checks=checks, resources={"workspace": workspace})
    job = definitions.resolve_implicit_global_asset_job_def()
    return findings_of(job.execute_in_process(raise_on_error=False))


@cache
def up_to(source: str, table: str, preset: str = "default") -> Use:
    """Return a use that materializes a source up to one of its tables and runs the checks."""
    assets, suites = SOURCES[source]
    keys = [asset.key.to_user_string() for asset in assets]
    chain = list(assets[: keys.index(f"{source}_{table}") + 1])
    table_suites = {name: suites[name] for name in suites if f"{source}_{name}" in keys[: len(chain)]}
    return lambda sandbox, **options: materialize(
        chain, source_checks(source, table_suites), sandbox, **{"preset": preset, **options}
    )


SOURCES: Mapping[str, tuple[Sequence[dg.AssetsDefinition], Mapping[str, Any]]] = {
    "instacart": (INSTACART_ASSETS, INSTACART_SUITES),
    "meds": (MEDS_ASSETS, MEDS_SUITES),
    "pcornet": (PCORNET_ASSETS, PCORNET_SUITES),
}


@cache
def read_omop(table: str, **prefixes: str) -> Use:
    """Return a use that reads a dataset in the form of meds_etl, with other `prefixes` for some codes."""
    read = up_to("meds", table)

    def use(sandbox: Sandbox) -> Findings:
        folder = omop_dataset(sandbox.folder / "omop", "meds_etl", **prefixes)
        return read(sandbox, meds_dir=str(folder), preset="default")

    return use


@contextmanager
def forget_diagnosis_codes(_: Sandbox) -> Iterator[None]:
    """Remove all codes of diagnoses from the known ones."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CODE_PATTERNS", "WHOLE_CODE_PATTERNS"):
            patch.setattr(codes, name, tuple(row for row in getattr(codes, name) if row[1] != "DX"))
        yield


def drop_ends(right: Any) -> Any:
    """Return a function that reads rows as if they had no end."""
    return lambda rows, **options: right(rows.with_columns(end=pl.lit(None, pl.Datetime("us"))), **options)


def available_at_day_end(right: Callable[[str], pl.Expr]) -> Callable[[str], pl.Expr]:
    """Return a function that makes procedures available at the end of their day, like measurements."""
    return lambda kind: right("VIT" if kind == "PR" else kind)


def hold_nothing_back(_: Any) -> Any:
    return lambda layout: pl.Series("encounter_id", [], pl.Int64)


FAULTS = [
    SilentFault(
        "PCORnet: a procedure known by the end of its day, its stay going on",
        "code",
        replace_function(pcornet_events, "_available", available_at_day_end),
        up_to("pcornet", "events"),
        Expectation("pcornet_events", "procedure_code_is_known_from_the_end_on"),
    ),
    *(
        SilentFault(
            f"Instacart: the orders asked for are fitted on, preset {preset}",
            "code",
            replace_function(instacart_corpus, "last_visible_orders", hold_nothing_back),
            up_to("instacart", "vocab", preset),
            Expectation("instacart_vocab", "product_is_counted_without_the_orders_asked_for"),
        )
        for preset in ("default", "paper")
    ),
    SilentFault(
        "MEDS from OMOP: conditions and SNOMED codes are items",
        "code",
        forget_diagnosis_codes,
        read_omop("events"),
        Expectation("meds_events", "diagnosis_is_found_for_most_subjects"),
    ),
    SilentFault(
        "MEDS from OMOP: sex as it is spelt there is not known",
        "code",
        replace_function(meds, "SEXES", lambda _: {"FEMALE": "F", "MALE": "M"}),
        read_omop("subjects"),
        Expectation("meds_subjects", "sex_is_found_for_most_subjects"),
    ),
    SilentFault(
        "MEDS from OMOP: the ends of visits are lost",
        "code",
        replace_function(meds, "encounters", drop_ends),
        read_omop("encounters"),
        Expectation("meds_encounters", "end_is_said_for_most_encounters"),
    ),
    SilentFault(
        "MEDS from OMOP: a visit is known by its rows alone",
        "code",
        replace_function(codes, "VISIT", lambda _: ("NO_SUCH_CODE",)),
        read_omop("encounters"),
        Expectation("meds_encounters", "end_is_said_for_most_encounters"),
    ),
    SilentFault(
        "MEDS from OMOP: a diagnosis known when it is dated",
        "code",
        replace_function(clock, "CODED_AT_THE_END", lambda _: ("PR",)),
        read_omop("events"),
        Expectation("meds_events", "diagnosis_is_known_from_the_end_on"),
    ),
    SilentFault(
        "MEDS from OMOP: a procedure's code known when it is dated",
        "code",
        replace_function(clock, "CODED_AT_THE_END", lambda _: ("DX",)),
        read_omop("events"),
        Expectation("meds_events", "procedure_code_is_known_from_the_end_on"),
    ),
]

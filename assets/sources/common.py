"""The assets every source has: its raw input, and a table each step, up to the SeqSet shards."""

from functools import cache
from typing import Any

import dagster as dg

from assets.metadata import input_result, subjects_result, table_result
from assets.resources import Workspace
from assets.runtime.code_version import code_version
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import RAW, WITHOUT_SPLITS, cached_step
from pipelines.inputs.steps import SourceSteps, keep_synthetic, refuse_synthetic_over_own, steps_class
from schemas.cards import StepCard
from schemas.sources import SourceSpec, sources

OWNERS = ["team:data-engineering"]


@cache
def source_assets(name: str) -> tuple[dg.AssetsDefinition, ...]:
    """Return the assets of a source from its raw input to its shards, in the order they are made in."""
    spec = sources()[name]
    return (_raw(spec), *(_table(spec, table) for table in spec.tables))


def steps_of(workspace: Workspace, source: str) -> SourceSteps:
    """Return the steps of a source with the settings of this run, and those of its synthetic data that are kept."""
    layout = workspace.layout(source)
    settings = keep_synthetic(workspace.settings, layout)
    return steps_class(sources()[source])(settings, layout)


def _code(spec: SourceSpec, table: str) -> str:
    """Return the version of a table's code; of `raw` the module that finds or makes the input counts too."""
    modules = steps_class(spec).CODE
    entry_point = spec.steps.partition(":")[0] if table == RAW else None
    return code_version(*modules.get(table, modules["other"]), entry_point=entry_point)


def _raw(spec: SourceSpec) -> dg.AssetsDefinition:
    @dg.asset(
        name=f"{spec.name}_{RAW}",
        deps=list(spec.raw_needs),
        kinds=set(spec.raw_kinds),
        code_version=_code(spec, RAW),
        description=spec.raw_about,
        group_name=f"{spec.name}_etl",
        owners=OWNERS,
    )
    @with_clear_errors
    def raw(workspace: Workspace) -> dg.MaterializeResult[Any]:
        steps = steps_of(workspace, spec.name)
        steps.prepare()
        step = steps.step(RAW)
        refuse_synthetic_over_own(step, steps.layout)
        card = cached_step(steps.layout, list(steps.input_files), step.reads, step.make)
        return input_result(card, **steps.locations)

    return raw


def _table(spec: SourceSpec, name: str) -> dg.AssetsDefinition:
    table = spec.tables[name]

    @dg.asset(
        name=f"{spec.name}_{name}",
        deps=[f"{spec.name}_{step}" for step in table.needs],
        kinds={"polars", "parquet"},
        code_version=_code(spec, name),
        description=table.about,
        group_name=f"{spec.name}_etl",
        owners=OWNERS,
    )
    @with_clear_errors
    def asset(workspace: Workspace) -> dg.MaterializeResult[Any]:
        steps = steps_of(workspace, spec.name)
        step, path = steps.step(name), getattr(steps.layout, name)
        card = cached_step(
            steps.layout,
            [path, *step.also_writes],
            step.reads,
            step.make,
            source=list(steps.input_files) if RAW in table.needs else (),
            only={} if step.reads_splits else WITHOUT_SPLITS,
        )
        if name == "subjects":
            return subjects_result(card, path)
        return table_result(card, path, _previews(name, card))

    return asset


def _previews(table: str, card: StepCard) -> dict[str, bytes]:
    """Return the pictures of a table for the UI."""
    if table not in ("events", "seqset"):
        return {}
    from nest_model.report import previews  # matplotlib: only where it draws

    return previews.event_previews(card) if table == "events" else previews.seqset_previews(card)

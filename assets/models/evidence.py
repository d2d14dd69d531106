"""The table of evidence of a source: an asset for each pretraining and each cell, and the page over all of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets.metadata import pictures_metadata
from assets.models.common import (
    COMMAND_LINE,
    RESEARCH_TEAM,
    TRAINING,
    boosting_code,
    comparison_metadata,
    encoder_module,
    finetuning_code,
    finetuning_seed_flags,
    flags,
    metrics_metadata,
    model_folder_metadata,
    predictions_metadata,
    pretraining_code,
    result_card,
    seed_flags,
)
from assets.models.pretrain import TABLES, flags_of_nest, pretrain, pretraining_result
from assets.resources import Workspace, has_gpu
from assets.runtime.child_process import run_nest_model
from assets.runtime.code_version import code_version
from assets.runtime.materialize import with_clear_errors
from assets.runtime.step_cache import ALSO_READS, MAY_READ, ONLY_AFTER, cached_step, step_key
from nest_model.evidence.rows import (
    EvidenceAssets,
    EvidenceRow,
    ablated_tasks,
    all_rows,
    clashes,
    has_removals,
)
from nest_model.options import FineTuningOptions, preset_for
from schemas.cards import StepCard, step_of
from schemas.errors import NestError
from schemas.io.outputs import remove_outputs
from schemas.layout import Layout
from schemas.settings import Settings
from schemas.sources import EvidenceSpec, SourceSpec, sources


def evidence_assets(spec: SourceSpec, cohorts: Sequence[str]) -> list[dg.AssetsDefinition]:
    """Return the assets of a source's table of evidence: the rows and tasks that the settings ask for.

    Args:
        cohorts: those of the source.
    """
    if spec.evidence is None:
        return []
    source, (rows, tasks) = spec.name, _rows_and_tasks(spec.evidence, cohorts)
    if not rows:
        return []
    return [
        inputs_asset(source, tasks),
        *(pretraining_asset(source, row) for row in _pretrained_first(rows)),
        *(cell_asset(source, row, task) for row in rows if has_own_cell(row) for task in row.tasks(tasks)),
        *([removals_asset(source, ablated_tasks(tasks))] if has_removals(rows, tasks) else []),
        page_asset(source, rows, tasks, spec.evidence.about),
    ]


def _rows_and_tasks(spec: EvidenceSpec, cohorts: Sequence[str]) -> tuple[list[EvidenceRow], list[str]]:
    """Return the rows and tasks of the page; wrong names are refused when a run begins, see `refuse_unknown`.

    A row that would have no cell on these tasks is left out, and so is a task on which no row has one.
    """
    try:
        row_names, task_names = Settings().evidence_names
    except NestError:  # refused when a run begins, too
        row_names, task_names = (), ()
    tasks = [name for name in dict.fromkeys(task_names or spec.cohorts) if name in cohorts]
    tasks = [name for name in tasks if name not in clashes(tasks)]
    rows = [
        row
        for row in all_rows()
        if (
            row.name in row_names if row_names else row.is_default and row.part in (spec.parts or (row.part,))
        )
        and (row.tasks(tasks) or not row.has_cells)
    ]
    return rows, [name for name in tasks if any(name in row.tasks(tasks) for row in rows)]


def _pretrained_first(rows: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """Return the rows whose own pretraining these rows start from."""
    names = {row.name if row.is_pretrained_anew else row.pretrained_as for row in rows}
    return [row for row in all_rows() if row.name in names]


def has_own_cell(row: EvidenceRow) -> bool:
    """Return whether a row's cells are assets of the evidence, and not the models that every cohort has."""
    return row.has_cells and row.model_of_cohort is None


def inputs_name(source: str) -> str:
    """Return the asset that every row of the evidence comes after."""
    return f"{source}_evidence_inputs"


def inputs_asset(source: str, tasks: Sequence[str]) -> dg.AssetsDefinition:
    """Return the asset `<source>_evidence_inputs`, by which the rows hang together with the rest of the graph.

    It makes nothing. Without it the UI draws each of a hundred rows on the pages of the shards', the labels' and the
    models' groups, which everybody opens.
    """

    @dg.asset(
        name=inputs_name(source),
        deps=[
            f"{source}_seqset",
            *([f"{source}_nest"] if tasks else []),
            *(f"{task}_labels" for task in tasks),
        ],
        group_name=f"{source}_evidence_inputs",
        kinds={"python"},
        code_version="1",
        description=(
            "What the rows of the evidence start from: shards and, where there are tasks, labels and NEST as it was "
            "pretrained."
        ),
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def inputs(workspace: Workspace) -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(
            data_version=dg.DataVersion(step_key(workspace.experiment_layout(source), {}))
        )

    return inputs


def pretraining_asset(source: str, row: EvidenceRow) -> dg.AssetsDefinition:
    """Return the asset `<source>_evidence_<row>`: the row's own pretraining."""
    assert row.system is not None, "boosted trees are not pretrained"

    @dg.asset(
        name=EvidenceAssets(source).pretraining(row),
        deps=[inputs_name(source)],
        metadata={
            ONLY_AFTER: [inputs_name(source)],
            ALSO_READS: [f"{source}_{table}" for table in TABLES],
        },
        group_name=f"{source}_evidence_{row.part}",
        kinds={"pytorch"},
        op_tags=TRAINING,
        code_version=pretraining_code(row.system),
        description=f"{row.title}, pretrained. {row.about}",
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def pretraining(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        settings = workspace.settings
        preset = preset_for(settings.model, gpu=has_gpu())
        of_nest = flags_of_nest(settings, sources()[source].pretraining)
        own_flags = {"threads": 1, **row.pretraining_flags(of_nest, preset)}  # two steps run at the same time
        name = EvidenceAssets(source).pretraining(row)
        card = pretrain(context, workspace, pipes, source, name, own_flags, failures_are_results=True)
        return pretraining_result(workspace.experiment_layout(source).model(name), card)

    return pretraining


def cell_asset(source: str, row: EvidenceRow, task: str) -> dg.AssetsDefinition:
    """Return the asset of one cell: a row fine-tuned, or fitted, on a cohort's labels and scored."""
    start = f"{source}_vocab" if row.system is None else EvidenceAssets(source).pretraining(row)
    own_start = [start] if start not in (f"{source}_vocab", f"{source}_nest") else []
    before = [inputs_name(source), *own_start]

    @dg.asset(
        name=EvidenceAssets(source).cell(row, task),
        deps=before,
        metadata={
            ONLY_AFTER: [inputs_name(source)],
            ALSO_READS: [f"{source}_seqset", f"{task}_labels", *({start} - {*own_start})],
        },
        group_name=f"{source}_evidence_{row.part}",
        kinds={"lightgbm" if row.system is None else "pytorch"},
        code_version=boosting_code() if row.system is None else finetuning_code(row.system),
        description=f"{row.title} on {task}: the same patients, cut and search as every other row. {row.about}",
        owners=RESEARCH_TEAM,
        # all pretrainings first
        op_tags={"dagster/priority": "-1"} | ({} if row.system is None else TRAINING),
    )
    @with_clear_errors
    def cell(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        layout = workspace.experiment_layout(source)
        card = _make_cell(context, workspace, pipes, layout, source, row, task)
        name, files = EvidenceAssets(source).cell(row, task), {}
        if not card.failure:  # else the folders may hold an earlier model
            files = {
                **model_folder_metadata(layout.model(name)),
                **predictions_metadata(layout.report(name) / "predictions.parquet"),
            }
        return dg.MaterializeResult(
            metadata={**metrics_metadata(card), **files},
            data_version=dg.DataVersion(card.version),
        )

    return cell


def _make_cell(
    context: dg.AssetExecutionContext,
    workspace: Workspace,
    pipes: dg.PipesSubprocessClient,
    layout: Layout,
    source: str,
    row: EvidenceRow,
    task: str,
) -> StepCard:
    """Train one cell unless that is done already, and return its card."""
    settings, name = workspace.settings, EvidenceAssets(source).cell(row, task)
    out, report = layout.model(name), layout.report(name)
    options: dict[str, Any] = {"seed": settings.seed}
    paths: dict[str, Path | str] = {
        "labels": layout.labels(task),
        "seqset": layout.seqset,
        "predictions": report / "predictions.parquet",
    }
    if row.system is None:
        command = "lightgbm"
        options |= dict(row.finetuning)
        paths |= {"vocab": layout.vocab, "key": step_key(layout, options)}
        options |= seed_flags(settings)
    else:
        command = "finetune"
        options |= {"threads": 1} | row.finetuning_flags(FineTuningOptions.from_text(settings.finetuning))
        parent = EvidenceAssets(source).pretraining(row)
        # depends neither on the further seeds nor on the pretrained weights, which the training itself compares
        paths["key"] = step_key(layout, options, exclude=(step_of(parent, source),))
        paths["pretrained"] = layout.model(parent)
        options |= finetuning_seed_flags(settings)

    def make() -> StepCard:
        return result_card(run_nest_model(context, pipes, out, command, *flags({**options, **paths})))

    return cached_step(layout, [out, report], options, make, failures_are_results=True)


def removals_asset(source: str, tasks: Sequence[str]) -> dg.AssetsDefinition:
    """Return the asset `<source>_evidence_removals`: what NEST loses on each task without parts of its input."""
    models = [f"{task}_nest" for task in tasks]

    @dg.asset(
        name=EvidenceAssets(source).removals,
        deps=models,
        metadata={ALSO_READS: [f"{source}_seqset", *(f"{task}_labels" for task in tasks)]},
        group_name=f"{source}_evidence_systems",
        kinds={"pytorch"},
        op_tags=TRAINING,
        code_version=finetuning_code("nest", "nest_model.commands.removals"),
        description=(
            "What NEST loses on the test patients when events of one kind, or a set, are removed, beside as many "
            "random events."
        ),
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def removals(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        layout = workspace.experiment_layout(source)
        out = layout.model(EvidenceAssets(source).removals)

        def make() -> StepCard:
            remove_outputs(*out.rglob("removals.json"))
            metrics: dict[str, float] = {}
            for task, model in zip(tasks, models, strict=True):
                step = step_of(model, source)
                if (
                    not StepCard.path(layout.cards, step).exists()
                    or StepCard.read(layout.cards, step).warnings
                ):
                    continue  # not made, failed or not trainable
                paths = {"model": layout.model(model), "labels": layout.labels(task), "seqset": layout.seqset}
                event = run_nest_model(
                    context, pipes, out / task, "removals", *flags({**paths, "threads": 1})
                )
                metrics |= {f"{task}_{name}": value for name, value in result_card(event).metrics.items()}
            return StepCard(step="removals", contract="removals/1", metrics=metrics)

        card = cached_step(layout, [out], {}, make, partial=True, failures_are_results=True)
        metadata = metrics_metadata(card) if card.failure else removals_metadata(out, tasks)
        return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(card.version))

    return removals


def removals_metadata(folder: Path, tasks: Sequence[str]) -> dict[str, dg.MetadataValue]:
    """Return a picture of each task for the UI; a task that was not measured, or is withheld, has none."""
    from nest_model.report import previews
    from nest_model.report.tasks import title_of

    return pictures_metadata(
        {title_of(task): png for task in tasks for png in previews.removal_previews(folder / task).values()}
    )


def page_asset(
    source: str, rows: Sequence[EvidenceRow], tasks: Sequence[str], about: str
) -> dg.AssetsDefinition:
    """Return the asset `<source>_evidence_page`: the page over all cells."""
    pretrainings = {EvidenceAssets(source).pretraining(row) for row in rows if row.system is not None}
    cells = [EvidenceAssets(source).cell(row, task) for row in rows for task in row.tasks(tasks)]
    removals = [EvidenceAssets(source).removals] if has_removals(rows, tasks) else []
    encoders = sorted(
        {encoder_module(row.system) for row in rows if row.system}
    )  # the page measures their cost

    @dg.asset(
        name=f"{source}_evidence_page",  # the job has the name without `_page`
        deps=sorted({*pretrainings, *cells, *removals}),
        metadata={
            MAY_READ: [*(f"{source}_{table}" for table in TABLES), *(f"{task}_labels" for task in tasks)]
        },
        group_name=f"{source}_evidence_page",
        kinds={"html"},
        code_version=code_version("nest_model.evidence.report", *encoders, entry_point=COMMAND_LINE),
        description=f"{about} Each score has its interval, and stands beside the paper's own.",
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def evidence(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        from nest_model.evidence import page  # matplotlib: only where it draws

        layout = workspace.experiment_layout(source)
        out = layout.report(f"{source}_evidence")
        contents = {"rows": ",".join(row.name for row in rows), "tasks": ",".join(tasks)}

        def make() -> StepCard:
            arguments = flags({"root": layout.root, **contents})
            return result_card(run_nest_model(context, pipes, out, "evidence", *arguments))

        card = cached_step(layout, [out], contents, make, partial=True)
        return dg.MaterializeResult(
            metadata=comparison_metadata(page, out), data_version=dg.DataVersion(card.version)
        )

    return evidence

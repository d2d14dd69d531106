"""The patients of `NEST_NEW_MIMIC_DIR`, tokenized with the fitted vocabulary and scored by every cohort's NEST."""

from collections.abc import Sequence
from datetime import date
from typing import Any

import dagster as dg
import pyarrow.parquet as pq

from assets.cohort_files import name_of_cohort_job
from assets.metadata import card_metadata
from assets.models.common import RESEARCH_TEAM, flags
from assets.operations.monitor import monitor_asset
from assets.resources import Workspace
from assets.runtime.child_process import run_nest_model
from assets.runtime.materialize import with_clear_errors
from assets.sources.common import OWNERS
from pipelines.__main__ import write_new_patients
from pipelines.sources.mimic.steps import find_source
from schemas.cards import StepCard
from schemas.errors import NestError
from schemas.io.private import make_private
from schemas.io.verify import verified
from schemas.nouns import with_noun
from schemas.suppress import disclosing, suppress_count

GROUP, JOB = "mimic_operations", "mimic_scores"
SCORED = "patients scored"
"""What the page of a cohort's scores calls the number of tonight's scores: one for each patient."""


def scoring_definitions(cohorts: Sequence[str]) -> dg.Definitions:
    """Return the assets, the job and the schedule that score new patients for these cohorts; the schedule is off."""
    job = dg.define_asset_job(
        JOB,
        dg.AssetSelection.groups(GROUP),
        description="Tokenize the patients of NEST_NEW_MIMIC_DIR, score them, and compare them with those before.",
    )
    schedule = dg.ScheduleDefinition(
        name="mimic_scores_every_night",
        job=job,
        cron_schedule="0 5 * * *",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Scores last night's admissions at 5 in the morning, UTC.",
    )
    return dg.Definitions(
        assets=[new_shards, *(scores_asset(cohort) for cohort in cohorts), monitor_asset(cohorts, GROUP)],
        jobs=[job],
        schedules=[schedule],
    )


@dg.asset(
    name="mimic_new_seqset",
    deps=["mimic_vocab"],
    group_name=GROUP,
    kinds={"polars", "parquet"},
    owners=OWNERS,
)
@with_clear_errors
def new_shards(workspace: Workspace) -> dg.MaterializeResult[Any]:
    """Shards of the patients of NEST_NEW_MIMIC_DIR, under the vocabulary, cuts and drug lookup of `mimic_full`."""
    layout, settings = workspace.layout("mimic"), workspace.settings
    if settings.new_mimic_dir is None:
        raise NestError("NEST_NEW_MIMIC_DIR is not set; it names the folder with the patients to score.")
    if not layout.vocab.exists():
        raise NestError(f"{layout.vocab}: no such file; run mimic_full once before patients are scored.")
    make_private(layout.new_patients.root)
    crosswalks = settings.vocab_dir or layout.raw / "vocab"
    source = find_source(settings.new_mimic_dir, crosswalks, may_be_empty=True)
    card = write_new_patients(source, layout, layout.new_patients)
    with disclosing(False):
        metadata = card_metadata(card)
    log = dg.AssetExecutionContext.get().log
    for warning in card.warnings:
        log.warning(warning)
    if not card.counts["sets"]:
        log.info("none of the new patients has an admission: nobody is scored")
    return dg.MaterializeResult(metadata=metadata, data_version=dg.DataVersion(card.version))


def scores_asset(cohort: str) -> dg.AssetsDefinition:
    """Return the asset `<cohort>_scores`: the scores of today's new patients."""

    @dg.asset(
        name=f"{cohort}_scores",
        deps=["mimic_new_seqset", f"{cohort}_nest"],
        group_name=GROUP,
        kinds={"pytorch", "parquet"},
        description=f"The last stay of each new patient, scored by {cohort}_nest; a file a day.",
        owners=RESEARCH_TEAM,
    )
    @with_clear_errors
    def scores(
        context: dg.AssetExecutionContext, workspace: Workspace, pipes: dg.PipesSubprocessClient
    ) -> dg.MaterializeResult[Any]:
        layout = workspace.layout("mimic")
        model = layout.model(f"{cohort}_nest")
        if not (model / "README.md").exists():  # not trainable, or not made yet
            context.log.warning(
                f"{model}: there is no model; run {name_of_cohort_job(cohort)}, or see there why it is not trainable."
            )
            return dg.MaterializeResult()
        if not StepCard.read(layout.new_patients.cards, "seqset").counts["sets"]:
            context.log.info("0 patients scored: none of the new patients has an admission")
            return dg.MaterializeResult(metadata={SCORED: "0"})
        file = layout.scores(cohort) / f"{date.today().isoformat()}.parquet"
        make_private(file.parent)
        options = flags({"model": model, "seqset": layout.new_patients.seqset})
        run_nest_model(context, pipes, file, "predict", *options)
        patients = suppress_count(pq.ParquetFile(verified(file)).metadata.num_rows)
        context.log.info(f"{with_noun(patients, 'patient')} scored")
        return dg.MaterializeResult(metadata={SCORED: patients, "scores": dg.MetadataValue.path(file)})

    return scores

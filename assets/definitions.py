"""Everything Dagster sees, put together in one function."""

from functools import cache
from pathlib import Path

import dagster as dg

from assets.checks import (
    audit_checks,
    card_checks,
    cohort_checks,
    evidence_check,
    hash_check,
    pretraining_checks,
    source_checks,
)
from assets.cohorts import COHORT_FOLDER, labels_asset, unreadable_cohort_asset
from assets.environment.nest_environment import checkout_above
from assets.jobs import cohort_job, jobs, unreadable_cohort_job
from assets.models.cohort_models import finetuning_asset, leak_audit_asset, lightgbm_asset, yardsticks_asset
from assets.models.evidence import evidence_assets
from assets.models.few_shot import few_shot_asset
from assets.models.next_basket import next_basket_assets
from assets.models.pretrain import pretraining_asset
from assets.models.report import cohort_report_asset, report_asset
from assets.operations.input_sensor import input_sensor
from assets.operations.scoring import scoring_definitions
from assets.resources import Workspace
from assets.runtime.console import console
from assets.runtime.executor import exclusive_executor
from assets.runtime.instance import RefusedRunError
from assets.runtime.sqlite_history import relax_sqlite_sync
from assets.runtime.unknown_assets import show_unknown_assets_as_messages
from assets.sources.common import source_assets
from assets.sources.fetch import FETCHED_ASSETS, as_published
from assets.sources.mimic_meds import mimic_meds
from pipelines.events.split import TASK_SPLIT
from schemas.cohort import Cohort, read_folder, source_of_bad_file
from schemas.errors import NestError
from schemas.loading import loading
from schemas.settings import Settings
from schemas.sources import SourceSpec, cohort_sources, sources


@dg.definitions
def defs() -> dg.Definitions:
    _refuse_code_of_another_checkout()
    relax_sqlite_sync()
    return _built()


def _refuse_code_of_another_checkout() -> None:
    """Refuse to run if the working folder belongs to another checkout.

    Raises:
        RefusedRunError: this process was started in one.
    """
    current_checkout, code_checkout = checkout_above(Path.cwd()), Path(__file__).resolve().parent.parent
    if current_checkout not in (None, code_checkout):
        raise RefusedRunError(
            f"{current_checkout}: this command would run the code of {code_checkout} here, not this checkout's. Run "
            "`make setup` here for an environment of its own, or take the other one out of PYTHONPATH."
        )


@cache
def _built() -> dg.Definitions:
    """Build once in a process and those forked from it; to load them anew Dagster starts another process."""
    with loading():
        definitions = build(COHORT_FOLDER)
    show_unknown_assets_as_messages(definitions)
    return definitions


def build(folder: Path) -> dg.Definitions:
    """Return the definitions with the cohorts of a folder."""
    by_source = {name: _up_to_pretraining(spec) for name, spec in sources().items()}
    reports = [report_asset(source, []) for source in cohort_sources()]
    base_assets = [asset for assets in (*by_source.values(), reports) for asset in assets]
    cohorts, unreadable_files = read_folder(
        folder, {key.to_user_string() for asset in base_assets for key in asset.keys}, tuple(cohort_sources())
    )
    names = {cohort.cohort for cohort in cohorts}  # a bad file may have the name of a good file's cohort
    mimic_cohorts = [cohort.cohort for cohort in cohorts if cohort.source == "mimic"]
    chain = dg.Definitions(
        assets=[
            *(asset for source in by_source for asset in (*by_source[source], *_models(source, cohorts))),
            *(
                unreadable_cohort_asset(source_of_bad_file(error, tuple(cohort_sources())), name, error)
                for name, error in unreadable_files.items()
            ),
            *FETCHED_ASSETS,
        ],
        asset_checks=[
            *(check for spec in sources().values() for check in source_checks(spec.name, spec.suites)),
            hash_check("mimic", TASK_SPLIT),
            card_checks("mimic", "mimic_meds", "meds"),
            as_published,
            *(pretraining_checks(source) for source in sources()),
            *(evidence_check(name) for name, spec in sources().items() if spec.evidence),
            *(check for cohort in cohorts for check in cohort_checks(cohort.source, cohort.cohort)),
            *(audit_checks(cohort.source, cohort.cohort) for cohort in cohorts),
        ],
        jobs=[
            *jobs(),
            *(cohort_job(cohort.cohort) for cohort in cohorts),
            *(unreadable_cohort_job(name) for name in unreadable_files if name not in names),
        ],
        sensors=[input_sensor(source) for source in sources()],
        resources={"workspace": Workspace(), "pipes": dg.PipesSubprocessClient()},
        executor=exclusive_executor,
        loggers={"console": console},
    )
    return dg.Definitions.merge(chain, scoring_definitions(mimic_cohorts)) if scores_new_patients() else chain


def scores_new_patients() -> bool:
    """Return whether patients are scored each night: their folder is set, and the models are those of no experiment."""
    try:
        settings = Settings(mimic_dir=None)
        return settings.new_mimic_dir is not None and settings.experiment is None
    except NestError:  # refused when a run begins
        return False


FURTHER = {"mimic": lambda: [mimic_meds], "instacart": next_basket_assets}
"""What only one source has, beside its shards and its pretrained model."""


def _up_to_pretraining(spec: SourceSpec) -> list[dg.AssetsDefinition]:
    """Return the assets of a source that need no cohort."""
    further = FURTHER[spec.name]() if spec.name in FURTHER else []
    return [*source_assets(spec.name), pretraining_asset(spec.name, spec.pretraining), *further]


def _models(source: str, cohorts: list[Cohort]) -> list[dg.AssetsDefinition]:
    """Return the labels, models and page of each of a source's cohorts, and the report over all of them."""
    if source not in cohort_sources():
        return []
    source_cohorts = [cohort for cohort in cohorts if cohort.source == source]
    names = [cohort.cohort for cohort in source_cohorts]
    makers = (finetuning_asset, lightgbm_asset, yardsticks_asset)
    return [
        *(labels_asset(source, cohort) for cohort in source_cohorts),
        *(leak_audit_asset(source, name) for name in names),
        *(
            make(source, cohort.cohort, cohort.thresholds or ())
            for make in makers
            for cohort in source_cohorts
        ),
        *(cohort_report_asset(source, cohort) for cohort in source_cohorts),
        *(few_shot_asset(source, cohort.cohort) for cohort in source_cohorts if cohort.is_yes_or_no),
        report_asset(source, source_cohorts),
        *evidence_assets(sources()[source], names),
    ]

"""Everything Dagster sees, put together in one function."""

from functools import cache
from pathlib import Path

import dagster as dg

from assets.checks import (
    audit_checks,
    card_checks,
    cohort_checks,
    hash_check,
    pretraining_checks,
    source_checks,
)
from assets.cohorts import FOLDER, labels, unreadable
from assets.environment.nest_environment import checkout_above
from assets.jobs import JOBS, of_cohort
from assets.models.training import (
    cohort_report,
    fine_tuned,
    leak_audit,
    lightgbm,
    pretrained,
    report,
    yardsticks,
)
from assets.resources import Workspace
from assets.runtime.executor import two_at_a_time
from assets.runtime.instance import RefusedRunError
from assets.runtime.sqlite_history import write_seldom
from assets.sources.fetch import FETCHED_ASSETS, as_published
from assets.sources.instacart import INSTACART_ASSETS, INSTACART_CHECKS
from assets.sources.meds import MEDS_ASSETS
from assets.sources.mimic import MIMIC_ASSETS
from assets.sources.pcornet import PCORNET_ASSETS, UNORDERED
from pipelines.events.split import TASK_SPLIT
from schemas.cohort import Cohort, meant_for, read_folder
from schemas.expectations import MEDS_SUITES, PCORNET_SUITES, TABLE_SUITES

SOURCES = {
    "mimic": (MIMIC_ASSETS, TABLE_SUITES),
    "meds": (MEDS_ASSETS, MEDS_SUITES),
    "pcornet": (PCORNET_ASSETS, PCORNET_SUITES),
}
"""By its name, the assets of a source up to its shards, and the suites of its tables."""

MODELS = {"pcornet": UNORDERED}
"""What a source's pretraining is told of its sets, where they are not stays with an order inside."""


@dg.definitions
def defs() -> dg.Definitions:
    _refuse_code_of_another_checkout()
    write_seldom()
    return _built()


def _refuse_code_of_another_checkout() -> None:
    """Refuse to run this code in another checkout than its own, whose own code the user means.

    Raises:
        RefusedRunError: this process was started in one.
    """
    here, own = checkout_above(Path.cwd()), Path(__file__).resolve().parent.parent
    if here not in (None, own):
        raise RefusedRunError(
            f"{here}: this command would run the code of {own} here, not this checkout's. Run `make setup` here for an "
            "environment of its own, or take the other one out of PYTHONPATH."
        )


@cache
def _built() -> dg.Definitions:
    """Build once in a process and those forked from it; to load them anew Dagster starts another process."""
    return build(FOLDER)


def build(folder: Path) -> dg.Definitions:
    """Return the definitions with the cohorts of a folder."""
    chains = {
        source: [*assets, pretrained(source, MODELS.get(source))] for source, (assets, _) in SOURCES.items()
    }
    reports = [report(source, []) for source in SOURCES]
    built = [asset for assets in (*chains.values(), reports, INSTACART_ASSETS) for asset in assets]
    cohorts, unreadable_files = read_folder(
        folder, {key.to_user_string() for asset in built for key in asset.keys}, SOURCES
    )
    return dg.Definitions(
        assets=[
            *(asset for source in SOURCES for asset in (*chains[source], *_models(source, cohorts))),
            *(unreadable(meant_for(error, SOURCES), name, error) for name, error in unreadable_files.items()),
            *FETCHED_ASSETS,
            *INSTACART_ASSETS,
        ],
        asset_checks=[
            *(check for source, (_, suites) in SOURCES.items() for check in source_checks(source, suites)),
            hash_check("mimic", TASK_SPLIT),
            card_checks("mimic", "mimic_meds", "meds"),
            as_published,
            *INSTACART_CHECKS,
            *(pretraining_checks(source) for source in (*SOURCES, "instacart")),
            *(check for cohort in cohorts for check in cohort_checks(cohort.source, cohort.cohort)),
            *(audit_checks(cohort.source, cohort.cohort) for cohort in cohorts),
        ],
        jobs=[*JOBS, *(of_cohort(cohort.cohort) for cohort in cohorts)],
        resources={"workspace": Workspace(), "pipes": dg.PipesSubprocessClient()},
        executor=two_at_a_time,
    )


def _models(source: str, cohorts: list[Cohort]) -> list[dg.AssetsDefinition]:
    """Return the labels, models and page of each of a source's cohorts, and the report over all of them."""
    own = [cohort for cohort in cohorts if cohort.source == source]
    names = [cohort.cohort for cohort in own]
    makers = (leak_audit, fine_tuned, lightgbm, yardsticks, cohort_report)
    return [
        *(labels(source, cohort) for cohort in own),
        *(make(source, name) for make in makers for name in names),
        report(source, names),
    ]

"""Everything Dagster sees, put together in one function."""

from pathlib import Path

import dagster as dg

from assets.checks import cohort_checks, source_checks
from assets.cohorts import FOLDER, labels, unreadable
from assets.executor import two_at_a_time
from assets.fetch import FETCHED_ASSETS, as_published
from assets.jobs import JOBS
from assets.mimic import MIMIC_ASSETS
from assets.resources import Workspace
from assets.training import fine_tuned, lightgbm, pretrained, report
from schemas.cohort import read_folder


@dg.definitions
def defs() -> dg.Definitions:
    return build(FOLDER)


def build(folder: Path) -> dg.Definitions:
    """Return the definitions with the cohorts of a folder."""
    mimic = [*MIMIC_ASSETS, pretrained("mimic")]
    taken = {key.to_user_string() for asset in (*mimic, report("mimic", [])) for key in asset.keys}
    cohorts, unreadable_files = read_folder(folder, taken)
    names = [cohort.cohort for cohort in cohorts]
    return dg.Definitions(
        assets=[
            *mimic,
            *(labels("mimic", cohort) for cohort in cohorts),
            *(unreadable("mimic", name, error) for name, error in unreadable_files.items()),
            *(fine_tuned("mimic", name) for name in names),
            *(lightgbm("mimic", name) for name in names),
            report("mimic", names),
            *FETCHED_ASSETS,
        ],
        asset_checks=[
            *source_checks("mimic"),
            as_published,
            *(check for name in names for check in cohort_checks("mimic", name)),
        ],
        jobs=JOBS,
        resources={"workspace": Workspace(), "pipes": dg.PipesSubprocessClient()},
        executor=two_at_a_time,
    )

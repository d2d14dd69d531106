"""Everything Dagster sees, put together in one function."""

from pathlib import Path

import dagster as dg

from assets.checks import cohort_checks, source_checks
from assets.cohorts import FOLDER, labels, unreadable
from assets.fetch import FETCHED_ASSETS, as_published
from assets.jobs import JOBS
from assets.mimic import MIMIC_ASSETS
from assets.resources import Workspace
from assets.training import fine_tuned, lightgbm, pretrained, report
from schemas.cohort import read_folder

TWO_AT_A_TIME = dg.multiprocess_executor.configured(
    {
        "max_concurrent": 2,
        # forked from a process that has the heavy imports, a step starts in half a second
        "start_method": {
            "forkserver": {
                "preload_modules": ["assets.dies_with_run", "assets.definitions", "schemas.validation"]
            }
        },
    },
    name="two_at_a_time",
)
"""A small training does not fill two cores, two do; each is a process of its own and told to use one thread."""


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
        executor=TWO_AT_A_TIME,
    )

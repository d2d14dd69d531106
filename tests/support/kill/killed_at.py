"""`python -m tests.support.kill.killed_at N [NAME]`: runs the data steps and kills them at their N-th change.

NAME: count only changes to paths in the data folder that begin with it.
Prints the number of changes if the run was not killed.
"""

import os
import sys
from pathlib import Path

import dagster as dg

from assets.cohorts import COHORT_FOLDER
from assets.definitions import build
from assets.resources import Workspace
from tests.support.kill.changes import kill_at


def main() -> None:
    data = os.environ["NEST_DATA_DIR"]
    assets = [
        asset
        for asset in build(COHORT_FOLDER).assets
        if isinstance(asset, dg.AssetsDefinition)
        and set(asset.group_names_by_key.values()) <= {"mimic_etl", "mimic_cohorts"}
    ]
    below = sys.argv[2] if len(sys.argv) > 2 else ""
    changes = kill_at(int(sys.argv[1]), f"{Path(data).resolve()}{below and '/'}{below}")
    assert dg.materialize(assets, resources={"workspace": Workspace()}).success
    sys.stdout.write(f"changes: {changes[0]}\n")


if __name__ == "__main__":
    main()

"""Shows an unknown asset of a Dagster command as one message.

`dagster asset materialize --select` ends with a traceback of its own where an asset does not exist. The asset may be
one of a cohort whose file cannot be read, so the faults of these files are shown too.
"""

import sys
from types import TracebackType

import dagster as dg

from assets.cohort_files import FAULTS


def show_unknown_assets_as_messages(definitions: dg.Definitions) -> None:
    """Make this process, where it ends because an asset is unknown, print one message in place of a traceback."""
    show_traceback = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if not isinstance(error, dg.DagsterInvalidSubsetError):
            show_traceback(kind, error, traceback)
            return
        sys.stderr.write(f"error: {str(error).strip()}\n")
        for spec in definitions.resolve_all_asset_specs():
            if FAULTS in spec.metadata:
                sys.stderr.write(
                    f"a cohort file cannot be read, so its assets are unknown: {spec.metadata[FAULTS]}\n"
                )

    sys.excepthook = show

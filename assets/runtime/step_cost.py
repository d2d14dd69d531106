"""What a step costs: the CPU time and the peak memory of its process and of the commands it runs."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg


@contextmanager
def measured_cost(context: dg.AssetExecutionContext) -> Iterator[None]:
    """Add to the materialization the CPU minutes of the work done within, and the peak memory of the largest process.

    Both count this process and the commands that it has waited for; work kept from an interrupted run is not counted.
    The peak is since the process began, so it is the step's own only where each step has its process, as in a job. It
    includes the memory shared with the process that it was forked from.
    """
    minutes_before = _cpu_minutes()
    yield
    context.add_asset_metadata(
        {"cpu_minutes": round(_cpu_minutes() - minutes_before, 3), "memory_peak_gib": round(_peak_gib(), 2)}
    )


def _usages() -> list[resource.struct_rusage]:
    return [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]


def _cpu_minutes() -> float:
    """Return the CPU minutes of this process and of those it has waited for."""
    return sum(usage.ru_utime + usage.ru_stime for usage in _usages()) / 60


def _peak_gib() -> float:
    """Return the largest memory any of these processes had, in GiB."""
    return max(usage.ru_maxrss for usage in _usages()) / 2**20  # Linux counts in KiB

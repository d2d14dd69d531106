"""Runs a stage in a process of its own, as Dagster does, and measures its cost."""

import multiprocessing
import os
import platform
import resource
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from pydantic import BaseModel, ConfigDict


class Cost(BaseModel):
    """The cost of one stage: its own process, from the fork to its end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str
    cpu_s: float
    wall_s: float
    peak_rss_mib: float


class Machine(BaseModel):
    """The machine of a measurement, and its load before."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cpu: str
    cores: int
    memory_gib: float
    python: str
    load_1_min: float

    @property
    def words(self) -> str:
        """Return a sentence about the machine."""
        return f"{self.name}; load before {self.load_1_min:.2f}."

    @property
    def name(self) -> str:
        """Return the machine without its load, as part of a sentence."""
        return f"{self.cores} cores of {self.cpu}, {self.memory_gib} GiB, Python {self.python}"

    @classmethod
    def this(cls) -> "Machine":
        with open("/proc/cpuinfo") as file:
            models = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return cls(
            cpu=models[0] if models else platform.machine(),
            cores=len(os.sched_getaffinity(0)),
            memory_gib=round(memory / 2**30, 1),
            python=platform.python_version(),
            load_1_min=round(os.getloadavg()[0], 2),
        )


def measure_stage(
    stage: str, work: Callable[..., Any], *arguments: Any, preload: list[str]
) -> tuple[Any, Cost]:
    """Run `work` in a process forked from one that has loaded the modules; return its result and its cost.

    Raises:
        RuntimeError: the process failed; its message is on stderr.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(preload)
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, stage, work, arguments))
    process.start()
    theirs.close()
    try:
        result, cost = ours.recv()
    except EOFError:
        raise RuntimeError(f"stage {stage} failed") from None
    process.join()
    return result, cost


def _run(connection: Connection, stage: str, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    wall = time.monotonic()
    result = work(*arguments)
    used = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = Cost(
        stage=stage,
        cpu_s=round(used.ru_utime + used.ru_stime + children.ru_utime + children.ru_stime, 2),
        wall_s=round(time.monotonic() - wall, 2),
        peak_rss_mib=round(max(used.ru_maxrss, children.ru_maxrss) / 1024, 0),
    )
    connection.send((result, cost))
    connection.close()

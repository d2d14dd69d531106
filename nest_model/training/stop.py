"""Ending a run: on request, at a place where its state can be saved, or with the process that started it."""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the one that started it dies; on Linux only.

    A training left behind would race the rerun; killed, it continues from its last state.
    """
    parent = os.getppid()
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before it was watched
            os.kill(os.getpid(), signal.SIGKILL)


class StopRequest:
    """Whether someone asked this process to end (SIGTERM or Ctrl-C).

    It ends at once, but inside `deferred`: there a loop looks at `asked` between two steps and saves its state.
    """

    asked = False
    _is_due = False

    def __init__(self, *, at_once: bool = True) -> None:
        # False: on ranks, which end together or wait for each other for ever
        self._may_end_at_once = self._ends_at_once = at_once

    @contextmanager
    def listening(self) -> Iterator["StopRequest"]:
        before = {number: signal.signal(number, self._ask) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let a block end, or look at `asked` itself, before Stopped is raised."""
        self._ends_at_once = False
        try:
            yield
        finally:
            self._ends_at_once = self._may_end_at_once
        self._end_if_due()

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """Within `deferred`, let a long block be broken off."""
        self._ends_at_once = self._may_end_at_once
        try:
            self._end_if_due()
            yield
        finally:
            self._ends_at_once = False

    def _end_if_due(self) -> None:
        if self._ends_at_once and self._is_due:
            raise Stopped(OUT_OF_STEP)

    def _ask(self, number: int, _: object) -> None:
        if self.asked:
            if number == signal.SIGINT:
                raise KeyboardInterrupt  # asked twice: now
            return
        self.asked = self._is_due = True
        self._end_if_due()


OUT_OF_STEP = "stopped between two stages; what was saved before stays. Run the same command to go on."


class Stopped(Exception):  # noqa: N818 (no error: the state is saved and the run can go on)
    """A run ended on request, and the same command goes on with it."""

"""Stop a run on request, where its state can be saved, or with the process that started it."""

import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies; Linux only.

    An orphaned training would race the rerun; a killed one resumes from its last state.
    """
    parent = os.getppid()
    if hasattr(ctypes.CDLL(None), "prctl"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the request took effect
            os.kill(os.getpid(), signal.SIGKILL)


class StopRequest:
    """A request to stop this process (SIGTERM or Ctrl-C).

    It takes effect at once, except inside `deferred`: there a loop checks `is_requested` between steps and saves its
    state.
    """

    is_requested = False
    _is_stop_due = False

    def __init__(self, *, at_once: bool = True) -> None:
        # False on several ranks, which must end together or would wait for each other forever
        self._may_end_at_once = self._ends_at_once = at_once

    @contextmanager
    def handling_signals(self) -> Iterator["StopRequest"]:
        """Handle SIGTERM and Ctrl-C within a block."""
        previous_handlers = {
            number: signal.signal(number, self._handle_signal) for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            yield self
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Delay Stopped until the end of a block, which may check `is_requested` itself."""
        self._ends_at_once = False
        try:
            yield
        finally:
            self._ends_at_once = self._may_end_at_once
        self._stop_if_due()

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Within `deferred`, let a long block be interrupted."""
        self._ends_at_once = self._may_end_at_once
        try:
            self._stop_if_due()
            yield
        finally:
            self._ends_at_once = False

    def _stop_if_due(self) -> None:
        if self._ends_at_once and self._is_stop_due:
            raise Stopped(OUT_OF_STEP)

    def _handle_signal(self, number: int, _: object) -> None:
        if self.is_requested:
            if number == signal.SIGINT:
                raise KeyboardInterrupt  # the second Ctrl-C stops at once
            return
        self.is_requested = self._is_stop_due = True
        self._stop_if_due()


OUT_OF_STEP = "stopped between two stages; saved files stay. Run the same command to continue."


class Stopped(Exception):  # noqa: N818 (not an error: the state is saved and the run can continue)
    """A run stopped on request; the same command continues it."""

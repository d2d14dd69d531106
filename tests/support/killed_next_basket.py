"""`python -m tests.support.killed_next_basket N next-basket …`: runs the command and kills itself after N trials."""

import os
import signal
import sys
from typing import Any

from nest_model.__main__ import main
from nest_model.next_set.run_state import State


def kill_after(trials: int) -> None:
    save = State.save_trials

    def save_and_kill(self: State, trials_so_far: list[Any]) -> None:
        save(self, trials_so_far)
        if len(trials_so_far) == trials:
            os.kill(os.getpid(), signal.SIGKILL)

    State.save_trials = save_and_kill


if __name__ == "__main__":
    kill_after(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))

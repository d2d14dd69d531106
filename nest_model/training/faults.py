"""A loss that is no number, told so that a person can go on: the step, its rows on disk, the last good state."""

from collections.abc import Sequence
from pathlib import Path

from nest_model.data.locations import ShardRows, in_words
from schemas.errors import NestError


def not_finite(
    what: str, where: str, rows: Sequence[ShardRows], last_good: Path | None, learning_rate: float
) -> NestError:
    """Return the error of a loss that is NaN or infinite: the step, its rows, what is left, what to try.

    Args:
        what: the stage and which loss. where: the epoch and step.
        rows: of the step's batch; none for a validation.
    """
    of_rows = f", on {in_words(rows)}" if rows else ""
    kept = f"the last good state is {last_good}" if last_good else "no state was saved yet"
    try_first = "Go on from it with" if last_good else "Train in"
    suspect = ", or look in these rows for values that are no numbers" if rows else ""
    return NestError(
        f"{what} is not finite at {where}{of_rows}; {kept}. {try_first} --precision 32-true, or begin anew "
        f"with a lower --learning-rate (it is {learning_rate:g}){suspect}."
    )

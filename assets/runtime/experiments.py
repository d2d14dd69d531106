"""Where the card of a step lies if a run belongs to a named experiment, and what it takes over from its source."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from schemas.cards import StepCard
from schemas.io.folders import replace_folder
from schemas.layout import Layout
from schemas.sources import sources


def cards_of(layout: Layout, step: str) -> Path:
    """Return the folder of a step's card: an experiment has those of its trainings and pages, its source all others."""
    if not layout.is_experiment:
        return layout.cards
    is_table = step in ("raw", *sources()[layout.source].tables) or step.endswith("_labels")
    return layout.of_source.cards if is_table else layout.cards


def originals(layout: Layout, outputs: Sequence[Path]) -> list[Path]:
    """Return the folders of the source that correspond to an experiment's."""
    return [layout.tables / path.relative_to(layout.root) for path in outputs]


def take_over(layout: Layout, card: StepCard, outputs: Sequence[Path]) -> None:
    """Copy into an experiment the output of a step of its source, whose card the caller has compared.

    Raises:
        InputError: a folder of the experiment has a file that was not made here, or was changed since.
        WriteError: the disk is full or the folder is not writable.
    """
    StepCard.remove(layout.cards, card.step)
    for original, target in zip(originals(layout, outputs), outputs, strict=True):
        if original.is_dir():
            with replace_folder(target) as part:
                shutil.copytree(original, part, dirs_exist_ok=True)

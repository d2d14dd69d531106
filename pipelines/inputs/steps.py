"""What a source is, to whoever runs it: the steps from its input to its shards."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from pipelines.corpus import build as corpus
from schemas.cards import StepCard
from schemas.layout import Layout
from schemas.settings import Settings
from schemas.sources import SourceSpec


@dataclass(frozen=True)
class Step:
    """One step of a run, ready to be done."""

    make: Callable[[], StepCard]  # writes the table and counts what it wrote
    reads: Mapping[str, Any] = field(default_factory=dict)  # the settings and rules its output depends on
    also_writes: tuple[Path, ...] = ()  # beside the table of its name
    reads_splits: bool = True  # False: another split of the same patients changes nothing


class SourceSteps(ABC):
    """The steps of a source for one run, a method for each table: `raw`, `subjects`, `encounters`, `events`, ….

    Every file is written below the layout. A subclass says how the input is found or made, and has the methods of the
    tables its `SourceSpec` names.
    """

    CODE: ClassVar[Mapping[str, tuple[str, ...]]]
    """By table the modules whose code makes it; `other` stands for those that are not named."""

    def __init__(self, settings: Settings, layout: Layout) -> None:
        self.settings, self.layout = settings, layout

    def prepare(self) -> None:
        """Bring the input up to date, where it comes from elsewhere; before anything else of `raw`."""
        return

    @property
    @abstractmethod
    def input_files(self) -> Sequence[Path]:
        """The files and folders a run starts from: the user's own, or those to be made."""

    @property
    @abstractmethod
    def locations(self) -> Mapping[str, Path]:
        """Where the input lies, by the word the page of its asset has for it."""

    def step(self, table: str) -> Step:
        """Return the step that makes a table, or `raw`."""
        step: Step = getattr(self, table)()
        return step

    def vocab(self) -> Step:
        rules = self.settings.rules
        return Step(lambda: corpus.fit_vocab(self.layout, rules), rules.model_dump())

    def seqset(self) -> Step:
        rules = self.settings.rules
        return Step(lambda: corpus.write_seqset(self.layout, rules), rules.model_dump())


def steps_class(spec: SourceSpec) -> type[SourceSteps]:
    """Return the class that has the steps of a source."""
    module, _, name = spec.steps.partition(":")
    found: type[SourceSteps] = getattr(import_module(module), name)
    return found

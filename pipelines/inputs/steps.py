"""What a source is, to whoever runs it: the steps from its input to its shards."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import polars as pl

from pipelines.corpus import build as corpus
from pipelines.reading.code_names import find_dictionaries, write_code_names
from schemas.cards import StepCard
from schemas.errors import ContractError, InputError, NestError
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
    synthetic_unless: str = (
        ""  # of `raw` where it makes synthetic data: the setting that would name a user's own
    )


class SourceSteps(ABC):
    """The steps of a source for one run, a method for each table: `raw`, `subjects`, `encounters`, `events`, ….

    Every file is written below the layout. A subclass says how the input is found or made, and has the methods of the
    tables its `SourceSpec` names.
    """

    CODE: ClassVar[Mapping[str, tuple[str, ...]]]
    """The modules whose code makes each table; `other` is the default."""

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
    def is_in_files(self) -> bool:
        """Whether the input lies in files, whose names, sizes and times say that it has changed."""
        return True

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

    @property
    def dictionary_folders(self) -> Sequence[Path]:
        """The folders in which names of codes are looked for; a folder may lack all of them."""
        return [self.settings.vocab_dir] if self.settings.vocab_dir else []

    def named_codes(self) -> tuple[pl.DataFrame | None, list[str]]:
        """Return vocab, code, name of the codes that the source itself names, and sentences on what is unreadable."""
        return None, []

    def code_names(self) -> Step:
        dictionaries = find_dictionaries(self.dictionary_folders)
        return Step(
            lambda: write_code_names(self.layout, dictionaries, *self.named_codes()),
            {"dictionaries": dictionaries.hashes, "warnings": dictionaries.warnings},
            reads_splits=False,
        )


def keep_synthetic(settings: Settings, layout: Layout) -> Settings:
    """Return the settings with those a folder's synthetic input was made with, each unless this run sets it itself.

    So a run or `make ui` started without them makes no other patients over those that are there.
    """
    try:
        made_with = StepCard.read(layout.cards, "raw").made_with
    except ContractError:  # there is none yet, or it is damaged and made anew
        return settings
    names = made_with.keys() & type(settings).model_fields.keys() - settings.model_fields_set
    return settings.model_copy(update={name: made_with[name] for name in names})


def refuse_synthetic_over_own(step: Step, layout: Layout) -> None:
    """Refuse to make synthetic data in a folder whose tables were made from a user's own input.

    A run started without the settings of the runs before would replace all that was made from that input.

    Raises:
        InputError: it would.
    """
    if not step.synthetic_unless:
        return
    for name in ("raw", "subjects"):
        try:
            is_synthetic = StepCard.read(layout.cards, name).synthetic
        except ContractError:  # there is none yet, or it is damaged
            continue
        if not is_synthetic:
            raise InputError(
                f"{layout.root}: its tables were made from an input of your own, and this run would put synthetic data "
                f"in their place. Set {step.synthetic_unless} as before, or NEST_DATA_DIR to another folder."
            )


def steps_class(spec: SourceSpec) -> type[SourceSteps]:
    """Return the class that has the steps of a source.

    Raises:
        NestError: there is no such class, or it lacks the step of a table.
    """
    module, _, name = spec.steps.partition(":")
    try:
        steps: type[SourceSteps] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise NestError(f"source {spec.name}: {spec.steps} cannot be imported ({error}).") from error
    missing = [table for table in ("raw", *spec.tables) if not hasattr(steps, table)]
    if missing or "other" not in getattr(steps, "CODE", {}):
        lacks = [f"the methods {', '.join(missing)}"] if missing else ["an entry 'other' in CODE"]
        raise NestError(f"source {spec.name}: {spec.steps} lacks {lacks[0]}; see docs/sources.md.")
    return steps

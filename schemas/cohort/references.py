"""Reads the cohorts that a file names in `in_cohort`: files of the same folder, never in a circle."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from schemas.cohort.conditions import InCohort
from schemas.cohort.document import Document, dotted_path
from schemas.cohort.faults import CohortError, Fault, did_you_mean
from schemas.cohort.model import Cohort


class _CircleError(CohortError):
    """A cohort that is inside itself, through the cohorts `names`."""

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__("", [Fault(1, "", f"the cohorts name one another in a circle: {' → '.join(names)}")])


@dataclass
class Folder:
    """The cohort files that one file may name, with those read so far."""

    path: FilePath
    parse: Callable[[FilePath, "Folder"], Cohort]
    names: tuple[str, ...] = ()  # from the first file to the one that is being read
    cohorts: dict[str, Cohort] = field(default_factory=dict)

    def load(self, name: str) -> Cohort:
        """Return the cohort of a file.

        Raises:
            CohortError: it has faults, or there is no such file.
        """
        if name in self.names:
            raise _CircleError((*self.names[self.names.index(name) :], name))
        if name not in self.cohorts:
            self.cohorts[name] = self.parse(self._file(name), self)
        return self.cohorts[name]

    def below(self, name: str) -> "Folder":
        """Return the folder as the file of cohort `name` sees it."""
        return Folder(self.path, self.parse, (*self.names, name), self.cohorts)

    def _file(self, name: str) -> FilePath:
        stems = sorted(file.stem for file in self.path.glob("*.yaml") if file.stem not in self.names)
        if name not in stems:
            message = f"there is no file {name}.yaml in the folder of this file{did_you_mean(name, stems)}"
            raise CohortError("", [Fault(1, "", message)])
        return self.path / f"{name}.yaml"


def add_inner(cohort: Cohort, folder: Folder | None, document: Document) -> list[Fault]:
    """Add the cohorts that a cohort names to it; return a fault for each that cannot be used."""
    faults = []
    for path, condition in cohort.plain_conditions:
        if isinstance(condition, InCohort):
            message = _add(cohort, condition.in_cohort, folder)
            if message:
                faults.append(Fault(document.line(path), dotted_path((*path, "in_cohort")), message))
    return faults


def _add(cohort: Cohort, name: str, folder: Folder | None) -> str:
    """Add one named cohort; return what is wrong with it, or nothing."""
    if folder is None:
        return "only a cohort in a file can name another; save it beside that file"
    try:
        inner = folder.below(cohort.cohort).load(name)
    except CohortError as error:
        if isinstance(error, _CircleError) and folder.names:
            raise
        return error.faults[0].message if not error.file else f"'{name}' has faults: {error.faults[0]}"
    if inner.cohort != name:
        return f"{name}.yaml is the cohort '{inner.cohort}'; give the file and its cohort one name"
    if inner.source != cohort.source:
        return f"'{name}' is about {inner.source} and not {cohort.source}"
    cohort._inner[name] = inner
    return ""

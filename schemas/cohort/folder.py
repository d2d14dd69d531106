"""A folder of cohort files, the good and the bad: one bad file must not take the others down."""

import re
from collections.abc import Collection
from pathlib import Path

from schemas.cohort.faults import CohortError, Fault
from schemas.cohort.model import Cohort
from schemas.cohort.read import parse_cohort

SUFFIXES = ("labels", "nest", "lightgbm")
"""What a cohort becomes: `<cohort>_labels`, `<cohort>_nest`, `<cohort>_lightgbm`."""


def read_folder(folder: Path, taken: Collection[str] = ()) -> tuple[list[Cohort], dict[str, CohortError]]:
    """Return the good cohort files of a folder by name, and what is wrong with the others.

    Args:
        taken: names that exist already, which none of `<cohort>_<suffix>` may be.

    Returns:
        The cohorts, and by a name that can stand beside theirs the faults of each bad file. A second file of one
        cohort is a bad one.
    """
    good: dict[str, Cohort] = {}
    files: dict[str, str] = {}
    faults: list[tuple[Path, CohortError]] = []
    for file in sorted(folder.glob("*.y*ml")):
        try:
            cohort = parse_cohort(file)
            _refuse_taken(file, cohort.cohort, files, taken)
        except CohortError as error:
            faults.append((file, error))
        else:
            good[cohort.cohort], files[cohort.cohort] = cohort, file.name
    bad: dict[str, CohortError] = {}
    for file, fault in faults:
        bad[_free_name(file, {*good, *bad}, taken)] = fault
    return list(good.values()), bad


def _refuse_taken(file: Path, name: str, files: dict[str, str], taken: Collection[str]) -> None:
    if name in files:
        sentence = f"'{name}' is the cohort of {files[name]} already; name each differently"
        raise CohortError(file.name, [Fault(1, "cohort", sentence)])
    clash = [f"{name}_{suffix}" for suffix in SUFFIXES if f"{name}_{suffix}" in taken]
    if clash:
        sentence = f"'{name}' would become {clash[0]}, which exists already; choose another name"
        raise CohortError(file.name, [Fault(1, "cohort", sentence)])


def _free_name(file: Path, used: Collection[str], taken: Collection[str]) -> str:
    """Return a file's name as letters, digits and _, made different from those in use."""
    name = re.sub(r"\W", "_", file.stem, flags=re.ASCII)
    while name in used or f"{name}_labels" in taken:
        name += "_file"
    return name

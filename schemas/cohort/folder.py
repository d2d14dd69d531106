"""Read a folder of cohort files: a bad file does not keep the others from being used."""

import re
from collections.abc import Collection
from pathlib import Path

from schemas.cards import COHORT_ENDINGS
from schemas.cohort.faults import CohortError
from schemas.cohort.model import SOURCES, Cohort
from schemas.cohort.read import parse_cohort
from schemas.cohort.text import read_text


def read_folder(
    folder: Path, used_names: Collection[str] = (), sources: Collection[str] = SOURCES
) -> tuple[list[Cohort], dict[str, CohortError]]:
    """Return the cohorts of the good files of a folder, and the faults of the bad ones.

    If several files have the same `cohort:`, the file of that name is the cohort and the others are bad; if none is,
    all are bad. Messages name files by their path relative to the working directory if they are below it.

    Args:
        used_names: names in use, which no `<cohort>_<suffix>` may have.
        sources: the sources that have tables; a cohort on any other is bad.

    Returns:
        The cohorts, and the faults of each bad file by a name made from its file name.
    """
    cwd = Path.cwd()
    files = sorted((folder.relative_to(cwd) if folder.is_relative_to(cwd) else folder).glob("*.y*ml"))
    read = {file: _read(file, used_names, sources) for file in files}
    owners: dict[str, list[Path]] = {}
    for file, cohort in read.items():
        if isinstance(cohort, Cohort):
            owners.setdefault(cohort.cohort, []).append(file)
    good, bad = list[Cohort](), dict[str, CohortError]()
    for file, cohort in read.items():
        rivals = owners[cohort.cohort] if isinstance(cohort, Cohort) else []
        if isinstance(cohort, CohortError):
            bad[_free_name(file, bad)] = cohort
        elif len(rivals) > 1 and (file.stem != cohort.cohort or _stems(rivals).count(file.stem) > 1):
            bad[_free_name(file, bad)] = _duplicate_name_error(file, cohort, rivals)
        else:
            good.append(cohort)
    return good, bad


def source_of_bad_file(error: CohortError, sources: Collection[str]) -> str:
    """Return the source of a bad file: the one it names, or else the prefix of its file name, or else the first."""
    file = Path(error.file)
    try:
        text = read_text(file)
    except CohortError:
        text = ""
    match = re.search(r"^source:\s*[\"']?(\w+)", text, flags=re.MULTILINE)
    candidates = (match[1] if match else "", file.stem.partition("_")[0])
    return next((source for source in candidates if source in sources), next(iter(sources)))


def _read(file: Path, used_names: Collection[str], sources: Collection[str]) -> Cohort | CohortError:
    try:
        cohort = parse_cohort(file)
    except CohortError as error:
        return error
    if cohort.source not in sources:
        message = f"there are no tables of '{cohort.source}' here yet, only of {', '.join(sources)}"
        return cohort.fault(("source",), message)
    clash = [
        f"{cohort.cohort}_{suffix}" for suffix in COHORT_ENDINGS if f"{cohort.cohort}_{suffix}" in used_names
    ]
    if clash:
        message = f"'{cohort.cohort}' would create {clash[0]}, which already exists; choose another name"
        return cohort.fault(("cohort",), message)
    return cohort


def _duplicate_name_error(file: Path, cohort: Cohort, rivals: Collection[Path]) -> CohortError:
    other_files = ", ".join(str(rival) for rival in rivals if rival != file)
    message = (
        f"'{cohort.cohort}' is also the cohort of {other_files}; give each file its own name as its cohort"
    )
    return cohort.fault(("cohort",), message)


def _stems(files: Collection[Path]) -> list[str]:
    return [file.stem for file in files]


def _free_name(file: Path, used: Collection[str]) -> str:
    """Return a file's name in letters, digits and _, extended until it differs from those in use."""
    name = re.sub(r"\W", "_", file.stem, flags=re.ASCII)
    while name in used:
        name += "_file"
    return name

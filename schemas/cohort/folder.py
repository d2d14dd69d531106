"""A folder of cohort files, the good and the bad: one bad file must not take the others down."""

import re
from collections.abc import Collection
from pathlib import Path

from schemas.cards import OF_A_COHORT
from schemas.cohort.faults import CohortError
from schemas.cohort.model import SOURCES, Cohort
from schemas.cohort.read import parse_cohort
from schemas.cohort.text import read_text


def read_folder(
    folder: Path, taken: Collection[str] = (), sources: Collection[str] = SOURCES
) -> tuple[list[Cohort], dict[str, CohortError]]:
    """Return the good cohort files of a folder by name, and what is wrong with the others.

    Of several files with one `cohort:` the one of that name is the cohort, and the others are bad; where none has it,
    all are. Files are called by their path from the working directory, if they lie below it.

    Args:
        taken: names that exist already, which none of `<cohort>_<suffix>` may be.
        sources: whose tables there are; a cohort on another is bad.

    Returns:
        The cohorts, and by a name made from the file's the faults of each bad file.
    """
    here = Path.cwd()
    files = sorted((folder.relative_to(here) if folder.is_relative_to(here) else folder).glob("*.y*ml"))
    read = {file: _read(file, taken, sources) for file in files}
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
            bad[_free_name(file, bad)] = _shared(file, cohort, rivals)
        else:
            good.append(cohort)
    return good, bad


def meant_for(error: CohortError, sources: Collection[str]) -> str:
    """Return the source a broken file is for: the one it names, or its own name begins with; else the first."""
    file = Path(error.file)
    try:
        text = read_text(file)
    except CohortError:
        text = ""
    said = re.search(r"^source:\s*[\"']?(\w+)", text, flags=re.MULTILINE)
    wanted = (said[1] if said else "", file.stem.partition("_")[0])
    return next((source for source in wanted if source in sources), next(iter(sources)))


def _read(file: Path, taken: Collection[str], sources: Collection[str]) -> Cohort | CohortError:
    try:
        cohort = parse_cohort(file)
    except CohortError as error:
        return error
    if cohort.source not in sources:
        message = f"'{cohort.source}' has no tables here yet; there are those of {', '.join(sources)}"
        return cohort.fault(("source",), message)
    clash = [f"{cohort.cohort}_{suffix}" for suffix in OF_A_COHORT if f"{cohort.cohort}_{suffix}" in taken]
    if clash:
        message = f"'{cohort.cohort}' would become {clash[0]}, which exists already; choose another name"
        return cohort.fault(("cohort",), message)
    ending = next((suffix for suffix in OF_A_COHORT if cohort.cohort.endswith(f"_{suffix}")), None)
    if ending:  # the folders of `stroke_nest` would be those of a cohort `stroke`
        message = (
            f"'{cohort.cohort}' ends as what is made from a cohort does (_{ending}); choose another name"
        )
        return cohort.fault(("cohort",), message)
    return cohort


def _shared(file: Path, cohort: Cohort, rivals: Collection[Path]) -> CohortError:
    others = ", ".join(str(rival) for rival in rivals if rival != file)
    message = f"'{cohort.cohort}' is the cohort of {others} too; give each file a cohort of its own, named as the file"
    return cohort.fault(("cohort",), message)


def _stems(files: Collection[Path]) -> list[str]:
    return [file.stem for file in files]


def _free_name(file: Path, used: Collection[str]) -> str:
    """Return a file's name as letters, digits and _, made different from those in use."""
    name = re.sub(r"\W", "_", file.stem, flags=re.ASCII)
    while name in used:
        name += "_file"
    return name

"""Writes a new cohort file, valid and with comments, as a starting point."""

import os
import re
from pathlib import Path

from pydantic_core import PydanticCustomError

from schemas.cohort.faults import did_you_mean
from schemas.cohort.json_schema import FILE
from schemas.cohort.model import refuse_reserved_ending
from schemas.errors import NestError
from schemas.io.atomic import write_text
from schemas.sources import cohort_sources

_HOSPITAL = """\
# yaml-language-server: $schema={schema}
# All keys with examples: docs/cohorts.md. Check this file with: .venv/bin/python -m pipelines.cohorts check {file}
cohort: {name}                # prefix of all results of this file, and the name of the file
about: another admission with heart failure within 30 days, predicted when a patient goes home   # one sentence
source: {source}                            # source of the tables: {sources}

codes:                                   # named lists of codes; * at the end matches any ending
  heart_failure: {{icd10cm: [I50*], icd9cm: ['428*']}}   # put numeric codes in quotes

index:                                   # the encounters to make predictions for
  encounter: {{with: heart_failure}}       # {{}} means every encounter
  age: [18 years, 90 years]              # at the start: from the first, below the second
  keep: every                            # or: first, nearest 18 months

require:                                 # in this order; each is a row of the attrition table
  - discharged alive: index_alive

predict_at: index.end                    # index.start, index.end, or e.g. index.start + 24 hours
features: {{until: predict_at}}            # use all that is known by then; also: drop_from_index: [DX]
outcome: {{encounters_with: heart_failure, within: 30 days}}   # the event to predict
split: {{hash: [70, 15, 15]}}              # train, validation, test: each patient has one split for all tasks
"""

_CHILDREN = """\
# yaml-language-server: $schema={schema}
# All keys with examples: docs/cohorts.md. Check this file with: .venv/bin/python -m pipelines.cohorts check {file}
cohort: {name}                # prefix of all results of this file, and the name of the file
about: asthma in the emergency room or a stay within 90 days of going home from one   # one sentence
source: {source}                          # source of the tables: {sources}

codes:                                   # named lists of codes; * at the end matches any ending
  asthma: {{icd10cm: [J45*], icd9cm: ['493*']}}   # put numeric codes in quotes

index:                                   # the encounters to make predictions for
  encounter:                             # {{}} means every encounter
    type: [ED, EI, IP]
    discharge_status: [HO, HH]           # home, or home with care
    with: asthma
  age: [2 years, 18 years]               # at the start: from the first, below the second
  keep: every                            # or: first, nearest 18 months

require:                                 # in this order; each is a row of the attrition table
  - 90 days left: {{data_until: index.end + 90 days}}

predict_at: index.end                    # index.start, index.end, or e.g. index.start + 24 hours
features: {{until: predict_at}}            # use all that is known by then; also: drop_from_index: [DX]
outcome: {{any_encounter: {{type: [ED, EI, IP], with: asthma}}, within: 90 days}}   # the event to predict
split: {{test_if_birth_day: [17, 24]}}     # the test split: children born on days 17 to 24 of a month
"""

_TEMPLATES = {"hospital": _HOSPITAL, "children": _CHILDREN}


EXAMPLES = Path(__file__).parents[2] / "assets" / "cohorts" / "examples"
"""Cohort files to copy; nothing loads them."""


def write_template(name: str, source: str, folder: Path) -> Path:
    """Write `<folder>/<name>.yaml` for a source of `schemas.cohort.model.SOURCES` and return its path.

    Raises:
        NestError: the name is not valid, the folder does not exist, or the file exists already.
    """
    path, schema = _new_file(name, folder)
    specs = cohort_sources()
    text = _TEMPLATES[specs[source].cohort_template]
    write_text(
        path,
        text.format(name=name, source=source, sources=", ".join(specs), file=path.as_posix(), schema=schema),
    )
    return path


def write_copy(name: str, example: str, folder: Path) -> Path:
    """Write `<folder>/<name>.yaml` as a copy of an example with a name of its own, and return its path.

    Raises:
        NestError: as `write_template`, or there is no such example.
    """
    names = sorted(file.stem for file in EXAMPLES.glob("*.yaml"))
    if example not in names:
        raise NestError(f"there is no example named '{example}'{did_you_mean(example, names)}")
    path, schema = _new_file(name, folder)
    text = re.sub(
        r"^cohort: .*$", f"cohort: {name}", (EXAMPLES / f"{example}.yaml").read_text("utf-8"), flags=re.M
    )
    write_text(path, f"# yaml-language-server: $schema={schema}\n{text}")
    return path


def _new_file(name: str, folder: Path) -> tuple[Path, str]:
    """Return the path of a new cohort file, and of the JSON Schema as seen from its folder."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NestError(
            f"'{name}' is not a valid name: use lower-case letters, digits and _, with a letter first"
        )
    try:
        refuse_reserved_ending(name)
    except PydanticCustomError as error:
        raise NestError(str(error)) from None
    path = folder / f"{name}.yaml"
    if not folder.is_dir():
        raise NestError(f"{folder}: no such folder. Give an existing folder with --folder")
    if os.path.lexists(path):
        raise NestError(f"{path}: the file exists already. Take another name, or change that file")
    return path, Path(os.path.relpath(FILE, folder.resolve())).as_posix()

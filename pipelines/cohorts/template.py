"""A new cohort file, commented, that is valid as it stands: a place to start from."""

import os
import re
from pathlib import Path

from schemas.cohort.json_schema import FILE
from schemas.errors import NestError

_TEXT = """\
# yaml-language-server: $schema={schema}
# Every key there is, by example: docs/cohorts.md. Before running it: .venv/bin/python -m pipelines.cohorts check {file}
cohort: {name}                # the name of everything made from this file; call the file so too
about: {about}   # one sentence
source: {source}                            # whose tables: mimic, meds, pcornet

codes:                                   # lists of codes, each with a name; * at the end stands for any ending
  {codes}   # a code that is a number goes in quotes

index:                                   # for whom: the encounters a prediction is made for
  {encounter}
  age: {age}                # at its start: from the first on, and under the second
  keep: every                            # or: first, nearest 18 months

require:                                 # in this order; each line is a row of the attrition table
  {require}

predict_at: index.end                    # when: index.start or index.end, or e.g. index.start + 24 hours
features: {{until: predict_at}}            # from what: all known by then; also: drop_from_index: [DX]
outcome: {outcome}   # what is predicted
split: {split}
"""

_HOSPITAL = {
    "about": "another admission with heart failure within 30 days, predicted when a patient goes home",
    "codes": "heart_failure: {icd10cm: [I50*], icd9cm: ['428*']}",
    "encounter": "encounter: {with: heart_failure}       # {} is every encounter",
    "age": "[18 years, 90 years]",
    "require": """- discharged alive: index_alive
  - seen again at all: {any_encounter: {}, after: index.end}""",
    "outcome": "{encounters_with: heart_failure, within: 30 days}",
    "split": "{hash: [70, 15, 15]}              # train, validation, test: one split per patient for every task",
}
_CHILDREN = {
    "about": "asthma again within 90 days of an emergency visit or stay with it, predicted when a child goes home",
    "codes": "asthma: {icd10cm: [J45*], icd9cm: ['493*']}",
    "encounter": "encounter: {type: [ED, EI, IP], with: asthma}   # also: discharge_status: [HO]; {} is every one",
    "age": "[2 years, 18 years]",
    "require": """- went home: {index_has: end}
  - 90 days left: {data_until: index.end + 90 days}""",
    "outcome": "{encounters_with: asthma, within: 90 days}",
    "split": "{test_if_birth_day: [17, 24]}       # tested on are those born on the 17th to 24th of a month",
}
_OF_SOURCE = {"mimic": _HOSPITAL, "meds": _HOSPITAL, "pcornet": _CHILDREN}


def write_template(name: str, source: str, folder: Path) -> Path:
    """Write `<folder>/<name>.yaml` of a cohort on a source, as `schemas.cohort.model.SOURCES` has them, and return it.

    Raises:
        NestError: the name is none a cohort may have, there is no such folder, or the file is there already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NestError(f"'{name}' is not a name: lower-case letters, digits and _, a letter first")
    path = folder / f"{name}.yaml"
    schema = Path(os.path.relpath(FILE, folder.resolve())).as_posix()
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(
                _TEXT.format(
                    name=name, source=source, file=path.as_posix(), schema=schema, **_OF_SOURCE[source]
                )
            )
    except FileExistsError:
        raise NestError(f"{path}: is there already; take another name, or change that file") from None
    except OSError as error:
        raise NestError(
            f"{path}: cannot be written ({error.strerror}); give --folder one that can be"
        ) from None
    return path

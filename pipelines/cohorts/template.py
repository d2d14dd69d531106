"""Writes a new cohort file, valid and with comments, as a starting point."""

import os
import re
from pathlib import Path

from schemas.cohort.json_schema import FILE
from schemas.errors import NestError
from schemas.io.atomic import write_text
from schemas.sources import cohort_sources

_HOSPITAL = """\
# yaml-language-server: $schema={schema}
# Every key there is, by example: docs/cohorts.md. Before running it: .venv/bin/python -m pipelines.cohorts check {file}
cohort: {name}                # the name of everything made from this file; call the file so too
about: another admission with heart failure within 30 days, predicted when a patient goes home   # one sentence
source: {source}                            # whose tables: {sources}

codes:                                   # lists of codes, each with a name; * at the end stands for any ending
  heart_failure: {{icd10cm: [I50*], icd9cm: ['428*']}}   # a code that is a number goes in quotes

index:                                   # for whom: the encounters a prediction is made for
  encounter: {{with: heart_failure}}       # {{}} is every encounter
  age: [18 years, 90 years]              # at its start: from the first on, and under the second
  keep: every                            # or: first, nearest 18 months

require:                                 # in this order; each line is a row of the attrition table
  - discharged alive: index_alive

predict_at: index.end                    # when: index.start or index.end, or e.g. index.start + 24 hours
features: {{until: predict_at}}            # from what: all known by then; also: drop_from_index: [DX]
outcome: {{encounters_with: heart_failure, within: 30 days}}   # what is predicted
split: {{hash: [70, 15, 15]}}              # train, validation, test: one split per patient for every task
"""

_CHILDREN = """\
# yaml-language-server: $schema={schema}
# Every key there is, by example: docs/cohorts.md. Before running it: .venv/bin/python -m pipelines.cohorts check {file}
cohort: {name}                # the name of everything made from this file; call the file so too
about: asthma in the emergency room or a stay within 90 days of going home from one   # one sentence
source: {source}                          # whose tables: {sources}

codes:                                   # lists of codes, each with a name; * at the end stands for any ending
  asthma: {{icd10cm: [J45*], icd9cm: ['493*']}}   # a code that is a number goes in quotes

index:                                   # for whom: the encounters a prediction is made for
  encounter:                             # {{}} is every encounter
    type: [ED, EI, IP]
    discharge_status: [HO, HH]           # home, or home with care
    with: asthma
  age: [2 years, 18 years]               # at its start: from the first on, and under the second
  keep: every                            # or: first, nearest 18 months

require:                                 # in this order; each line is a row of the attrition table
  - 90 days left: {{data_until: index.end + 90 days}}

predict_at: index.end                    # when: index.start or index.end, or e.g. index.start + 24 hours
features: {{until: predict_at}}            # from what: all known by then; also: drop_from_index: [DX]
outcome: {{any_encounter: {{type: [ED, EI, IP], with: asthma}}, within: 90 days}}   # what is predicted
split: {{test_if_birth_day: [17, 24]}}     # tested on are those born on the 17th to 24th of a month
"""

_TEMPLATES = {"hospital": _HOSPITAL, "children": _CHILDREN}


def write_template(name: str, source: str, folder: Path) -> Path:
    """Write `<folder>/<name>.yaml` for a source of `schemas.cohort.model.SOURCES` and return its path.

    Raises:
        NestError: the name is not valid, the folder does not exist, or the file exists already.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise NestError(
            f"'{name}' is not a valid name: use lower-case letters, digits and _, with a letter first"
        )
    path = folder / f"{name}.yaml"
    schema = Path(os.path.relpath(FILE, folder.resolve())).as_posix()
    if not folder.is_dir():
        raise NestError(f"{folder}: no such folder. Give an existing folder with --folder")
    if os.path.lexists(path):
        raise NestError(f"{path}: the file exists already. Take another name, or change that file")
    specs = cohort_sources()
    text = _TEMPLATES[specs[source].cohort_template]
    write_text(
        path,
        text.format(name=name, source=source, sources=", ".join(specs), file=path.as_posix(), schema=schema),
    )
    return path

"""A cohort file over one patient with an index encounter and a later one, to try a word of the language at a time."""

import json

import yaml

from pipelines.cohorts.derive import derive
from schemas.cohort import parse_text
from schemas.rules import PRESETS
from tests.support.cohort_tables import DAY, DAY_ZERO, diagnosis, stay, subject, tables

BASE = {
    "cohort": "c",
    "about": "a test",
    "source": "mimic",
    "codes": {"heart": {"icd9cm": ["401*"]}, "sugar": {"icd9cm": ["250.00"]}},
    "index": {"encounter": {}, "keep": "every"},
    "predict_at": "index.end",
    "features": {"until": "predict_at"},
    "outcome": {"any_encounter": {}, "within": "end_of_data"},
    "split": {"hash": [70, 15, 15]},
}
T = DAY_ZERO + DAY  # the end of `INDEX`
INDEX = stay(1, DAY_ZERO, T)
LAST = stay(99, DAY_ZERO + 900 * DAY, DAY_ZERO + 901 * DAY)


def parse(changes):
    """Return the cohort of `BASE` with changes; a value that is there twice is written twice, not as an alias."""
    plain = json.loads(json.dumps(BASE | changes))
    return parse_text(yaml.safe_dump(plain, sort_keys=False), file="c.yaml")


def labels(changes, encounters=(INDEX, LAST), events=(), person=None, preset="default"):
    """Return index_encounter -> label of patient 1, born on 1 July 2100."""
    cohort = parse(changes)
    rows = derive(
        cohort, tables([person or subject(1)], list(encounters), list(events), cohort), PRESETS[preset]
    ).rows
    return dict(rows.select("index_encounter", "label").iter_rows())


def event_at(at, code="4019", of_stay=None):
    return diagnosis(of_stay, code, None) | {"time": at, "available_at": at}


def fulfils(condition, encounters=(INDEX, LAST), events=(), **more):
    """Return whether encounter 1 is an index under a requirement; `more`: other changes of the file."""
    return 1 in labels({"require": [{"it": condition}]} | more, encounters, events)

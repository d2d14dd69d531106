"""The cohort language: one small YAML file, read into its meaning or refused with every fault at once."""

from schemas.cohort.conditions import (
    AnyEncounter,
    AnyEvent,
    ClassOf,
    Condition,
    DataUntil,
    EncounterFilter,
    EncounterSeen,
    EncountersWith,
    EventNotSeen,
    EventSeen,
    IndexAlive,
    IndexDied,
    IndexHas,
    IndexLongerThan,
    IndexWithout,
    LabelsOf,
    Outcome,
)
from schemas.cohort.faults import CohortError, Fault
from schemas.cohort.folder import read_folder
from schemas.cohort.model import CodeList, Cohort, Keep
from schemas.cohort.read import parse_cohort, parse_text
from schemas.cohort.times import Duration, TimePoint

__all__ = [
    "AnyEncounter",
    "AnyEvent",
    "ClassOf",
    "CodeList",
    "Cohort",
    "CohortError",
    "Condition",
    "DataUntil",
    "Duration",
    "EncounterFilter",
    "EncounterSeen",
    "EncountersWith",
    "EventNotSeen",
    "EventSeen",
    "Fault",
    "IndexAlive",
    "IndexDied",
    "IndexHas",
    "IndexLongerThan",
    "IndexWithout",
    "Keep",
    "LabelsOf",
    "Outcome",
    "TimePoint",
    "parse_cohort",
    "parse_text",
    "read_folder",
]

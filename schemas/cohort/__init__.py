"""The cohort language: parse one small YAML file into a `Cohort`, or report every fault in it at once."""

from schemas.cohort.conditions import (
    Condition,
    DataUntil,
    EncounterFilter,
    EncounterSeen,
    EventNotSeen,
    EventSeen,
    IndexAlive,
    IndexHas,
    IndexLongerThan,
    IndexWithout,
)
from schemas.cohort.faults import CANNOT_ANSWER, CohortError, Fault
from schemas.cohort.folder import read_folder, source_of_bad_file
from schemas.cohort.model import CodeList, Cohort, Keep
from schemas.cohort.outcomes import (
    AnyEncounter,
    AnyEvent,
    ClassOf,
    Died,
    EncountersWith,
    EpisodesOf,
    IndexDied,
    LabelsOf,
    Outcome,
)
from schemas.cohort.read import parse_cohort, parse_text
from schemas.cohort.times import Duration, Rate, TimePoint

__all__ = [
    "CANNOT_ANSWER",
    "AnyEncounter",
    "AnyEvent",
    "ClassOf",
    "CodeList",
    "Cohort",
    "CohortError",
    "Condition",
    "DataUntil",
    "Died",
    "Duration",
    "EncounterFilter",
    "EncounterSeen",
    "EncountersWith",
    "EpisodesOf",
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
    "Rate",
    "TimePoint",
    "parse_cohort",
    "parse_text",
    "read_folder",
    "source_of_bad_file",
]

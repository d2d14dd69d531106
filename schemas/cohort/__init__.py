"""The cohort language: parse one small YAML file into a `Cohort`, or report every fault in it at once."""

from schemas.cohort.combinations import AllOf, AnyOf, Condition, Not, SomeOf
from schemas.cohort.conditions import (
    DataUntil,
    EncounterFilter,
    EncounterSeen,
    EventNotSeen,
    EventSeen,
    InCohort,
    IndexAge,
    IndexAlive,
    IndexHas,
    IndexIs,
    IndexLongerThan,
    IndexWithout,
    LabSeen,
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
    LabReached,
    Outcome,
)
from schemas.cohort.read import parse_cohort, parse_text
from schemas.cohort.times import Duration, Rate, TimePoint
from schemas.cohort.values import Comparison, Quantity

__all__ = [
    "CANNOT_ANSWER",
    "AllOf",
    "AnyEncounter",
    "AnyEvent",
    "AnyOf",
    "ClassOf",
    "CodeList",
    "Cohort",
    "CohortError",
    "Comparison",
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
    "InCohort",
    "IndexAge",
    "IndexAlive",
    "IndexDied",
    "IndexHas",
    "IndexIs",
    "IndexLongerThan",
    "IndexWithout",
    "Keep",
    "LabReached",
    "LabSeen",
    "LabelsOf",
    "Not",
    "Outcome",
    "Quantity",
    "Rate",
    "SomeOf",
    "TimePoint",
    "parse_cohort",
    "parse_text",
    "read_folder",
    "source_of_bad_file",
]

"""Eligibility that looks past the prediction: conditions nobody can check at the moment the model would be used.

A model judged on such a choice of stays is judged on patients picked with the future in view. Where that is meant, as
in the paper's readmission, the file says so by `looks_ahead`.
"""

from typing import Any

from schemas.cohort.conditions import (
    DataUntil,
    EncounterSeen,
    EventNotSeen,
    EventSeen,
    IndexAlive,
    IndexHas,
    IndexLongerThan,
    IndexWithout,
)
from schemas.cohort.times import TimePoint

ONE_END_OF_DATA = ("pcornet",)
"""Sources whose data end on one day for everyone, known beforehand; elsewhere they end with a patient's last stay."""


def look_aheads(cohort: Any) -> dict[str, str]:
    """Return what of a cohort's choice is known only later, by name (`index`, `keep`, a requirement), and why."""
    found = {"index": _index(cohort), "keep": _keep(cohort)}
    found |= {name: _condition(cohort, condition) for name, condition in cohort.requirements}
    return {name: why for name, why in found.items() if why}


def _index(cohort: Any) -> str:
    wanted = cohort.index.encounter
    if _sees_the_end(cohort) or not (wanted.with_ or wanted.discharge_status):
        return ""
    return "the codes and the discharge of a stay are known at its end"


def _keep(cohort: Any) -> str:
    return "whether a visit is the nearest shows when the next one comes" if cohort.index.keep.age else ""


def _condition(cohort: Any, condition: Any) -> str:
    match condition:
        case EncounterSeen() | EventSeen() if condition.before is None or _is_later(condition.before, cohort):
            return "it is looked for until after the prediction"
        case EventNotSeen() if _is_later(condition.before, cohort):
            return "it is looked for until after the prediction"
        case DataUntil() if cohort.source not in ONE_END_OF_DATA and _is_later(condition.data_until, cohort):
            return "a patient's data end with the last stay, so it asks for a later one"
        case IndexAlive() | IndexWithout() if not _sees_the_end(cohort):
            return "it is known at the end of the stay"
        case IndexHas(index_has="principal_dx") if not _sees_the_end(cohort):
            return "it is coded after the stay"
        case IndexLongerThan() if not (
            _sees_the_end(cohort) or cohort.predict_at.offset.is_at_least(condition.index_longer_than)
        ):
            return "how long the stay lasts is not known yet"
    return ""


def _sees_the_end(cohort: Any) -> bool:
    return bool(cohort.predict_at.anchor == "index.end")


def _is_later(point: TimePoint, cohort: Any) -> bool:
    """Return whether a time may lie after the prediction."""
    at, is_shifted_on = cohort.predict_at, point.sign > 0 and point.offset.count > 0
    if point.anchor == "end_of_data":
        return True
    if point.anchor == at.anchor:
        return is_shifted_on and not at.offset.is_at_least(point.offset)
    if point.anchor == "index.end":  # and the prediction is counted from the start
        return True
    if point.anchor == "birth":
        youngest = cohort.index.age
        return is_shifted_on and not (youngest and youngest[0].is_at_least(point.offset))
    return is_shifted_on  # from the prediction, or from the start where it is made at the end

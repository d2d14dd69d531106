"""Find eligibility criteria that look past the prediction: nobody can check them when the model is used.

A model evaluated on such a cohort is evaluated on patients selected with knowledge of the future. If that is intended,
as for the paper's readmission, the file declares it in `looks_ahead`.
"""

from typing import Any

from schemas.cohort.combinations import parts_of
from schemas.cohort.conditions import (
    DataUntil,
    EncounterSeen,
    EventNotSeen,
    EventSeen,
    InCohort,
    IndexAlive,
    IndexHas,
    IndexIs,
    IndexLongerThan,
    IndexWithout,
    LabSeen,
)
from schemas.cohort.outcomes import AnyEvent, LabClass, TimeTo, ToEncounter, ToEvent, ValueOf
from schemas.cohort.times import Duration, TimePoint

ONE_END_OF_DATA = ("pcornet",)
"""Sources whose data end on one known day for all patients; elsewhere data end with each patient's last stay."""


CODED_AT_THE_END = frozenset(("icd10cm", "icd9cm", "icd10pcs", "icd9pcs", "cpt"))
"""The vocabularies of diagnoses and procedures: known when their stay ends, whenever in it they are dated."""

DATED_EARLY = "diagnoses and procedures of the stay are dated in it, but coded only when it ends"
AT_THE_END = "the codes and the discharge of a stay are known only when it ends"


def look_aheads(cohort: Any) -> dict[str, str]:
    """Return the criteria known only after the prediction, by name, and the reason.

    A name is that of a requirement, `index`, `keep` or `outcome`. A requirement that `cut_requirements` returns is not
    among them for its codes of the stay.
    """
    reasons = {"index": _index(cohort), "keep": _keep(cohort)}
    reasons["outcome"] = _outcome(cohort)
    intentional = cohort.looks_ahead or ()
    reasons |= {
        name: _condition(cohort, condition, sees_codes=name in intentional)
        for name, condition in cohort.requirements
    }
    return {name: reason for name, reason in reasons.items() if reason}


def cut_requirements(cohort: Any) -> list[str]:
    """Return the requirements that do not count the codes of a stay before it ends, though they are dated in it.

    A requirement in `looks_ahead` counts them.
    """
    intentional = cohort.looks_ahead or ()
    return [
        name
        for name, condition in cohort.requirements
        if name not in intentional and _has_late_codes(cohort, condition)
    ]


def _has_late_codes(cohort: Any, condition: Any) -> bool:
    match condition:
        case EventSeen():
            return _is_coded_late(cohort, condition.event, condition.before)
        case EventNotSeen():
            return _is_coded_late(cohort, condition.no_event, condition.before)
    return any(_has_late_codes(cohort, part) for _, part in parts_of(condition))


def _index(cohort: Any) -> str:
    if _sees_the_end(cohort) or not cohort.index.encounter.is_known_at_the_end:
        return ""
    return AT_THE_END


def _keep(cohort: Any) -> str:
    return "which visit is the nearest is known only when the next one comes" if cohort.index.keep.age else ""


def _outcome(cohort: Any) -> str:
    """Return why it is known only later that an index is left out for its outcome."""
    match cohort.outcome:
        case LabClass() | ValueOf():
            return "who will have a value is known only later"
        case AnyEvent(first_ever=True) if _is_coded_late(cohort, cohort.outcome.any_event, cohort.predict_at):
            return DATED_EARLY
        case TimeTo(time_to=ToEvent() | ToEncounter()) if cohort.source not in ONE_END_OF_DATA:
            return "a patient's data end with the last stay, so only patients with a later stay are followed"
    return ""


def _condition(cohort: Any, condition: Any, *, sees_codes: bool) -> str:
    for _, part in parts_of(condition):
        if reason := _condition(cohort, part, sees_codes=sees_codes):
            return reason
    match condition:
        case EncounterSeen() | EventSeen() | LabSeen() if not _is_past(condition.before, cohort):
            return "it depends on what happens after the prediction"
        case EventNotSeen() if _is_later(condition.before, cohort):
            return "it depends on what happens after the prediction"
        case EventSeen() | EventNotSeen() if sees_codes and _has_late_codes(cohort, condition):
            return DATED_EARLY
        case DataUntil() if cohort.source not in ONE_END_OF_DATA and _is_later(condition.data_until, cohort):
            return "a patient's data end with the last stay, so this requires a later stay"
        case IndexAlive() | IndexWithout() if not _sees_the_end(cohort):
            return "it is known only at the end of the stay"
        case IndexIs() if condition.index_is.is_known_at_the_end and not _sees_the_end(cohort):
            return AT_THE_END
        case InCohort() if condition.in_cohort in cohort.inner:
            return _inner(cohort, cohort.inner[condition.in_cohort])
        case IndexHas(index_has="principal_dx") if not _sees_the_end(cohort):
            return "it is coded after the stay"
        case IndexLongerThan() if not (
            _sees_the_end(cohort) or cohort.predict_at.offset.is_at_least(condition.index_longer_than)
        ):
            return "the length of the stay is not known yet"
    return ""


def _inner(cohort: Any, inner: Any) -> str:
    """Return why it is known only later that an encounter is an index of another cohort."""
    is_by_the_end = _sees_the_end(cohort) and not _sees_the_end(inner)  # a stay lasts until its prediction
    criteria = look_aheads(inner).keys() - {"outcome"}  # an inner cohort's outcome does not matter
    if criteria or (_is_later(inner.predict_at, cohort) and not is_by_the_end):
        return f"'{inner.cohort}' itself is known only after the prediction"
    return ""


def _is_coded_late(cohort: Any, name: str, before: TimePoint | None) -> bool:
    """Return whether a list has codes of the stay that are dated by `before`, but not known at the prediction."""
    if _sees_the_end(cohort) or before is None or CODED_AT_THE_END.isdisjoint(cohort.codes[name].patterns):
        return False
    offset = cohort.predict_at.offset if before.anchor == "predict_at" else Duration(0, "days")
    is_before_the_stay = before.sign < 0 and before.offset != offset and before.offset.is_at_least(offset)
    return before.anchor in ("index.start", "predict_at") and not (is_before_the_stay and before.offset.count)


def _sees_the_end(cohort: Any) -> bool:
    return bool(cohort.predict_at.anchor == "index.end")


def _is_past(bound: TimePoint | None, cohort: Any) -> bool:
    return bound is not None and not _is_later(bound, cohort)


def _is_later(point: TimePoint, cohort: Any) -> bool:
    """Return whether a time can be after the prediction."""
    predict_at, is_shifted_on = cohort.predict_at, point.sign > 0 and point.offset.count > 0
    if point.anchor == "end_of_data":
        return True
    if point.anchor == predict_at.anchor:
        return is_shifted_on and not predict_at.offset.is_at_least(point.offset)
    if point.anchor == "index.end":  # the prediction is counted from the start
        return True
    if point.anchor == "birth":
        youngest = cohort.index.age
        return is_shifted_on and not (youngest and youngest[0].is_at_least(point.offset))
    return is_shifted_on  # counted from the prediction, or from the start with a prediction at the end

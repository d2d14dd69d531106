"""A cohort file read whole: its faults, all at once, or its meaning."""

from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.cohort.conditions import CONDITION_KEYS, IndexLongerThan
from schemas.cohort.document import Document, read_document
from schemas.cohort.faults import CohortError, Fault
from schemas.cohort.leaks import leaks
from schemas.cohort.model import Cohort, FeatureRule
from schemas.cohort.outcomes import Outcome
from schemas.cohort.parts import Known
from schemas.cohort.text import read_text
from schemas.cohort.times import PredictAtField
from schemas.cohort.wording import ITEM, fault_of


class _Clock(BaseModel):
    """The sections the leak rules look at, read for themselves so that other faults do not hide a leak."""

    model_config = ConfigDict(extra="ignore")

    predict_at: PredictAtField
    features: FeatureRule
    outcome: Outcome


def parse_cohort(path: FilePath) -> Cohort:
    """Return the cohort a YAML file defines.

    Raises:
        CohortError: every fault of the file at once, with file and line.
    """
    return parse_text(read_text(path), file=str(path))


def parse_text(text: str, *, file: str) -> Cohort:
    """Return the cohort a YAML text defines; `file` is what faults call it.

    Raises:
        CohortError: every fault of the text at once. An error nobody foresaw is one: it must not take other files down.
    """
    try:
        return _parse(text, file)
    except CohortError:
        raise
    except Exception as error:
        message = f"cannot be understood ({type(error).__name__}); begin with a file that works and change it in steps"
        raise CohortError(file, [Fault(1, "", message)]) from None


def _parse(text: str, file: str) -> Cohort:
    document = read_document(text)
    data = document.data
    if not isinstance(data, dict):
        empty = Fault(1, "", "is not a cohort: no keys; start with 'cohort:' and a name")
        raise CohortError(file, document.faults or [empty])
    known = Known(source=str(data.get("source", "")), code_lists=tuple(_mapping(data.get("codes"))))
    cohort, faults = _validate(data, known, document)
    faults += document.faults + _leak_faults(data, known, document)
    faults += _requirement_faults(data, document)
    if cohort is not None:
        faults += _late_predictions(cohort, document) + _empty_window(cohort, document)
    if cohort is None or faults:
        raise CohortError(file, faults)
    cohort._file, cohort._document = file, document
    return cohort


def _validate(data: dict[str, Any], known: Known, document: Document) -> tuple[Cohort | None, list[Fault]]:
    try:
        return Cohort.model_validate(data, context=known), []
    except ValidationError as error:
        return None, [fault_of(detail, document) for detail in error.errors(include_url=False)]


def _leak_faults(data: dict[str, Any], known: Known, document: Document) -> list[Fault]:
    try:
        clock = _Clock.model_validate(data, context=known)
    except ValidationError:
        return []
    found = leaks(clock.predict_at, clock.features, clock.outcome)
    return [Fault(document.line(path), "", f"LEAK: {message}") for path, message in found]


def _late_predictions(cohort: Cohort, document: Document) -> list[Fault]:
    """Ask for a stay that lasts until its prediction: one after discharge or death is no prediction."""
    offset = cohort.predict_at.offset
    if cohort.predict_at.anchor == "index.end" or not offset.count:
        return []
    lengths = [condition for _, condition in cohort.requirements if isinstance(condition, IndexLongerThan)]
    if any(length.index_longer_than.is_at_least(offset) for length in lengths):
        return []
    message = (
        f"{cohort.predict_at} can fall after the stay; "
        f"add '- still in the stay: {{index_longer_than: {offset}}}' to require"
    )
    return [Fault(document.line(("predict_at",)), "predict_at", message)]


def _empty_window(cohort: Cohort, document: Document) -> list[Fault]:
    """Refuse an outcome looked for until a time that the prediction is never before."""
    until, predict_at = getattr(cohort.outcome, "until", None), cohort.predict_at
    if until is None:
        return []
    is_early = until.sign < 0 or not until.offset.count
    if until.anchor == predict_at.anchor:
        never = is_early or predict_at.offset.is_at_least(until.offset)
    else:
        never = is_early and until.anchor in ("predict_at", "birth", "index.start")
    message = (
        f"'{until}' is never after predict_at, so the window is empty; write e.g. 'predict_at + 30 days'"
    )
    return [Fault(document.line(("outcome", "until")), "outcome.until", message)] if never else []


def _requirement_faults(data: dict[str, Any], document: Document) -> list[Fault]:
    """Hold requirements to `- name: condition`, every name once: each is a row of the attrition table."""
    faults, names = [], set[str]()
    items = data.get("require")
    for place, item in enumerate(items if isinstance(items, list) else []):
        line = document.line(("require", place))
        if isinstance(item, dict) and len(item) != 1:
            faults.append(Fault(line, "require", ITEM))
        for name in _mapping(item):
            if name in names:
                faults.append(
                    Fault(line, "require", f"two requirements are named '{name}'; name each differently")
                )
            if name in CONDITION_KEYS:
                faults.append(
                    Fault(line, "require", f"'{name}' stands where the requirement's name belongs; {ITEM}")
                )
            names.add(name)
    return faults


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

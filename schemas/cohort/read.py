"""Parse a cohort file into a `Cohort`, or raise all of its faults at once."""

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.cohort.combinations import CONDITION_KEYS, AllOf, parts_of
from schemas.cohort.conditions import IndexLongerThan
from schemas.cohort.document import Document, read_document
from schemas.cohort.faults import CohortError, Fault
from schemas.cohort.leaks import leaks
from schemas.cohort.model import Cohort, FeatureRule
from schemas.cohort.outcomes import Outcome
from schemas.cohort.parts import FileContext
from schemas.cohort.references import Folder, add_inner
from schemas.cohort.text import read_text
from schemas.cohort.times import PredictAtField
from schemas.cohort.wording import ITEM, as_fault


class _Clock(BaseModel):
    """The sections the leak rules need, parsed on their own so that other faults do not hide a leak."""

    model_config = ConfigDict(extra="ignore")

    predict_at: PredictAtField
    features: FeatureRule
    outcome: Outcome


def parse_cohort(path: FilePath) -> Cohort:
    """Return the cohort a YAML file defines.

    Raises:
        CohortError: every fault of the file at once, with file and line.
    """
    return _parse_file(path, Folder(path.parent, _parse_file))


def _parse_file(path: FilePath, folder: Folder) -> Cohort:
    return parse_text(read_text(path), file=str(path), folder=folder)


def parse_text(text: str, *, file: str, folder: Folder | None = None) -> Cohort:
    """Return the cohort a YAML text defines.

    Args:
        file: its name in messages.
        folder: the files that it may name in `in_cohort`; None: it may name none.

    Raises:
        CohortError: every fault of the text at once. Unexpected errors are faults too, so that other files still load.
    """
    try:
        return _parse(text, file, folder)
    except CohortError:
        raise
    except Exception as error:
        name = type(error).__name__
        message = f"cannot be understood ({name}); start from a file that works and change it step by step"
        raise CohortError(file, [Fault(1, "", message)]) from None


def _parse(text: str, file: str, folder: Folder | None) -> Cohort:
    document = read_document(text)
    data = document.data
    if not isinstance(data, dict):
        empty = Fault(1, "", "this is not a cohort: it has no keys; start with 'cohort:' and a name")
        raise CohortError(file, document.faults or [empty])
    context = FileContext(source=str(data.get("source", "")), code_lists=tuple(_mapping(data.get("codes"))))
    cohort, faults = _validate(data, context, document)
    faults += document.faults + _leak_faults(data, context, document)
    faults += _requirement_faults(data, document)
    if cohort is not None:
        faults += _late_prediction_faults(cohort, document) + _empty_window_faults(cohort, document)
        faults += add_inner(cohort, folder, document)
    if cohort is None or faults:
        raise CohortError(file, faults)
    cohort._file, cohort._document = file, document
    return cohort


def _validate(
    data: dict[str, Any], context: FileContext, document: Document
) -> tuple[Cohort | None, list[Fault]]:
    try:
        return Cohort.model_validate(data, context=context), []
    except ValidationError as error:
        return None, [as_fault(detail, document) for detail in error.errors(include_url=False)]


def _leak_faults(data: dict[str, Any], context: FileContext, document: Document) -> list[Fault]:
    try:
        clock = _Clock.model_validate(data, context=context)
    except ValidationError:
        return []
    messages = leaks(clock.predict_at, clock.features, clock.outcome)
    return [Fault(document.line(path), "", f"LEAK: {message}") for path, message in messages]


def _late_prediction_faults(cohort: Cohort, document: Document) -> list[Fault]:
    """Require that the stay lasts until its prediction: after discharge or death there is nothing to predict."""
    offset = cohort.predict_at.offset
    if cohort.predict_at.anchor == "index.end" or not offset.count:
        return []
    lengths = [condition for condition in _certain(cohort) if isinstance(condition, IndexLongerThan)]
    if any(length.index_longer_than.is_at_least(offset) for length in lengths):
        return []
    message = (
        f"{cohort.predict_at} can be after the end of the stay; "
        f"add '- still in the stay: {{index_longer_than: {offset}}}' to require"
    )
    return [Fault(document.line(("predict_at",)), "predict_at", message)]


def _certain(cohort: Cohort) -> Iterator[Any]:
    """Yield the conditions that every index meets: the requirements, and what is in an `all_of` of them."""
    pending = [condition for _, condition in cohort.requirements]
    for condition in pending:
        if isinstance(condition, AllOf):
            pending += [part for _, part in parts_of(condition)]
        yield condition


def _empty_window_faults(cohort: Cohort, document: Document) -> list[Fault]:
    """Refuse an outcome whose `until` is never after the prediction."""
    deadline, predict_at = getattr(cohort.outcome, "until", None), cohort.predict_at
    if deadline is None:
        return []
    is_early = deadline.sign < 0 or not deadline.offset.count
    if deadline.anchor == predict_at.anchor:
        is_empty = is_early or predict_at.offset.is_at_least(deadline.offset)
    else:
        is_empty = is_early and deadline.anchor in ("predict_at", "birth", "index.start")
    message = (
        f"'{deadline}' is never after predict_at, so the window is empty; write e.g. 'predict_at + 30 days'"
    )
    return [Fault(document.line(("outcome", "until")), "outcome.until", message)] if is_empty else []


def _requirement_faults(data: dict[str, Any], document: Document) -> list[Fault]:
    """Require `- name: condition` with unique names: each requirement is a row of the attrition table."""
    faults, names = [], set[str]()
    items = data.get("require")
    for place, item in enumerate(items if isinstance(items, list) else []):
        line = document.line(("require", place))
        if isinstance(item, dict) and len(item) != 1:
            faults.append(Fault(line, "require", ITEM))
        for name in _mapping(item):
            if name in names:
                faults.append(
                    Fault(line, "require", f"two requirements are named '{name}'; give each its own name")
                )
            if name in CONDITION_KEYS:
                faults.append(
                    Fault(line, "require", f"'{name}' is where the name of the requirement belongs; {ITEM}")
                )
            names.add(name)
    return faults


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}

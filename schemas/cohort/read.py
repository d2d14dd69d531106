"""A cohort file read whole: its faults, all at once, or its meaning."""

from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.cohort.conditions import Outcome
from schemas.cohort.document import Document, Path, read_document, where
from schemas.cohort.faults import CohortError, Fault
from schemas.cohort.leaks import leaks
from schemas.cohort.model import Cohort, FeatureRule
from schemas.cohort.parts import Known
from schemas.cohort.times import PredictAtField


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
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise CohortError(str(path), [Fault(1, "", "cannot be read; is it a text file in UTF-8?")]) from None
    return parse_text(text, file=str(path))


def parse_text(text: str, *, file: str) -> Cohort:
    """Return the cohort a YAML text defines; `file` is what faults call it."""
    document = read_document(text)
    data = document.data
    if not isinstance(data, dict):
        empty = Fault(1, "", "is not a cohort: no keys; start with 'cohort: <name>'")
        raise CohortError(file, document.faults or [empty])
    known = Known(source=str(data.get("source", "")), code_lists=tuple(_mapping(data.get("codes"))))
    cohort, faults = _validate(data, known, document)
    faults += document.faults + _leak_faults(data, known, document)
    faults += _repeated_requirements(data, document)
    if cohort is None or faults:
        raise CohortError(file, faults)
    cohort._file, cohort._document = file, document
    return cohort


def _validate(data: dict[str, Any], known: Known, document: Document) -> tuple[Cohort | None, list[Fault]]:
    try:
        return Cohort.model_validate(data, context=known), []
    except ValidationError as error:
        return None, [_fault(detail, document) for detail in error.errors(include_url=False)]


def _leak_faults(data: dict[str, Any], known: Known, document: Document) -> list[Fault]:
    try:
        clock = _Clock.model_validate(data, context=known)
    except ValidationError:
        return []
    found = leaks(clock.predict_at, clock.features, clock.outcome)
    return [Fault(document.line(path), "", f"LEAK: {message}") for path, message in found]


def _repeated_requirements(data: dict[str, Any], document: Document) -> list[Fault]:
    """Hold requirements to `- name: condition`, every name once: each is a row of the attrition table."""
    faults, names = [], set[str]()
    items = data.get("require")
    for place, item in enumerate(items if isinstance(items, list) else []):
        line = document.line(("require", place))
        if isinstance(item, dict) and len(item) != 1:
            faults.append(
                Fault(line, "require", "each item is one '- name: condition'; start a new '-' for each")
            )
        for name in _mapping(item):
            if name in names:
                faults.append(
                    Fault(line, "require", f"two requirements are named '{name}'; name each differently")
                )
            names.add(name)
    return faults


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


_SHAPES = {
    "tuple_type": "a list, e.g. [a, b]",
    "dict_type": "a mapping, e.g. {key: value}",
    "model_type": "a mapping, e.g. {key: value}",
    "model_attributes_type": "a mapping, e.g. {key: value}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "date_type": "a date, e.g. 2016-01-01",
    "date_from_datetime_parsing": "a date, e.g. 2016-01-01",
}


def _fault(detail: Any, document: Document) -> Fault:
    """Turn one of pydantic's errors into a sentence for the one who wrote the file."""
    path: Path = tuple(key for key in detail["loc"] if not str(key).startswith("<"))
    kind = detail["type"]
    if kind == "missing":
        return Fault(document.line(path[:-1]), where(path[:-1]), f"key '{path[-1]}' is missing")
    line = document.line(path)
    if kind == "unknown_key":
        return Fault(line, where(path[:-1]), detail["msg"])
    written = document.written.get(path, str(detail["input"]))
    if detail["input"] is None:
        return Fault(line, where(path), "is empty")
    if kind in ("string_type", "literal_error") and path in document.written:
        return Fault(line, where(path), _misread(detail["input"], written))
    return Fault(line, where(path), _sentence(detail, kind, written))


def _sentence(detail: Any, kind: str, written: str) -> str:
    if kind in _SHAPES:
        shown = f"'{written}'" if not isinstance(detail["input"], dict | list) else "this"
        return f"{shown} is not {_SHAPES[kind]}"
    if kind == "string_type":
        return "is not a word or text"
    if kind == "literal_error":
        return f"'{written}' is not {detail['ctx']['expected'].replace(chr(39), '')}"
    if kind == "string_pattern_mismatch":
        return f"'{written}' is not a name: lower-case letters, digits and _, a letter first"
    message: str = detail["msg"]
    return message.replace("{written}", written)


def _misread(value: Any, written: str) -> str:
    """Say how YAML read an unquoted word."""
    if isinstance(value, bool):
        return f"{written} was read as {str(value).lower()}; put it in quotes"
    if isinstance(value, int | float):
        lost = ", or a trailing zero is lost" if "." in written else ""
        return f"{written} was read as a number; put it in quotes{lost}"
    return f"{written} was read as a date; put it in quotes"

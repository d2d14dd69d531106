"""Pydantic's errors as sentences for the one who wrote the file."""

from typing import Any

from schemas.cohort.choice import TAG
from schemas.cohort.document import Document, Path, where
from schemas.cohort.faults import Fault

ITEM = "each item is one '- name: condition'"
MOST_QUOTED = 200  # letters of what the file says: after them comes what is wrong with it
_WHOLE = {  # what is not one of the usual shapes, or has too few or too many entries
    "index.age": "needs two ages, e.g. [18 years, 90 years]: from the first on, and under the second",
    "split": "write '{hash: [70, 15, 15]}'",
    "split.hash": "write 'hash: [70, 15, 15]'",
    "split.test_if_birth_day": "needs two days of the month, e.g. [17, 24]",
}

_NOT_WHOLE = ("missing", "too_long", "tuple_type", "model_type", "model_attributes_type")

_SHAPES = {
    "tuple_type": "a list, e.g. [a, b]",
    "dict_type": "a mapping, e.g. {key: value}",
    "model_type": "a mapping, e.g. {key: value}",
    "model_attributes_type": "a mapping, e.g. {key: value}",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number of usual size",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "date_type": "a date, e.g. 2016-01-01",
    "date_from_datetime_parsing": "a date, e.g. 2016-01-01",
    "date_from_datetime_inexact": "a date, e.g. 2016-01-01",
}


def fault_of(detail: Any, document: Document) -> Fault:
    """Turn one of pydantic's errors into a sentence for the one who wrote the file."""
    path: Path = tuple(key for key in detail["loc"] if not str(key).startswith(TAG))
    kind = detail["type"]
    if (whole := where(path)) in _WHOLE and kind in _NOT_WHOLE:
        return Fault(document.line(path), whole, _WHOLE[whole])
    if kind == "missing":
        return Fault(document.line(path[:-1]), where(path[:-1]), f"key '{path[-1]}' is missing")
    line = document.line(path)
    if kind == "unknown_key":
        return Fault(line, where(path[:-1]), detail["msg"])
    written = _short(document.written.get(path, str(detail["input"])))
    if detail["input"] is None:
        return Fault(line, where(path), "is empty")
    if kind in ("string_type", "literal_error") and path in document.written:
        return Fault(line, where(path), _misread(detail["input"], written))
    if kind == "dict_type" and path[0] == "require" and len(path) == 2:
        return Fault(line, "require", ITEM)
    return Fault(line, where(path), _sentence(detail, kind, written))


def _short(written: str) -> str:
    return written if len(written) <= MOST_QUOTED else f"{written[:MOST_QUOTED]}…"


def _sentence(detail: Any, kind: str, written: str) -> str:
    if kind in _SHAPES:
        shown = f"'{written}'" if not isinstance(detail["input"], dict | list) else "this"
        return f"{shown} is not {_SHAPES[kind]}"
    if kind in ("greater_than_equal", "less_than_equal"):
        if "test_if_birth_day" in detail["loc"]:
            return f"'{written}' is not a day of the month"
        bound = (
            f"{detail['ctx']['ge']:,} or more"
            if "ge" in detail["ctx"]
            else f"{detail['ctx']['le']:,} or less"
        )
        return f"'{written}' will not do; write {bound}"
    if kind == "string_too_long":
        return f"is too long a name; it has at most {detail['ctx']['max_length']}"
    if kind == "string_type":
        return "is not a word or text"
    if kind == "literal_error" and detail["ctx"]["expected"] == "True":
        word = str(detail["loc"][-1])
        return f"nothing stands after it; write '{'outcome' if word == 'index_died' else '- name'}: {word}'"
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

"""Word pydantic's errors as sentences for the author of the cohort file."""

from typing import Any

from schemas.cohort.choice import TAG
from schemas.cohort.document import Document, FieldPath, dotted_path
from schemas.cohort.faults import Fault

ITEM = "write each requirement as '- name: condition'"
MAX_QUOTED = 200  # characters quoted from the file, so that the message after them is still read
# messages for sections that are missing, of the wrong shape, or have too few or too many entries
_WHOLE = {
    "index.age": "needs two ages, e.g. [18 years, 90 years]: from the first, and under the second",
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
    "int_parsing_size": "a whole number of reasonable size",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "date_type": "a date, e.g. 2016-01-01",
    "date_from_datetime_parsing": "a date, e.g. 2016-01-01",
    "date_from_datetime_inexact": "a date, e.g. 2016-01-01",
}


def as_fault(detail: Any, document: Document) -> Fault:
    """Return one of pydantic's errors as a fault, worded for the author of the file."""
    path: FieldPath = tuple(key for key in detail["loc"] if not str(key).startswith(TAG))
    kind = detail["type"]
    if (whole := dotted_path(path)) in _WHOLE and kind in _NOT_WHOLE:
        return Fault(document.line(path), whole, _WHOLE[whole])
    if kind == "missing":
        return Fault(document.line(path[:-1]), dotted_path(path[:-1]), f"key '{path[-1]}' is missing")
    line = document.line(path)
    if kind == "unknown_key":
        return Fault(line, dotted_path(path[:-1]), detail["msg"])
    text = _short(document.raw_text.get(path, str(detail["input"])))
    if detail["input"] is None:
        return Fault(line, dotted_path(path), "is empty")
    is_a_word = kind == "string_type" or (kind == "literal_error" and detail["ctx"]["expected"] != "True")
    if is_a_word and path in document.raw_text:
        return Fault(line, dotted_path(path), _misread(detail["input"], text))
    if kind == "dict_type" and path[0] == "require" and len(path) == 2:
        return Fault(line, "require", ITEM)
    return Fault(line, dotted_path(path), _sentence(detail, kind, text))


def _short(text: str) -> str:
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}…"


def _sentence(detail: Any, kind: str, text: str) -> str:
    if kind in _SHAPES:
        value = f"'{text}'" if not isinstance(detail["input"], dict | list) else "this"
        return f"{value} is not {_SHAPES[kind]}"
    if kind in ("greater_than_equal", "less_than_equal"):
        if "test_if_birth_day" in detail["loc"]:
            return f"'{text}' is not a day of the month"
        bound = (
            f"{detail['ctx']['ge']:,} or more"
            if "ge" in detail["ctx"]
            else f"{detail['ctx']['le']:,} or less"
        )
        return f"'{text}' is out of range; write {bound}"
    if kind == "string_too_long":
        return f"the name is too long; write at most {detail['ctx']['max_length']} characters"
    if kind == "string_type":
        return "must be a text"
    if kind == "literal_error" and detail["ctx"]["expected"] == "True":
        word = str(detail["loc"][-1])
        if word in ("died", "first_ever"):
            return f"'{text}' is not valid; write '{word}: true'"
        return f"takes no value; write '{'outcome' if word in ('index_died', 'index_days_left') else '- name'}: {word}'"
    if kind == "literal_error":
        return f"'{text}' is not valid; write {detail['ctx']['expected'].replace(chr(39), '')}"
    if kind == "string_pattern_mismatch":
        return f"'{text}' is not a valid name; use lower-case letters, digits and _, starting with a letter"
    message: str = detail["msg"]
    return message.replace("{value}", text)


def _misread(value: Any, text: str) -> str:
    """Return a sentence that says how YAML read an unquoted word."""
    if isinstance(value, bool):
        return f"{text} was read as {str(value).lower()}; put it in quotes"
    if isinstance(value, int | float):
        hint = " to keep trailing zeros" if "." in text else ""
        return f"{text} was read as a number; put it in quotes{hint}"
    return f"{text} was read as a date; put it in quotes"

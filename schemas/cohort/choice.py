"""A mapping that is one of several kinds, told apart by the one key that names it."""

from typing import Any

from pydantic_core import PydanticCustomError

from schemas.cohort.faults import did_you_mean
from schemas.cohort.parts import Part

TAG = "⟨kind⟩"  # before pydantic's name for a kind of condition, which is no key of the file


def _spelled_out(value: Any) -> Any:
    """Read the bare word `index_alive` as `index_alive: true`."""
    return {value: True} if isinstance(value, str) else value


def key_of(value: Any, heads: tuple[str, ...]) -> str | None:
    keys = value if isinstance(value, dict) else type(value).model_fields
    found = [head for head in heads if head in keys]
    return TAG + found[0] if len(found) == 1 else None


def one_of(heads: tuple[str, ...], what: str) -> Any:
    """Refuse a mapping that has none, or several, of the keys that say what it is."""

    def check(value: Any) -> Any:
        value = _spelled_out(value)
        if isinstance(value, Part):
            return value
        if not isinstance(value, dict):
            raise PydanticCustomError("shape", f"is not {what}; write one of {', '.join(heads)}")
        found = [head for head in heads if head in value]
        if len(found) > 1:
            raise PydanticCustomError("several", f"write only one of {', '.join(found)}")
        if not found:
            first = next(iter(value), "")
            raise PydanticCustomError("unknown", f"'{first}' is not {what}{did_you_mean(str(first), heads)}")
        return value

    return check

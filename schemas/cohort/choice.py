"""Tagged unions: a mapping is one of several kinds, identified by the key that names its kind."""

from typing import Any

from pydantic_core import PydanticCustomError

from schemas.cohort.faults import did_you_mean
from schemas.cohort.parts import Section

# prefix of the tags of pydantic's unions, to tell them from keys of the file
TAG = "⟨kind⟩"


def _as_mapping(value: Any) -> Any:
    """Return `{word: True}` for a bare word such as `index_alive`, and any other value unchanged."""
    return {value: True} if isinstance(value, str) else value


def key_of(value: Any, heads: tuple[str, ...]) -> str | None:
    """Return the tag of the one key of `heads` that a mapping or model has, or None if it has none or several."""
    keys = value if isinstance(value, dict) else _keys_of(type(value))
    matches = [head for head in heads if head in keys]
    return TAG + matches[0] if len(matches) == 1 else None


def _keys_of(section: type[Section]) -> set[str]:
    return {field.alias or name for name, field in section.model_fields.items()}


def exactly_one_key(heads: tuple[str, ...], description: str) -> Any:
    """Return a validator that requires exactly one of the keys that identify the kind.

    Args:
        heads: the keys, one per kind.
        description: the kind of thing with its article, for messages: "a condition".
    """

    def check(value: Any) -> Any:
        value = _as_mapping(value)
        if isinstance(value, Section):
            return value
        if not isinstance(value, dict):
            raise PydanticCustomError("shape", f"must be {description}; write one of {', '.join(heads)}")
        matches = [head for head in heads if head in value]
        if len(matches) > 1:
            raise PydanticCustomError("several", f"write only one of {', '.join(matches)}")
        if not matches:
            first = next(iter(value), "")
            raise PydanticCustomError(
                "unknown", f"'{first}' is not {description}{did_you_mean(str(first), heads)}"
            )
        return value

    return check

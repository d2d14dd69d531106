"""Conditions made of others, and the union of all conditions; each of `require` is a row of the attrition table."""

from collections.abc import Iterator
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from schemas.cohort.choice import TAG, exactly_one_key, key_of
from schemas.cohort.conditions import (
    DataUntil,
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
from schemas.cohort.document import FieldPath
from schemas.cohort.parts import Section
from schemas.nouns import with_noun

MAX_NESTING = 3
"""How deep conditions may lie in one another; nobody reads more."""


class _Combination(Section):
    """A condition made of others, which may be combinations too."""

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        if _depth(self) > MAX_NESTING:
            message = (
                f"conditions lie more than {MAX_NESTING} deep in one another; write several requirements"
            )
            raise PydanticCustomError("nesting", message)
        if len(parts_of(self)) < 2 and not isinstance(self, Not):
            raise PydanticCustomError("few", "needs a list of two conditions or more")
        return self


class AnyOf(_Combination):
    any_of: "tuple[Condition, ...]"


class AllOf(_Combination):
    all_of: "tuple[Condition, ...]"


class SomeOf(_Combination):
    of: "tuple[Condition, ...]"
    at_least: int = Field(ge=1, le=100, strict=True)

    @model_validator(mode="after")
    def _check_count(self) -> Self:
        if self.at_least > len(self.of):
            raise PydanticCustomError(
                "few", f"'of' has {with_noun(len(self.of), 'condition')}, fewer than 'at_least' asks for"
            )
        return self


class Not(_Combination):
    not_: "Condition" = Field(alias="not")


CONDITION_KEYS = (
    *("index_has", "index_without", "index_longer_than", "index_alive", "index_is", "index_age"),
    *("data_until", "event", "no_event", "any_encounter", "lab", "in_cohort"),
    *("any_of", "all_of", "of", "not"),
)

Condition = Annotated[
    Annotated[IndexHas, Tag(TAG + "index_has")]
    | Annotated[IndexWithout, Tag(TAG + "index_without")]
    | Annotated[IndexLongerThan, Tag(TAG + "index_longer_than")]
    | Annotated[IndexAlive, Tag(TAG + "index_alive")]
    | Annotated[IndexIs, Tag(TAG + "index_is")]
    | Annotated[IndexAge, Tag(TAG + "index_age")]
    | Annotated[DataUntil, Tag(TAG + "data_until")]
    | Annotated[EventSeen, Tag(TAG + "event")]
    | Annotated[EventNotSeen, Tag(TAG + "no_event")]
    | Annotated[EncounterSeen, Tag(TAG + "any_encounter")]
    | Annotated[LabSeen, Tag(TAG + "lab")]
    | Annotated[InCohort, Tag(TAG + "in_cohort")]
    | Annotated[AnyOf, Tag(TAG + "any_of")]
    | Annotated[AllOf, Tag(TAG + "all_of")]
    | Annotated[SomeOf, Tag(TAG + "of")]
    | Annotated[Not, Tag(TAG + "not")],
    Discriminator(lambda value: key_of(value, CONDITION_KEYS)),
    BeforeValidator(exactly_one_key(CONDITION_KEYS, "a condition")),
]

for _model in (AnyOf, AllOf, SomeOf, Not):
    _model.model_rebuild()


def parts_of(condition: Any) -> list[tuple[FieldPath, Any]]:
    """Return the conditions that a condition is made of, each with its path in it; none for a plain one."""
    match condition:
        case AnyOf():
            key, parts = "any_of", condition.any_of
        case AllOf():
            key, parts = "all_of", condition.all_of
        case SomeOf():
            key, parts = "of", condition.of
        case Not():
            return [(("not",), condition.not_)]
        case _:
            return []
    return [((key, place), part) for place, part in enumerate(parts)]


def plain_conditions(condition: Any, path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """Yield the plain conditions in a condition, or itself, each with its path."""
    parts = parts_of(condition)
    if not parts:
        yield path, condition
    for steps, part in parts:
        yield from plain_conditions(part, (*path, *steps))


def _depth(condition: Any) -> int:
    """Return how many combinations lie in one another: 0 for a plain condition."""
    parts = parts_of(condition)
    return 1 + max((_depth(part) for _, part in parts), default=0) if parts else 0

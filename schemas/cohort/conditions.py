"""The conditions of `require`: each one an index must meet, and each a row of the attrition table."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from schemas.cohort.choice import TAG, exactly_one_key, key_of
from schemas.cohort.parts import FileContext, ListName, Section, one_or_more
from schemas.cohort.times import DurationField, TimeField

PCORNET_TYPES = ("AV", "ED", "EI", "IP", "IS", "OS", "IC", "OA", "TH", "NI", "UN", "OT")
PCORNET_STATUSES = tuple("AF AL AM AW EX HH HO HS IP NH RH RS SH SN NI UN OT".split())  # noqa: SIM905


def _column_values(column: str, values: tuple[str, ...]) -> Any:
    """Return the type of one or more values of a column; on PCORnet only those of its value set are valid."""

    def check(value: str, info: ValidationInfo) -> str:
        context = info.context
        if isinstance(context, FileContext) and context.source == "pcornet" and value not in values:
            message = "'{value}' is not a value of PCORnet's {column}; the values are {values}"
            details = {"value": value, "column": column, "values": ", ".join(values)}
            raise PydanticCustomError("value_set", message, details)
        return value

    word = Annotated[str, AfterValidator(check)]
    return Annotated[tuple[word, ...], BeforeValidator(one_or_more), Field(min_length=1)]


class EncounterFilter(Section):
    """A filter on encounters; an empty filter matches all of them."""

    type: _column_values("ENC_TYPE", PCORNET_TYPES) | None = None  # type: ignore[valid-type]
    discharge_status: _column_values("DISCHARGE_STATUS", PCORNET_STATUSES) | None = None  # type: ignore[valid-type]
    # the encounter has an event with a code of this list
    with_: ListName | None = Field(default=None, alias="with")


class _TimeSpan(Section):
    """A condition on what happens in (after, before]; at least one of the two bounds is given."""

    after: TimeField | None = None
    before: TimeField | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.after is None and self.before is None:
            raise PydanticCustomError(
                "span", "no time is given; add 'after:' or 'before:' with a time, e.g. 'before: predict_at'"
            )
        return self


class IndexHas(Section):
    index_has: Literal["end", "principal_dx"]


class IndexWithout(Section):
    index_without: ListName


class IndexLongerThan(Section):
    index_longer_than: DurationField


class IndexAlive(Section):
    index_alive: Literal[True]


class DataUntil(Section):
    data_until: TimeField


class EventSeen(_TimeSpan):
    event: ListName


class EventNotSeen(Section):
    no_event: ListName
    before: TimeField


class EncounterSeen(_TimeSpan):
    any_encounter: EncounterFilter


CONDITION_KEYS = (
    "index_has",
    "index_without",
    "index_longer_than",
    "index_alive",
    "data_until",
    "event",
    "no_event",
    "any_encounter",
)

Condition = Annotated[
    Annotated[IndexHas, Tag(TAG + "index_has")]
    | Annotated[IndexWithout, Tag(TAG + "index_without")]
    | Annotated[IndexLongerThan, Tag(TAG + "index_longer_than")]
    | Annotated[IndexAlive, Tag(TAG + "index_alive")]
    | Annotated[DataUntil, Tag(TAG + "data_until")]
    | Annotated[EventSeen, Tag(TAG + "event")]
    | Annotated[EventNotSeen, Tag(TAG + "no_event")]
    | Annotated[EncounterSeen, Tag(TAG + "any_encounter")],
    Discriminator(lambda value: key_of(value, CONDITION_KEYS)),
    BeforeValidator(exactly_one_key(CONDITION_KEYS, "a condition")),
]

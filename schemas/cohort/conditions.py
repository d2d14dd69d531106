"""What an index must fulfil, one row of the attrition table each."""

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

from schemas.cohort.choice import TAG, key_of, one_of
from schemas.cohort.parts import Known, ListName, Part, one_or_more
from schemas.cohort.times import DurationField, TimeField

PCORNET_TYPES = ("AV", "ED", "EI", "IP", "IS", "OS", "IC", "OA", "TH", "NI", "UN", "OT")


PCORNET_STATUSES = tuple("AF AL AM AW EX HH HO HS IP NH RH RS SH SN NI UN OT".split())  # noqa: SIM905


def _words_of(column: str, values: tuple[str, ...]) -> Any:
    """Words of a column; on PCORnet only those of its value set."""

    def check(value: str, info: ValidationInfo) -> str:
        known = info.context
        if isinstance(known, Known) and known.source == "pcornet" and value not in values:
            message = "'{value}' is not a PCORnet {column} ({values})"
            told = {"value": value, "column": column, "values": ", ".join(values)}
            raise PydanticCustomError("value_set", message, told)
        return value

    word = Annotated[str, AfterValidator(check)]
    return Annotated[tuple[word, ...], BeforeValidator(one_or_more), Field(min_length=1)]


class EncounterFilter(Part):
    """Which encounters are meant; an empty filter means all."""

    type: _words_of("ENC_TYPE", PCORNET_TYPES) | None = None  # type: ignore[valid-type]
    discharge_status: _words_of("DISCHARGE_STATUS", PCORNET_STATUSES) | None = None  # type: ignore[valid-type]
    with_: ListName | None = Field(default=None, alias="with")  # an event of the list within the encounter


class _Spanned(Part):
    """Something searched for in (after, before]; at least one of the two is given."""

    after: TimeField | None = None
    before: TimeField | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.after is None and self.before is None:
            raise PydanticCustomError(
                "span", "say when: add 'after:' or 'before:' and a time, e.g. 'before: predict_at'"
            )
        return self


class IndexHas(Part):
    index_has: Literal["end", "principal_dx"]


class IndexWithout(Part):
    index_without: ListName


class IndexLongerThan(Part):
    index_longer_than: DurationField


class IndexAlive(Part):
    index_alive: Literal[True]


class DataUntil(Part):
    data_until: TimeField


class EventSeen(_Spanned):
    event: ListName


class EventNotSeen(Part):
    no_event: ListName
    before: TimeField


class EncounterSeen(_Spanned):
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
    BeforeValidator(one_of(CONDITION_KEYS, "a condition")),
]

"""What an index must fulfil, one row of the attrition table each."""

from typing import Annotated, Literal, Self

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


def _encounter_type(value: str, info: ValidationInfo) -> str:
    known = info.context
    if isinstance(known, Known) and known.source == "pcornet" and value not in PCORNET_TYPES:
        raise PydanticCustomError(
            "encounter_type",
            "'{value}' is not a PCORnet ENC_TYPE ({known})",
            {"value": value, "known": ", ".join(PCORNET_TYPES)},
        )
    return value


Words = Annotated[tuple[str, ...], BeforeValidator(one_or_more), Field(min_length=1)]
Types = Annotated[
    tuple[Annotated[str, AfterValidator(_encounter_type)], ...],
    BeforeValidator(one_or_more),
    Field(min_length=1),
]


class EncounterFilter(Part):
    """Which encounters are meant; an empty filter means all."""

    type: Types | None = None
    discharge_status: Words | None = None
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

"""What an index must fulfil, one row of the attrition table each; and what counts as the outcome."""

from typing import Annotated, Any, ClassVar, Literal, Self

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

from schemas.cohort.faults import did_you_mean
from schemas.cohort.parts import Known, ListName, Part, one_or_more
from schemas.cohort.times import DurationField, TimeField, WindowField

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


class _Windowed(Part):
    """An outcome looked for in (predict_at, predict_at + within] or (predict_at, until]."""

    within: WindowField | None = None
    until: TimeField | None = None

    @model_validator(mode="after")
    def _one_window(self) -> Self:
        if (self.within is None) == (self.until is None):
            raise PydanticCustomError(
                "window", "say how long: write one of 'within: 30 days' and 'until: index.end + 30 days'"
            )
        return self


class IndexDied(Part):
    index_died: Literal[True]

    _not_here: ClassVar[dict[str, str]] = dict.fromkeys(
        ("within", "until"),
        "index_died takes no length of time: it is death in the index stay, whenever; no later death is asked for",
    )


class AnyEncounter(_Windowed):
    any_encounter: EncounterFilter


class EncountersWith(_Windowed):
    encounters_with: ListName
    at_least: int = Field(default=1, ge=1, strict=True)
    on_distinct_days: bool = False


class AnyEvent(_Windowed):
    any_event: ListName


class ClassOf(Part):
    class_of: Literal["DX"]
    rank: int = Field(default=1, ge=1, strict=True)
    map: Literal["icd10_chapter"]


class LabelsOf(Part):
    labels_of: Literal["DX"]
    map: Literal["icd10_3char", "icd10_chapter"]
    min_index: int = Field(default=1, ge=1, strict=True)  # index rows a label needs to be kept


NOT_YET_SUPPORTED = ("episodes_of",)
TAG = "⟨kind⟩"  # before pydantic's name for a kind of condition, which is no key of the file


def _spelled_out(value: Any) -> Any:
    """Read the bare word `index_alive` as `index_alive: true`."""
    return {value: True} if isinstance(value, str) else value


def _key(value: Any, heads: tuple[str, ...]) -> str | None:
    keys = value if isinstance(value, dict) else type(value).model_fields
    found = [head for head in heads if head in keys]
    return TAG + found[0] if len(found) == 1 else None


def _one_of(heads: tuple[str, ...], what: str) -> Any:
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
            later = [key for key in NOT_YET_SUPPORTED if key in value]
            if later:
                raise PydanticCustomError(
                    "unsupported", f"'{later[0]}' is not supported yet; supported are {', '.join(heads)}"
                )
            first = next(iter(value), "")
            raise PydanticCustomError("unknown", f"'{first}' is not {what}{did_you_mean(str(first), heads)}")
        return value

    return check


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
OUTCOME_KEYS = (
    "index_died",
    "index_longer_than",
    "any_encounter",
    "encounters_with",
    "any_event",
    "class_of",
    "labels_of",
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
    Discriminator(lambda value: _key(value, CONDITION_KEYS)),
    BeforeValidator(_one_of(CONDITION_KEYS, "a condition")),
]

Outcome = Annotated[
    Annotated[IndexDied, Tag(TAG + "index_died")]
    | Annotated[IndexLongerThan, Tag(TAG + "index_longer_than")]
    | Annotated[AnyEncounter, Tag(TAG + "any_encounter")]
    | Annotated[EncountersWith, Tag(TAG + "encounters_with")]
    | Annotated[AnyEvent, Tag(TAG + "any_event")]
    | Annotated[ClassOf, Tag(TAG + "class_of")]
    | Annotated[LabelsOf, Tag(TAG + "labels_of")],
    Discriminator(lambda value: _key(value, OUTCOME_KEYS)),
    BeforeValidator(_one_of(OUTCOME_KEYS, "an outcome")),
]

"""What counts as the outcome, and in which window after the prediction it is looked for."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from schemas.cohort.choice import TAG, key_of, one_of
from schemas.cohort.conditions import EncounterFilter, IndexLongerThan
from schemas.cohort.parts import ListName, Part, one_or_more
from schemas.cohort.times import DaysField, RateField, TimeField, WindowField


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
    at_least: int = Field(default=1, ge=1, le=1_000_000, strict=True)
    on_distinct_days: bool = False


class AnyEvent(_Windowed):
    any_event: ListName


class EpisodesOf(_Windowed):
    """Encounters with the codes, on days further apart than `new_episode_after`; the index's own is the first."""

    episodes_of: ListName
    new_episode_after: DaysField
    at_least: Annotated[tuple[RateField, ...], BeforeValidator(one_or_more), Field(min_length=1)]


class ClassOf(Part):
    class_of: Literal["DX"]
    rank: int = Field(default=1, ge=1, le=1_000_000, strict=True)
    map: Literal["icd10_chapter"]


class LabelsOf(Part):
    labels_of: Literal["DX"]
    map: Literal["icd10_3char", "icd10_chapter"]
    min_index: int = Field(
        default=1, ge=1, le=1_000_000_000, strict=True
    )  # index rows a label needs to be kept


OUTCOME_KEYS = (
    "index_died",
    "index_longer_than",
    "any_encounter",
    "encounters_with",
    "any_event",
    "episodes_of",
    "class_of",
    "labels_of",
)

Outcome = Annotated[
    Annotated[IndexDied, Tag(TAG + "index_died")]
    | Annotated[IndexLongerThan, Tag(TAG + "index_longer_than")]
    | Annotated[AnyEncounter, Tag(TAG + "any_encounter")]
    | Annotated[EncountersWith, Tag(TAG + "encounters_with")]
    | Annotated[AnyEvent, Tag(TAG + "any_event")]
    | Annotated[EpisodesOf, Tag(TAG + "episodes_of")]
    | Annotated[ClassOf, Tag(TAG + "class_of")]
    | Annotated[LabelsOf, Tag(TAG + "labels_of")],
    Discriminator(lambda value: key_of(value, OUTCOME_KEYS)),
    BeforeValidator(one_of(OUTCOME_KEYS, "an outcome")),
]

"""The outcomes a cohort can predict, and the time window after the prediction in which each is counted."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from schemas.cohort.choice import TAG, exactly_one_key, key_of
from schemas.cohort.conditions import EncounterFilter, IndexLongerThan
from schemas.cohort.parts import ListName, Section, one_or_more
from schemas.cohort.times import DaysField, RateField, TimeField, WindowField
from schemas.cohort.values import Classes, Comparison, Substance


class _WindowOutcome(Section):
    """An outcome in the window (predict_at, predict_at + within] or (predict_at, until]."""

    within: WindowField | None = None
    until: TimeField | None = None

    @model_validator(mode="after")
    def _check_window(self) -> Self:
        if (self.within is None) == (self.until is None):
            raise PydanticCustomError(
                "window",
                "one time window is needed; write either 'within: 30 days' or 'until: index.end + 30 days'",
            )
        return self


class IndexDied(Section):
    index_died: Literal[True]

    _misplaced_keys: ClassVar[dict[str, str]] = dict.fromkeys(
        ("within", "until"),
        "index_died takes no time window: it is death at any time in the index stay, and not after it; "
        "for death within a time write e.g. '{died: true, within: 30 days}'",
    )


class Died(_WindowOutcome):
    """Death of any kind in the window: in a hospital or outside."""

    died: Literal[True]


class AnyEncounter(_WindowOutcome):
    any_encounter: EncounterFilter


class EncountersWith(_WindowOutcome):
    encounters_with: ListName
    at_least: int = Field(default=1, ge=1, le=1_000_000, strict=True)
    on_distinct_days: bool = False


class AnyEvent(_WindowOutcome):
    any_event: ListName
    first_ever: Literal[True] | None = None  # only the first that the data have of the patient counts


class EpisodesOf(_WindowOutcome):
    """Episodes: encounters with the codes, more than `new_episode_after` apart; the index encounter is the first."""

    episodes_of: ListName
    new_episode_after: DaysField
    at_least: Annotated[tuple[RateField, ...], BeforeValidator(one_or_more), Field(min_length=1)]


class LabReached(Comparison, _WindowOutcome):
    """A value taken in the window, at the time it was taken."""


class LabClass(Classes, _WindowOutcome):
    """The class of the first or last value taken in the window; an index without one is left out."""


class ClassOf(Section):
    class_of: Literal["DX"]
    rank: int = Field(default=1, ge=1, le=1_000_000, strict=True)
    map: Literal["icd10_chapter"]


class LabelsOf(Section):
    labels_of: Literal["DX"]
    map: Literal["icd10_3char", "icd10_chapter"]
    # a label is kept if at least this many index rows have it
    min_index: int = Field(default=1, ge=1, le=1_000_000_000, strict=True)


class IndexDaysLeft(Section):
    """The days from the prediction to the end of the index stay, whether the patient leaves it alive or not."""

    index_days_left: Literal[True]

    _misplaced_keys: ClassVar[dict[str, str]] = dict.fromkeys(
        ("within", "until"),
        "index_days_left takes no time window: it counts to the end of the index stay, however late that is",
    )


class ValueOf(_WindowOutcome):
    """A value taken in the window, as a number in one unit; an index without one is left out."""

    value_of: ListName
    which: Literal["first", "last", "lowest", "highest"] = "first"
    unit: Annotated[str, Field(min_length=1, max_length=30)]
    substance: Substance | None = None

    @property
    def lab(self) -> str:
        return self.value_of


class ToEvent(Section):
    any_event: ListName


class ToEncounter(Section):
    any_encounter: EncounterFilter


class ToDeath(Section):
    died: Literal[True]


_TO_KEYS = ("any_event", "any_encounter", "died")


class TimeTo(_WindowOutcome):
    """The time to the first such event in the window; censored where the window or the follow-up ends before it."""

    time_to: Annotated[
        Annotated[ToEvent, Tag(TAG + "any_event")]
        | Annotated[ToEncounter, Tag(TAG + "any_encounter")]
        | Annotated[ToDeath, Tag(TAG + "died")],
        Discriminator(lambda value: key_of(value, _TO_KEYS)),
        BeforeValidator(exactly_one_key(_TO_KEYS, "what the time runs to")),
    ]


YES_OR_NO = (
    IndexDied,
    IndexLongerThan,
    Died,
    AnyEncounter,
    EncountersWith,
    AnyEvent,
    EpisodesOf,
    LabReached,
)
"""The outcomes that come or do not."""

NUMBERS = (IndexDaysLeft, ValueOf)
"""The outcomes whose label is a number."""

OUTCOME_KEYS = (
    "index_died",
    "index_longer_than",
    "died",
    "any_encounter",
    "encounters_with",
    "any_event",
    "episodes_of",
    "lab",
    "lab_class",
    "class_of",
    "labels_of",
    "index_days_left",
    "value_of",
    "time_to",
)

Outcome = Annotated[
    Annotated[IndexDied, Tag(TAG + "index_died")]
    | Annotated[IndexLongerThan, Tag(TAG + "index_longer_than")]
    | Annotated[Died, Tag(TAG + "died")]
    | Annotated[AnyEncounter, Tag(TAG + "any_encounter")]
    | Annotated[EncountersWith, Tag(TAG + "encounters_with")]
    | Annotated[AnyEvent, Tag(TAG + "any_event")]
    | Annotated[EpisodesOf, Tag(TAG + "episodes_of")]
    | Annotated[LabReached, Tag(TAG + "lab")]
    | Annotated[LabClass, Tag(TAG + "lab_class")]
    | Annotated[ClassOf, Tag(TAG + "class_of")]
    | Annotated[LabelsOf, Tag(TAG + "labels_of")]
    | Annotated[IndexDaysLeft, Tag(TAG + "index_days_left")]
    | Annotated[ValueOf, Tag(TAG + "value_of")]
    | Annotated[TimeTo, Tag(TAG + "time_to")],
    Discriminator(lambda value: key_of(value, OUTCOME_KEYS)),
    BeforeValidator(exactly_one_key(OUTCOME_KEYS, "an outcome")),
]

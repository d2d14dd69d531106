"""The conditions an index must meet, except those made of others: see `combinations`."""

from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from schemas.cohort.parts import FileContext, ListName, Section, one_or_more
from schemas.cohort.times import Duration, DurationField, TimeField
from schemas.cohort.values import Comparison

S = TypeVar("S", bound=Section)

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


Words = Annotated[tuple[str, ...], BeforeValidator(one_or_more), Field(min_length=1)]


class EncounterFilter(Section):
    """A filter on encounters; an empty filter matches all of them."""

    type: _column_values("ENC_TYPE", PCORNET_TYPES) | None = None  # type: ignore[valid-type]
    discharge_status: _column_values("DISCHARGE_STATUS", PCORNET_STATUSES) | None = None  # type: ignore[valid-type]
    # the encounter has an event with a code of this list
    with_: ListName | None = Field(default=None, alias="with")
    admission_type: Words | None = None
    insurance: Words | None = None
    race: Words | None = None
    sex: Words | None = None  # of the patient

    @property
    def values(self) -> dict[str, tuple[str, ...]]:
        """Return the values of each column that is filtered."""
        by_column = {column: getattr(self, column) for column in ATTRIBUTES}
        return {column: values for column, values in by_column.items() if values is not None}

    @property
    def is_known_at_the_end(self) -> bool:
        """Whether only the end of an encounter says if it matches: by its codes, or by where the patient went."""
        return self.with_ is not None or self.discharge_status is not None


ATTRIBUTES = ("type", "discharge_status", "admission_type", "insurance", "race", "sex")
"""The columns an encounter is filtered by, all of encounters/1 but the last, which is the patient's."""


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


class IndexIs(Section):
    index_is: EncounterFilter


class IndexAge(Section):
    index_age: tuple[DurationField, DurationField]  # first <= age < second, at the start

    @model_validator(mode="after")
    def _check_ages(self) -> Self:
        return check_ages(self, self.index_age)


def check_ages(section: S, ages: tuple[Duration, Duration]) -> S:
    """Return a section unless its range of ages is empty."""
    if ages[0].is_at_least(ages[1]):
        raise PydanticCustomError(
            "ages", "'age' is empty: it runs from the first age up to, but not including, the second"
        )
    return section


class DataUntil(Section):
    data_until: TimeField


class EventSeen(_TimeSpan):
    event: ListName


class EventNotSeen(Section):
    no_event: ListName
    before: TimeField


class EncounterSeen(_TimeSpan):
    any_encounter: EncounterFilter


class LabSeen(Comparison, _TimeSpan):
    """A value taken after `after` and known by `before`."""


class InCohort(Section):
    in_cohort: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]

"""The meaning of a cohort file: one pydantic model, hashed in a form that comments do not change."""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)
from pydantic_core import PydanticCustomError

from schemas.cohort.codes import VOCAB_NAMES, clean_pattern, pattern_fault
from schemas.cohort.conditions import Condition, EncounterFilter
from schemas.cohort.document import Document, Path, where
from schemas.cohort.faults import CohortError, Fault
from schemas.cohort.look_ahead import look_aheads
from schemas.cohort.outcomes import Outcome
from schemas.cohort.parts import Known, Part, one_or_more
from schemas.cohort.times import Duration, DurationField, PredictAtField, TimeField, duration
from schemas.sources import SourceSpec, cohort_sources, sources

SOURCES = tuple(cohort_sources())
if TYPE_CHECKING:
    Source = str
else:
    Source = Literal[SOURCES]  # those of installed packages too
HASH_SPLIT = (70, 15, 15)
LIST_KEYS = ("with_", "index_without", "event", "no_event", "encounters_with", "any_event", "episodes_of")

EventKind = Literal["DX", "PR", "MED", "LAB", "VIT", "IMM", "ITEM"]
EventKinds = Annotated[tuple[EventKind, ...], BeforeValidator(one_or_more)]


def _patterns(vocab: str) -> Any:
    def check(pattern: str) -> str:
        fault = pattern_fault(vocab, pattern)
        if fault:
            raise PydanticCustomError("code", "{fault}", {"fault": fault})
        return clean_pattern(pattern)

    one = Annotated[str, Field(min_length=1), AfterValidator(check)]
    return Annotated[tuple[one, ...], BeforeValidator(one_or_more), Field(min_length=1)]


class CodeList(Part):
    """Patterns by vocabulary, cleaned: upper case, no dots, `*` for a prefix."""

    icd10cm: _patterns("icd10cm") | None = None  # type: ignore[valid-type]
    icd9cm: _patterns("icd9cm") | None = None  # type: ignore[valid-type]
    icd10pcs: _patterns("icd10pcs") | None = None  # type: ignore[valid-type]
    icd9pcs: _patterns("icd9pcs") | None = None  # type: ignore[valid-type]
    cpt: _patterns("cpt") | None = None  # type: ignore[valid-type]
    loinc: _patterns("loinc") | None = None  # type: ignore[valid-type]
    itemid: _patterns("itemid") | None = None  # type: ignore[valid-type]
    rxnorm: _patterns("rxnorm") | None = None  # type: ignore[valid-type]
    atc: _patterns("atc") | None = None  # type: ignore[valid-type]
    cvx: _patterns("cvx") | None = None  # type: ignore[valid-type]

    @property
    def patterns(self) -> dict[str, tuple[str, ...]]:
        """Return the patterns of every vocabulary the list names."""
        named = {vocab: getattr(self, vocab) for vocab in VOCAB_NAMES}
        return {vocab: found for vocab, found in named.items() if found}


@dataclass(frozen=True)
class Keep:
    """Which of a subject's matching encounters are index: all, the first, or the one nearest to an age."""

    which: Literal["every", "first", "nearest"]
    age: Duration | None = None

    def __str__(self) -> str:
        return f"nearest {self.age}" if self.age else self.which


def _keep(value: Any) -> Keep:
    if isinstance(value, Keep):
        return value
    if value in ("every", "first"):
        return Keep(value)
    match = re.fullmatch(r"nearest +(\d.*)", value) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError("keep", "'{written}' is none of 'every', 'first', 'nearest 4 months'")
    return Keep("nearest", duration(match[1]))


def _day(value: Any) -> Any:
    """Take no number for a date: YAML reads 20160101 as one."""
    if isinstance(value, int | float):
        raise PydanticCustomError("date_type", "")
    return value


Day = Annotated[date, BeforeValidator(_day)]


def _source(info: ValidationInfo) -> SourceSpec | None:
    """Return the source a cohort file names; None where it names none that there is."""
    return sources().get(info.context.source or "") if isinstance(info.context, Known) else None


class Index(Part):
    """The encounters a prediction is made for."""

    encounter: EncounterFilter
    from_: Day | None = Field(default=None, alias="from")
    to: Day | None = None
    age: tuple[DurationField, DurationField] | None = None  # closed at the first, open at the second
    keep: Annotated[Keep, BeforeValidator(_keep), PlainSerializer(str)] = Keep("every")

    @model_validator(mode="after")
    def _dates_mean_something(self, info: ValidationInfo) -> Self:
        source = _source(info)
        if source and source.has_shifted_dates and (self.from_ or self.to):
            raise PydanticCustomError(
                "shifted",
                "'from' and 'to' mean nothing in {title}, where dates are shifted",
                {"title": source.title},
            )
        if self.from_ and self.to and self.to < self.from_:
            raise PydanticCustomError("dates", "'to' is before 'from', so no encounter is meant")
        if self.age and self.age[0].is_at_least(self.age[1]):
            raise PydanticCustomError(
                "ages", "'age' holds none: it runs from the first up to and without the second"
            )
        return self


class FeatureRule(Part):
    """What a model may see: events known by `predict_at`, less the dropped kinds."""

    until: Literal["predict_at"]
    since: TimeField | None = None
    drop_from_index: EventKinds = ()
    drop_types: EventKinds = ()

    @model_validator(mode="after")
    def _since_is_before_the_prediction(self) -> Self:
        since = self.since
        late = since and since.anchor == "predict_at" and (since.sign > 0 or not since.offset.count)
        if since and (late or since.anchor not in ("predict_at", "index.start")):
            message = (
                "features cannot begin at '{since}'; write e.g. 'predict_at - 365 days' or 'index.start'"
            )
            raise PydanticCustomError("since", f"since: {message}", {"since": str(since)})
        return self


DayOfMonth = Annotated[int, Field(ge=1, le=31, strict=True)]


class Split(Part):
    """How subjects are parted: by the one hash every task shares, or by the day of birth."""

    hash: tuple[int, int, int] | None = None
    test_if_birth_day: tuple[DayOfMonth, DayOfMonth] | None = None  # both in it

    @model_validator(mode="after")
    def _one_rule(self, info: ValidationInfo) -> Self:
        if (self.hash is None) == (self.test_if_birth_day is None):
            raise PydanticCustomError(
                "split", "write one of 'hash: [70, 15, 15]' and 'test_if_birth_day: [17, 24]'"
            )
        if self.hash not in (None, HASH_SPLIT):
            raise PydanticCustomError(
                "split", "every task shares one split per patient; write 'hash: [70, 15, 15]'"
            )
        source = _source(info)
        if source and not source.has_birth_days and self.test_if_birth_day:
            raise PydanticCustomError(
                "split", "{title} has no days of birth; write 'hash: [70, 15, 15]'", {"title": source.title}
            )
        return self


class Cohort(Part):
    """One cohort file, valid; docs/cohorts.md says what its words mean."""

    cohort: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100)]
    about: Annotated[str, Field(min_length=1)]
    source: Source
    codes: dict[str, CodeList] = {}
    index: Index
    require: tuple[dict[str, Condition], ...] = ()
    looks_ahead: Annotated[tuple[str, ...], BeforeValidator(one_or_more)] | None = None
    predict_at: PredictAtField
    features: FeatureRule
    outcome: Outcome
    split: Split

    _file: str = PrivateAttr(default="")
    _document: Document = PrivateAttr(default_factory=Document)

    @property
    def requirements(self) -> list[tuple[str, Any]]:
        """Return the name and condition of every requirement, in order."""
        return [pair for item in self.require for pair in item.items()]

    def warnings(self) -> list[str]:
        """Return what is odd in the file but does no harm."""
        used = _list_names(self.index) | _list_names(self.outcome)
        for _, condition in self.requirements:
            used |= _list_names(condition)
        unused = [f"codes.{name}: this code list is never used" for name in self.codes if name not in used]
        return unused + self._look_ahead_warnings()

    def _look_ahead_warnings(self) -> list[str]:
        """Return what of the choice is known only after the prediction and is not said to be meant."""
        meant = self.looks_ahead or ()
        return [
            f"'{name}' looks past the prediction: {why}; nobody can ask for it when the model is used. "
            f"Leave it out, or if it is meant say so by 'looks_ahead: [{name}]'"
            for name, why in look_aheads(self).items()
            if name not in meant
        ]

    def normalized(self) -> dict[str, Any]:
        """Return the spec as plain data, defaults written out, codes cleaned."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @property
    def sha256(self) -> str:
        text = json.dumps(self.normalized(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def fault(self, path: Path, message: str) -> CohortError:
        """Return an error with the file and line of `path`, for what shows only when the file is run."""
        return self.faults([(path, message)])

    def faults(self, found: Iterable[tuple[Path, str]]) -> CohortError:
        """Return one error for several."""
        told = [Fault(self._document.line(path), where(path), message) for path, message in found]
        return CohortError(self._file, told)


def _list_names(part: Part) -> set[str]:
    """Return the code lists a part of the file refers to."""
    names: set[str] = set()
    for key in LIST_KEYS:
        name = getattr(part, key, None)
        names |= {name} if isinstance(name, str) else set()
    for key in ("encounter", "any_encounter"):
        inner = getattr(part, key, None)
        names |= _list_names(inner) if isinstance(inner, Part) else set()
    return names

"""The pydantic model of a cohort file; its hash does not depend on comments, layout, or what only the page shows."""

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
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from schemas.cards import COHORT_ENDINGS
from schemas.cohort.codes import VOCAB_NAMES, clean_pattern, pattern_fault
from schemas.cohort.combinations import Condition, plain_conditions
from schemas.cohort.conditions import EncounterFilter, InCohort, check_ages
from schemas.cohort.document import Document, FieldPath, dotted_path
from schemas.cohort.faults import CohortError, Fault
from schemas.cohort.look_ahead import look_aheads
from schemas.cohort.outcomes import YES_OR_NO, Died, Outcome
from schemas.cohort.parts import FileContext, Section, one_or_more
from schemas.cohort.times import Duration, DurationField, PredictAtField, TimeField, duration
from schemas.sources import SourceSpec, cohort_sources, sources

SOURCES = tuple(cohort_sources())
if TYPE_CHECKING:
    Source = str
else:
    Source = Literal[SOURCES]  # those of installed packages too
HASH_SPLIT = (70, 15, 15)
LIST_KEYS = (
    *("with_", "index_without", "event", "no_event", "encounters_with", "any_event", "episodes_of"),
    *("lab", "lab_class", "value_of"),
)

EventKind = Literal["DX", "PR", "MED", "LAB", "VIT", "IMM", "ITEM"]
EventKinds = Annotated[tuple[EventKind, ...], BeforeValidator(one_or_more)]


def _patterns(vocab: str) -> Any:
    def check(pattern: str) -> str:
        fault = pattern_fault(vocab, pattern)
        if fault:
            raise PydanticCustomError("code", "{fault}", {"fault": fault})
        return clean_pattern(pattern)

    field_type = Annotated[str, Field(min_length=1), AfterValidator(check)]
    return Annotated[tuple[field_type, ...], BeforeValidator(one_or_more), Field(min_length=1)]


class CodeList(Section):
    """Code patterns by vocabulary, cleaned: upper case, no dots, a final `*` for a prefix."""

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
        """Return the patterns by vocabulary, for the vocabularies that have any."""
        by_vocab = {vocab: getattr(self, vocab) for vocab in VOCAB_NAMES}
        return {vocab: codes for vocab, codes in by_vocab.items() if codes}


@dataclass(frozen=True)
class Keep:
    """Which of a patient's matching encounters are index: all, the first, or the one nearest to an age."""

    rule: Literal["every", "first", "nearest"]
    age: Duration | None = None

    def __str__(self) -> str:
        return f"nearest {self.age}" if self.age else self.rule


def _keep(value: Any) -> Keep:
    if isinstance(value, Keep):
        return value
    if value in ("every", "first"):
        return Keep(value)
    match = re.fullmatch(r"nearest +(\d.*)", value) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError(
            "keep", "'{value}' is not valid; write 'every', 'first' or e.g. 'nearest 4 months'"
        )
    return Keep("nearest", duration(match[1]))


def _day(value: Any) -> Any:
    """Refuse a number as a date: YAML reads 20160101 as a number."""
    if isinstance(value, int | float):
        raise PydanticCustomError("date_type", "")
    return value


Day = Annotated[date, BeforeValidator(_day)]


def _source(info: ValidationInfo) -> SourceSpec | None:
    """Return the source a cohort file names; None where it names none that there is."""
    return sources().get(info.context.source or "") if isinstance(info.context, FileContext) else None


class Index(Section):
    """The encounters a prediction is made for."""

    encounter: EncounterFilter
    from_: Day | None = Field(default=None, alias="from")
    to: Day | None = None
    age: tuple[DurationField, DurationField] | None = None  # first <= age < second
    keep: Annotated[Keep, BeforeValidator(_keep), PlainSerializer(str)] = Keep("every")

    @model_validator(mode="after")
    def _check_dates_and_ages(self, info: ValidationInfo) -> Self:
        source = _source(info)
        if source and source.has_shifted_dates and (self.from_ or self.to):
            raise PydanticCustomError(
                "shifted",
                "'from' and 'to' cannot be used on {title}, where dates are shifted",
                {"title": source.title},
            )
        if self.from_ and self.to and self.to < self.from_:
            raise PydanticCustomError("dates", "'to' is before 'from', so no encounter matches")
        return check_ages(self, self.age) if self.age else self


class FeatureRule(Section):
    """What a model may see: events known by `predict_at`, without the dropped kinds."""

    until: Literal["predict_at"]
    since: TimeField | None = None
    drop_from_index: EventKinds = ()
    drop_types: EventKinds = ()

    @model_validator(mode="after")
    def _check_since(self) -> Self:
        start = self.since
        late = start and start.anchor == "predict_at" and (start.sign > 0 or not start.offset.count)
        if start and (late or start.anchor not in ("predict_at", "index.start")):
            message = (
                "features cannot start at '{since}'; write e.g. 'predict_at - 365 days' or 'index.start'"
            )
            raise PydanticCustomError("since", f"since: {message}", {"since": str(start)})
        return self


DayOfMonth = Annotated[int, Field(ge=1, le=31, strict=True)]


class Split(Section):
    """How patients are split: by the one hash that all tasks share, or by the day of birth."""

    hash: tuple[int, int, int] | None = None
    test_if_birth_day: tuple[DayOfMonth, DayOfMonth] | None = None  # first and last day, inclusive

    @model_validator(mode="after")
    def _check_rule(self, info: ValidationInfo) -> Self:
        if (self.hash is None) == (self.test_if_birth_day is None):
            raise PydanticCustomError(
                "split", "write either 'hash: [70, 15, 15]' or 'test_if_birth_day: [17, 24]'"
            )
        if self.hash not in (None, HASH_SPLIT):
            raise PydanticCustomError(
                "split", "all tasks share one split of the patients; write 'hash: [70, 15, 15]'"
            )
        source = _source(info)
        if source and not source.has_birth_days and self.test_if_birth_day:
            raise PydanticCustomError(
                "split", "{title} has no dates of birth; write 'hash: [70, 15, 15]'", {"title": source.title}
            )
        return self


def refuse_reserved_ending(name: str) -> str:
    """Return the name of a cohort, unless it ends like an output: `stroke_nest` would use folders of a cohort `stroke`.

    Raises:
        PydanticCustomError: it ends in `_labels`, `_nest` or another of `COHORT_ENDINGS`.
    """
    ending = next((suffix for suffix in COHORT_ENDINGS if name.endswith(f"_{suffix}")), None)
    if ending:
        raise PydanticCustomError(
            "name",
            "'{name}' ends in _{ending}, like an output of another cohort; choose another name",
            {"name": name, "ending": ending},
        )
    return name


def _one_line(text: str) -> str:
    if len(text.splitlines()) != 1 or text != text.strip():
        raise PydanticCustomError("title", "a title is one line without spaces at its ends")
    return text


def _threshold(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise PydanticCustomError(
            "threshold",
            "a threshold is a probability above 0 and below 1; write e.g. 'thresholds: [0.1, 0.2]'",
        )
    return value


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


_BETWEEN_0_AND_1 = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
ThresholdField = Annotated[float, BeforeValidator(_threshold), WithJsonSchema(_BETWEEN_0_AND_1)]
Thresholds = Annotated[
    tuple[ThresholdField, ...], BeforeValidator(_as_list), Field(min_length=1, max_length=10)
]
ONLY_OF_THE_PAGE = ("title", "thresholds")
"""Keys that change how the page looks, but neither labels nor models: they are not in the file's hash."""


class Cohort(Section):
    """One valid cohort file; docs/cohorts.md defines its terms."""

    cohort: Annotated[
        str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=100), AfterValidator(refuse_reserved_ending)
    ]
    title: Annotated[str, Field(min_length=1, max_length=80), AfterValidator(_one_line)] | None = None
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
    thresholds: Thresholds | None = None

    _file: str = PrivateAttr(default="")
    _document: Document = PrivateAttr(default_factory=Document)
    _inner: "dict[str, Cohort]" = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _check_thresholds(self) -> Self:
        if self.thresholds and not self.is_yes_or_no:
            raise PydanticCustomError(
                "threshold", "thresholds are for yes-or-no outcomes only; remove 'thresholds'"
            )
        return self

    @property
    def is_yes_or_no(self) -> bool:
        """Return whether the outcome comes or does not: no class, number or time to an event."""
        return isinstance(self.outcome, YES_OR_NO)

    @property
    def requirements(self) -> list[tuple[str, Any]]:
        """Return the name and condition of every requirement, in order."""
        return [pair for item in self.require for pair in item.items()]

    @property
    def plain_conditions(self) -> list[tuple[FieldPath, Any]]:
        """Return every condition that is not made of others, with its path in the file."""
        return [
            leaf
            for place, item in enumerate(self.require)
            for name, condition in item.items()
            for leaf in plain_conditions(condition, ("require", place, name))
        ]

    @property
    def follow_up_days_after_data(self) -> int:
        """Return for how many days after a patient's data end the outcome is known: some sources know of deaths."""
        return sources()[self.source].death_follow_up_days if isinstance(self.outcome, Died) else 0

    @property
    def inner(self) -> "dict[str, Cohort]":
        """Return the cohorts that conditions `in_cohort` name, by name."""
        return dict(self._inner)

    @property
    def family(self) -> "list[Cohort]":
        """Return this cohort and all that it refers to, directly or through others; each once."""
        members = {self.cohort: self}
        for cohort in self._inner.values():
            members |= {member.cohort: member for member in cohort.family}
        return list(members.values())

    def warnings(self) -> list[str]:
        """Return a message for everything in the file that is odd but harmless."""
        used = _list_names(self.index) | _list_names(self.outcome)
        for _, condition in self.plain_conditions:
            used |= _list_names(condition)
        messages = [f"codes.{name}: this code list is never used" for name in self.codes if name not in used]
        return messages + self._look_ahead_warnings()

    def _look_ahead_warnings(self) -> list[str]:
        """Return a message for each criterion known only after the prediction and not declared in `looks_ahead`."""
        intentional = self.looks_ahead or ()
        return [
            f"'{name}' looks past the prediction: {reason}, so it cannot be checked when the model is used. "
            f"Remove it, or add 'looks_ahead: [{name}]' if it is intended"
            for name, reason in look_aheads(self).items()
            if name not in intentional
        ]

    def normalized(self) -> dict[str, Any]:
        """Return what labels and models depend on as plain data, with defaults filled in and codes cleaned."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude=set(ONLY_OF_THE_PAGE))

    @property
    def sha256(self) -> str:
        """The hash of the file's meaning, and of the cohorts it names."""
        hashes = {"in_cohorts": {name: cohort.sha256 for name, cohort in self._inner.items()}}
        spec = self.normalized() | (hashes if self._inner else {})
        text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    @classmethod
    def of_lock(cls, lock: dict[str, Any]) -> "Cohort":
        """Return the cohort that a lock file describes, with the cohorts it names."""
        members = {name: cls.model_validate(spec) for name, spec in lock.get("in_cohorts", {}).items()}
        cohort = cls.model_validate(lock["spec"])
        for member in (cohort, *members.values()):
            names = [part.in_cohort for _, part in member.plain_conditions if isinstance(part, InCohort)]
            member._inner.update({name: members[name] for name in names})
        return cohort

    def fault(self, path: FieldPath, message: str) -> CohortError:
        """Return an error with the file and line of `path`, for a fault that shows only when the file is run."""
        return self.faults([(path, message)])

    def faults(self, messages: Iterable[tuple[FieldPath, str]]) -> CohortError:
        """Return one error for several faults."""
        faults = [Fault(self._document.line(path), dotted_path(path), message) for path, message in messages]
        return CohortError(self._file, faults)


def _list_names(section: Section) -> set[str]:
    """Return the names of the code lists a section of the file uses."""
    names: set[str] = set()
    for key in LIST_KEYS:
        name = getattr(section, key, None)
        names |= {name} if isinstance(name, str) else set()
    for key in ("encounter", "any_encounter", "index_is", "time_to"):
        inner = getattr(section, key, None)
        names |= _list_names(inner) if isinstance(inner, Section) else set()
    return names

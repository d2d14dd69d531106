"""Lengths of time, rates and points in time in a cohort file: `18 months`, `3 in 6 months`, `index.end + 30 days`."""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BeforeValidator, PlainSerializer
from pydantic_core import PydanticCustomError

from schemas.cohort.faults import did_you_mean

Anchor = Literal["index.start", "index.end", "predict_at", "birth", "end_of_data"]
ANCHORS: tuple[str, ...] = get_args(Anchor)

_UNITS = {"hour": "hours", "day": "days", "month": "months", "year": "years"}
# the longest lengths of time: a date plus a longer one may be out of range
_MAX = {
    "hours": 150 * 366 * 24,
    "days": 150 * 366,
    "months": 150 * 12,
    "years": 150,
}
_DURATION = re.compile(r"(\d{1,6}) +(hour|day|month|year)s?")
_RATE = re.compile(r"(\d{1,3}) +in +(.+)")
_TIME = re.compile(r"([a-z_.]+)(?: *([+-]) *(.+))?")
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Duration:
    """A length of time, in calendar months or exact microseconds; a year is twelve months."""

    count: int
    unit: Literal["hours", "days", "months", "years"]

    @property
    def months(self) -> int:
        return self.count * {"months": 1, "years": 12}.get(self.unit, 0)

    @property
    def microseconds(self) -> int:
        exact = {"hours": timedelta(hours=1), "days": timedelta(days=1)}.get(self.unit, timedelta())
        return self.count * (exact // _MICROSECOND)

    def is_at_least(self, minimum: "Duration") -> bool:
        """Return whether this is certainly as long as `minimum`: months count as 28 days here, as 31 in `minimum`."""
        day = timedelta(days=1) // _MICROSECOND
        shortest = self.microseconds + 28 * day * self.months
        longest = minimum.microseconds + 31 * day * minimum.months
        is_same = (self.months, self.microseconds) == (minimum.months, minimum.microseconds)
        return is_same or shortest >= longest

    def __str__(self) -> str:
        return f"{self.count} {self.unit.removesuffix('s') if self.count == 1 else self.unit}"


@dataclass(frozen=True)
class TimePoint:
    """An anchor and a length of time after it (sign 1) or before it (sign -1)."""

    anchor: Anchor
    sign: Literal[1, -1] = 1
    offset: Duration = Duration(0, "days")

    def __str__(self) -> str:
        if not self.offset.count:
            return self.anchor
        return f"{self.anchor} {'+' if self.sign > 0 else '-'} {self.offset}"


@dataclass(frozen=True)
class Rate:
    """A number of times within a period, both ends included: `3 in 6 months`."""

    count: int
    period: Duration

    def __str__(self) -> str:
        return f"{self.count} in {self.period}"


def duration(value: Any) -> Duration:
    """Parse a length of time such as `18 months`."""
    if isinstance(value, Duration):
        return value
    match = _DURATION.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError("duration", "'{value}' is not a length of time; write e.g. '30 days'")
    length = Duration(int(match[1]), cast(Any, _UNITS[match[2]]))
    if length.count > _MAX[length.unit]:
        raise PydanticCustomError("duration", "'{value}' is too long; write at most '150 years'")
    return length


def _days(value: Any) -> Duration:
    length = duration(value)
    if length.unit == "hours":
        raise PydanticCustomError("days", "'{value}' is not in days, months or years; write e.g. '14 days'")
    return length


def _rate(value: Any) -> Rate:
    if isinstance(value, Rate):
        return value
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError("rate", "'{value}' is not a rate; write e.g. '3 in 6 months'")
    if int(match[1]) < 2:
        raise PydanticCustomError(
            "rate", "'{value}': the index is the first episode, so the rate must be 2 or more"
        )
    return Rate(int(match[1]), _days(match[2]))


def _times(value: Any) -> Rate:
    """Parse how often in how long, e.g. `3 in 24 hours`."""
    if isinstance(value, Rate):
        return value
    match = _RATE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or int(match[1]) < 2:
        raise PydanticCustomError(
            "rate", "'{value}' is not twice or more in a time; write e.g. '3 in 24 hours'"
        )
    period = duration(match[2])
    if not period.count:
        raise PydanticCustomError("rate", "'{value}' is an empty time; write e.g. '3 in 24 hours'")
    return Rate(int(match[1]), period)


def _window(value: Any) -> Duration | Literal["end_of_data"]:
    if value == "end_of_data":
        return "end_of_data"
    length = duration(value)
    if not length.count:
        raise PydanticCustomError("window", "'{value}' is an empty window; write e.g. '30 days'")
    return length


def _time(value: Any) -> TimePoint:
    if isinstance(value, TimePoint):
        return value
    match = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise PydanticCustomError("time", "'{value}' is not a time; write e.g. 'index.end + 30 days'")
    if match[1] not in ANCHORS:
        raise PydanticCustomError("time", f"'{match[1]}' is not a time{did_you_mean(match[1], ANCHORS)}")
    sign: Literal[1, -1] = -1 if match[2] == "-" else 1
    if match[3] is None:
        return TimePoint(cast(Anchor, match[1]))
    length = _DURATION.fullmatch(match[3].strip())
    if length is None:
        raise PydanticCustomError("time", f"'{match[3]}' is not a length of time; write e.g. '30 days'")
    return TimePoint(cast(Anchor, match[1]), sign, duration(match[3]))


def _predict_at(value: Any) -> TimePoint:
    time = _time(value)
    if time.anchor not in ("index.start", "index.end") or time.sign < 0:
        raise PydanticCustomError(
            "time",
            "'{value}' is not a prediction time; write index.start or index.end, optionally followed by '+ 24 hours'",
        )
    return time


DurationField = Annotated[Duration, BeforeValidator(duration), PlainSerializer(str)]
DaysField = Annotated[Duration, BeforeValidator(_days), PlainSerializer(str)]
RateField = Annotated[Rate, BeforeValidator(_rate), PlainSerializer(str)]
TimesField = Annotated[Rate, BeforeValidator(_times), PlainSerializer(str)]
WindowField = Annotated[Duration | Literal["end_of_data"], BeforeValidator(_window), PlainSerializer(str)]
TimeField = Annotated[TimePoint, BeforeValidator(_time), PlainSerializer(str)]
PredictAtField = Annotated[TimePoint, BeforeValidator(_predict_at), PlainSerializer(str)]

"""Comparisons of measured values: laboratory values and vital signs, as conditions and as outcomes."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, model_validator
from pydantic_core import PydanticCustomError

from schemas.cohort.parts import ListName, Section
from schemas.cohort.times import TimesField
from schemas.units import SUBSTANCES, factor

COMPARISONS = ("above", "below", "at_least", "at_most", "between")
_QUANTITY = re.compile(r"(-?\d{1,9}(?:\.\d{1,9})?)(?: *([^\d\s].{0,29}| +1?0[\^*].{0,20}))?")
if TYPE_CHECKING:
    Substance = str
else:
    Substance = Literal[tuple(SUBSTANCES)]


@dataclass(frozen=True)
class Quantity:
    """A number, kept as it is written, and its unit; the unit is empty for a pure number."""

    number: str
    unit: str = ""

    def number_in(self, unit: str, substance: str | None) -> float | None:
        """Return the number in another unit, rounded only once; None where the units do not compare."""
        ratio = factor(self.unit, unit, substance)
        return None if ratio is None else float(Fraction(self.number) * ratio)

    def __str__(self) -> str:
        return f"{self.number} {self.unit}".rstrip()


def _quantity(value: Any) -> Quantity:
    if isinstance(value, Quantity):
        return value
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise PydanticCustomError(
            "quantity", "'{value}' is not a number with its unit; write e.g. '2.0 mg/dL'"
        )
    number = match[1].rstrip("0").rstrip(".") if "." in match[1] else match[1]
    return Quantity(number, (match[2] or "").strip())


ClassName = Annotated[str, Field(min_length=1, max_length=60)]
QuantityField = Annotated[Quantity, BeforeValidator(_quantity), PlainSerializer(str)]


class Limit(Section):
    """A limit of a value, or two of them."""

    above: QuantityField | None = None
    below: QuantityField | None = None
    at_least: QuantityField | None = None
    at_most: QuantityField | None = None
    between: tuple[QuantityField, QuantityField] | None = None  # both included

    @model_validator(mode="after")
    def _check_limit(self) -> Self:
        if sum(getattr(self, key) is not None for key in COMPARISONS) != 1:
            raise PydanticCustomError(
                "comparison", f"write one of {', '.join(COMPARISONS)}, e.g. 'above: 2.0 mg/dL'"
            )
        if self.between:
            low, high = self.between
            if low.unit != high.unit or Fraction(low.number) > Fraction(high.number):
                message = (
                    "'between' needs two values in one unit, the lower first, e.g. [3.5 mmol/L, 5 mmol/L]"
                )
                raise PydanticCustomError("between", message)
        return self

    @property
    def quantities(self) -> dict[str, Quantity]:
        """Return the limits by the operator a value is compared with: `>`, `<`, `>=` or `<=`."""
        low, high = self.between or (self.at_least, self.at_most)
        by_operator = {">": self.above, "<": self.below, ">=": low, "<=": high}
        return {operator: limit for operator, limit in by_operator.items() if limit is not None}

    @property
    def unit(self) -> str:
        return next(iter(self.quantities.values())).unit

    def numbers_in(self, unit: str, substance: str | None) -> dict[str, float] | None:
        """Return the limits in the unit of some measurements; None where the units do not compare."""
        numbers = {op: limit.number_in(unit, substance) for op, limit in self.quantities.items()}
        limits = {operator: number for operator, number in numbers.items() if number is not None}
        return limits if len(limits) == len(numbers) else None


class Comparison(Limit):
    """A measured value against a limit; `which` of several values counts, or how many `times` in how long."""

    lab: ListName
    substance: Substance | None = None
    which: Literal["first", "last", "any"] | None = None
    times: TimesField | None = None

    @model_validator(mode="after")
    def _check_which(self) -> Self:
        if self.times and self.which in ("first", "last"):
            raise PydanticCustomError("times", "write either 'which' or 'times', not both")
        return self


class Classes(Section):
    """The class of a measured value: the first whose limit it meets, or another."""

    lab_class: ListName
    classes: tuple[dict[str, Limit], ...]
    otherwise: ClassName
    which: Literal["first", "last"] = "first"
    substance: Substance | None = None

    @model_validator(mode="after")
    def _check_classes(self) -> Self:
        if not self.classes or any(len(item) != 1 for item in self.classes):
            raise PydanticCustomError("classes", "write each class as '- name: {below: 70 g/L}'")
        if len(set(self.names)) < len(self.names):
            raise PydanticCustomError("classes", "two classes have the same name; give each its own")
        if len({limit.unit for limit in self.limits}) > 1:
            raise PydanticCustomError("classes", "the limits of the classes are in different units; use one")
        return self

    @property
    def lab(self) -> str:
        return self.lab_class

    @property
    def unit(self) -> str:
        return self.limits[0].unit

    @property
    def limits(self) -> tuple[Limit, ...]:
        return tuple(limit for item in self.classes for limit in item.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all classes, in the order of the file."""
        return (*(name for item in self.classes for name in item), self.otherwise)

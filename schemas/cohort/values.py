"""Comparisons of measured values: laboratory values and vital signs, as conditions and as outcomes."""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BeforeValidator, PlainSerializer, model_validator
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


QuantityField = Annotated[Quantity, BeforeValidator(_quantity), PlainSerializer(str)]


class Comparison(Section):
    """A measured value against a limit; `which` of several values counts, or how many `times` in how long."""

    lab: ListName
    above: QuantityField | None = None
    below: QuantityField | None = None
    at_least: QuantityField | None = None
    at_most: QuantityField | None = None
    between: tuple[QuantityField, QuantityField] | None = None  # both included
    substance: Substance | None = None
    which: Literal["first", "last", "any"] | None = None
    times: TimesField | None = None

    @model_validator(mode="after")
    def _check_comparison(self) -> Self:
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
        if self.times and self.which in ("first", "last"):
            raise PydanticCustomError("times", "write either 'which' or 'times', not both")
        return self

    @property
    def limits(self) -> dict[str, Quantity]:
        """Return the limits by the operator a value is compared with: `>`, `<`, `>=` or `<=`."""
        low, high = self.between or (self.at_least, self.at_most)
        by_operator = {">": self.above, "<": self.below, ">=": low, "<=": high}
        return {operator: limit for operator, limit in by_operator.items() if limit is not None}

    def limits_in(self, unit: str) -> dict[str, float] | None:
        """Return the limits in the unit of some measurements; None where the units do not compare."""
        numbers = {op: limit.number_in(unit, self.substance) for op, limit in self.limits.items()}
        known = {operator: number for operator, number in numbers.items() if number is not None}
        return known if len(known) == len(numbers) else None

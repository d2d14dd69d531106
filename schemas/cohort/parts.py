"""What every section of a cohort file shares: no unknown key, and faults worded for who writes the file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from schemas.cohort.faults import did_you_mean


@dataclass(frozen=True)
class Known:
    """What a section may need to know of the rest of the file."""

    source: str = ""
    code_lists: tuple[str, ...] = ()


class Part(BaseModel):
    """A mapping of the cohort language."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    _not_here: ClassVar[dict[str, str]] = {}
    """Keys one might look for here, and why there are none."""

    @model_validator(mode="wrap")
    @classmethod
    def _name_the_nearest_key(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            keys = [field.alias or name for name, field in cls.model_fields.items()]
            details = [_worded(detail, keys, cls._not_here) for detail in error.errors(include_url=False)]
            raise ValidationError.from_exception_data(cls.__name__, details) from None


def _worded(detail: Any, keys: list[str], not_here: Mapping[str, str]) -> InitErrorDetails:
    kind, place = detail["type"], detail["loc"]
    message = detail["msg"]
    if kind == "extra_forbidden" and len(place) == 1:
        name = str(place[0])
        kind, message = "unknown_key", not_here.get(name, f"unknown key '{name}'{did_you_mean(name, keys)}")
    return InitErrorDetails(
        type=PydanticCustomError(kind, "{text}", {**detail.get("ctx", {}), "text": message}),
        loc=place,
        input=detail["input"],
    )


def _known_list(name: str, info: ValidationInfo) -> str:
    known = info.context
    if isinstance(known, Known) and name not in known.code_lists:
        raise PydanticCustomError(
            "code_list",
            "no code list named '{name}'{hint}",
            {"name": name, "hint": did_you_mean(name, known.code_lists)},
        )
    return name


ListName = Annotated[str, AfterValidator(_known_list)]


def one_or_more(value: Any) -> Any:
    """Let `type: IP` stand for `type: [IP]`."""
    return [value] if isinstance(value, str) else value

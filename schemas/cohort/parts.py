"""The base model of every section of a cohort file: it refuses unknown keys and words faults for the file's author."""

from collections.abc import Collection, Mapping
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

from schemas.cohort.faults import did_you_mean, near_word


@dataclass(frozen=True)
class FileContext:
    """What the validation of a section needs from the rest of the file."""

    source: str = ""
    code_lists: tuple[str, ...] = ()


class Section(BaseModel):
    """A mapping in a cohort file. A misspelt key is one fault: the key it stands for is not reported as missing too."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    _misplaced_keys: ClassVar[dict[str, str]] = {}
    """Keys an author might expect here -> the message that says why they are not supported."""

    @model_validator(mode="wrap")
    @classmethod
    def _suggest_nearest_key(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return handler(data)
        except ValidationError as error:
            keys = [field.alias or name for name, field in cls.model_fields.items()]
            details = error.errors(include_url=False)
            unknown_keys = [str(detail["loc"][0]) for detail in details if _is_unknown_key(detail)]
            meant_keys = {near_word(key, keys) for key in unknown_keys}
            raise ValidationError.from_exception_data(
                cls.__name__,
                [
                    _reword(detail, keys, cls._misplaced_keys)
                    for detail in details
                    if not _is_missing_key(detail, meant_keys)
                ],
            ) from None


def _is_unknown_key(detail: Any) -> bool:
    return detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1


def _is_missing_key(detail: Any, names: Collection[str | None]) -> bool:
    """Return whether one of these keys is missing from the section itself."""
    return detail["type"] == "missing" and len(detail["loc"]) == 1 and detail["loc"][0] in names


def _reword(detail: Any, keys: list[str], misplaced_keys: Mapping[str, str]) -> InitErrorDetails:
    kind, place = detail["type"], detail["loc"]
    message = detail["msg"]
    if _is_unknown_key(detail):
        name = str(place[0])
        kind, message = (
            "unknown_key",
            misplaced_keys.get(name, f"unknown key '{name}'{did_you_mean(name, keys)}"),
        )
    return InitErrorDetails(
        type=PydanticCustomError(kind, "{text}", {**detail.get("ctx", {}), "text": message}),
        loc=place,
        input=detail["input"],
    )


def _check_list_name(name: str, info: ValidationInfo) -> str:
    context = info.context
    if isinstance(context, FileContext) and name not in context.code_lists:
        raise PydanticCustomError(
            "code_list",
            "there is no code list named '{name}'{hint}",
            {"name": name, "hint": did_you_mean(name, context.code_lists)},
        )
    return name


ListName = Annotated[str, AfterValidator(_check_list_name)]


def one_or_more(value: Any) -> Any:
    """Return a single text as a list, so that `type: IP` stands for `type: [IP]`."""
    return [value] if isinstance(value, str) else value

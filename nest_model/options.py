"""What a user may change of a preset: one list for the flags of the commands and for the settings of a run.

Torch-free: the settings are checked before a run starts.
"""

import argparse
import difflib
from collections.abc import Callable
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from nest_model.config import PRESETS, ModelConfig
from schemas.errors import NestError

BLOCKS = ("embedding", "swe", "cse")
"""What can be frozen in a fine-tuning: the embedding of tokens and times, the set-wise and the cross-set blocks."""

FIELDS = {"position": "cse_position"}
"""Options that are called otherwise in the model's config."""


class Options(BaseModel):
    """What both trainings take; None is what the preset says."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    epochs: int | None = Field(None, ge=1, description="at most; without: as the model's recipe says")
    learning_rate: float | None = Field(None, gt=0, description="without: as the model's recipe says")

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """Return the options of these values.

        Raises:
            NestError: an option that is none of these, or a value it may not have.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise NestError(
                "; ".join(_in_words(dict(fault), list(cls.model_fields)) for fault in error.errors())
            ) from None

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Return the options of a setting: `name=value` with spaces between.

        Raises:
            NestError: as `read`, a part without a value, or a name twice.
        """
        pairs = [part.partition("=") for part in text.split()]
        if faults := [name for name, equals, value in pairs if not (name and equals and value)]:
            raise NestError(
                f"{', '.join(faults) or '='}: has no value; write name=value, with spaces between pairs."
            )
        names = [name.replace("-", "_") for name, _, _ in pairs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise NestError(f"{', '.join(twice)}: given more than once; give it once.")
        return cls.read({name: pair[2] for name, pair in zip(names, pairs, strict=True)})

    @property
    def chosen(self) -> dict[str, Any]:
        """What is set, by the name of its field."""
        return self.model_dump(exclude_none=True)

    def flags(self) -> dict[str, str]:
        """Return what is set as the commands take it, without the dashes before."""
        return {
            name.replace("_", "-"): ",".join(value) if isinstance(value, tuple) else str(value)
            for name, value in self.chosen.items()
        }


class PretrainingOptions(Options):
    """What may be changed of a pretraining."""

    position: Literal["days_since_first", "days_since_prior", "index"] | None = Field(
        None, description="of a set among those of its subject"
    )
    set_position: Literal["hours", "none"] | None = Field(
        None, description="of the events of a set; none: it has no order inside"
    )
    max_sets: int | None = Field(None, ge=1, description="of a subject, the last")
    time2vec: Literal["hours", "days", "hours+days", "none"] | None = Field(
        None,
        description="which learned embedding of times is added: of the event's hour, of the set's position",
    )
    time2vec_scale: float | None = Field(None, gt=0, description="what Time2Vec is multiplied by")
    mlm_weight: float | None = Field(
        None, ge=0, description="of the loss of masked tokens; 0: none is masked"
    )
    msm_weight: float | None = Field(None, ge=0, description="of the loss of masked sets; 0: none is masked")
    own_set_weight: float | None = Field(
        None, ge=0, description="of a seen set guessing itself; the paper: 0"
    )
    token_mask_share: float | None = Field(
        None, gt=0, le=1, description="of the tokens of sets that are not masked"
    )
    set_mask_share: float | None = Field(None, gt=0, le=1, description="of the sets")

    def changes(self, preset: str) -> dict[str, Any]:
        """Return what these change of a preset's model config.

        A preset's own Time2Vec of hours goes where sets have no order inside, as the paper's does.

        Raises:
            NestError: they contradict each other or the preset.
        """
        changes = {
            FIELDS.get(name, name): None if value == "none" else value
            for name, value in self.chosen.items()
            if name not in Options.model_fields
        }
        if self.set_position == "none" and self.time2vec is None:
            changes |= _without_hours(PRESETS[preset].get("time2vec"))
        config = ModelConfig.preset(preset, _ANY_VOCAB, **changes)
        for fault, sentence in self._contradictions(preset, config):
            if fault:
                raise NestError(sentence)
        return changes

    def _contradictions(self, preset: str, config: ModelConfig) -> list[tuple[bool, str]]:
        mlm, msm, own = config.mlm_weight, config.msm_weight, config.own_set_weight
        return [
            (
                config.set_position is None and "hours" in (config.time2vec or ""),
                f"time2vec {config.time2vec} tells events of a set apart by their hours, and set_position none says "
                "that a set has no order inside; take time2vec days or none, or leave set_position out.",
            ),
            (
                self.time2vec_scale is not None and config.time2vec is None,
                f"time2vec_scale has nothing to scale: {_who(self.time2vec, preset)} has no Time2Vec; set time2vec "
                "to hours, days or hours+days, or leave the scale out.",
            ),
            (
                mlm == msm == 0,
                "mlm_weight and msm_weight are both 0, so nothing would be masked and nothing guessed; leave one of "
                "them above 0.",
            ),
            (
                self.token_mask_share is not None and mlm == 0,
                "token_mask_share masks nothing while mlm_weight is 0; leave one of the two out.",
            ),
            (
                self.set_mask_share is not None and msm == 0,
                "set_mask_share masks nothing while msm_weight is 0; leave one of the two out.",
            ),
            (
                config.set_mask_share == 1 and msm > 0 and (mlm > 0 or own > 0),
                "set_mask_share 1 masks every set, so no token is left for MLM and no seen set for its own guess; "
                "take a share below 1, or set mlm_weight and own_set_weight to 0.",
            ),
            (
                config.max_sets == 1 and msm > 0,
                "max_sets 1 shows one set of each subject, so MSM has no other visible set to guess a masked one "
                "from; take 2 or more, or set msm_weight to 0.",
            ),
        ]


class FineTuningOptions(Options):
    """What may be changed of a fine-tuning."""

    readout: Literal["cls", "history"] | None = Field(
        None, description="what a task's head reads; the paper: cls; without: as the pretrained model says"
    )
    freeze: tuple[Literal["embedding", "swe", "cse"], ...] | None = Field(
        None,
        description="weights that stay as pretrained, with commas between: embedding, swe (set-wise blocks), cse "
        "(cross-set blocks)",
    )

    def unfrozen(self) -> Self:
        """Return these without what stays as pretrained: of fresh weights nothing was."""
        return self.model_copy(update={"freeze": None})

    @field_validator("freeze", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(value.split(",")) if isinstance(value, str) else value

    @field_validator("freeze")
    @classmethod
    def _leave_something(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        blocks = tuple(block for block in BLOCKS if block in (value or ()))
        if blocks == BLOCKS:
            raise ValueError(
                "leaves nothing of the encoder to train; leave one of embedding, swe and cse out, or read the probe "
                "on the frozen model, which every fine-tuning fits beside it"
            )
        return blocks or None


def add_flags(command: argparse.ArgumentParser, kind: type[Options]) -> None:
    """Add a flag for each option of a kind."""
    for name, field in kind.model_fields.items():
        values = [value for part in get_args(field.annotation) for value in get_args(part)]
        choices = [value for value in values if isinstance(value, str)]
        command.add_argument(
            f"--{name.replace('_', '-')}",
            type=_checked(kind, name),
            metavar="{" + ",".join(choices) + "}" if choices else None,
            help=(field.description or "").replace("%", "%%"),
        )


def take_options(kind: type[Options], values: dict[str, Any]) -> Any:
    """Take the options of a kind out of a command's values, and return them."""
    return kind.read({name: values.pop(name) for name in kind.model_fields})


def preset_for(model: str, *, gpu: bool) -> str:
    """Return the preset that a choice of model comes to on this device."""
    return ("paper" if gpu else "tiny") if model == "auto" else model


def known_preset(name: str) -> str:
    """Return a choice of model if there is one of that name.

    Raises:
        ArgumentTypeError: there is none.
    """
    known = ["auto", *PRESETS]
    if name not in known:
        raise argparse.ArgumentTypeError(f"preset {name!r} is unknown; {_nearest(name, known)}")
    return name


_ANY_VOCAB = 100


def _without_hours(time2vec: str | None) -> dict[str, Any]:
    if "hours" not in (time2vec or ""):
        return {}
    return {"time2vec": "days" if time2vec == "hours+days" else None}


def _who(time2vec: str | None, preset: str) -> str:
    return f"time2vec {time2vec}" if time2vec else f"the preset {preset}"


def _checked(kind: type[Options], name: str) -> Callable[[str], Any]:
    def value_of(text: str) -> Any:
        try:
            return getattr(kind.read({name: text}), name)
        except NestError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value_of


def _nearest(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}."


def _in_words(fault: dict[str, Any], known: list[str]) -> str:
    name = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"{name} is no option; {_nearest(name, known)}"
    reason = fault["msg"].removeprefix("Value error, ")
    return f"{name} {reason[0].lower()}{reason[1:]}".replace("input should be", "must be") + "."

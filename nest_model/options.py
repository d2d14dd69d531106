"""What a user may change in a preset: one list for the commands' flags and for a run's settings.

Free of torch: settings are checked before a run starts.
"""

import argparse
import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from nest_model.config import PRESETS, ContextLimits, ModelConfig, Readout
from nest_model.recipe import Recipe
from nest_model.systems import BLOCKS, absent_fields, blocks_of, systems
from schemas.errors import NestError

FIELDS = {"position": "cse_position"}
"""Options whose name differs from the field of the model's config."""

NOT_CHANGED = ("vocab_size", "visit_types", "shuffle_seed", "shortcuts", "row_budget")
"""Fields of a model and a recipe that nobody sets by name: those that follow from the data, of an ablation that has its
own option, and those that change no result."""

OF_DATA = ("leave_out_last_set", "patient_share", "visit_types")
"""Options about what is read, whose value is no field of the model's config."""


class Options(BaseModel):
    """Options of both trainings; None keeps the preset's value."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    of_model: ClassVar[frozenset[str]]  # fields of the model's config that may be changed beside the options
    kind: ClassVar[str]  # of training, in words
    unused: ClassVar[frozenset[str]]  # fields of the recipe that only the other kind of training has

    fields: Mapping[str, Any] = Field(
        {},
        exclude=True,
        description=(
            "a field of the recipe or, where it is the training's to choose, of the model's config, as name=value, "
            "such as weight_decay=0.1; several are separated by spaces, and the flag may be repeated"
        ),
    )

    epochs: int | None = Field(
        None,
        ge=1,
        description="maximum number of epochs (default: preset, and more for few examples, see least_steps)",
    )
    learning_rate: float | None = Field(None, gt=0, description="peak learning rate (default: preset)")
    rate_factors: tuple[Annotated[float, Field(gt=0)], ...] | None = Field(
        None,
        description="learning rates to try, as two or more factors of the learning rate separated by commas, such as "
        "0.5,1,2; the best on validation patients is taken (default: no search)",
    )

    @field_validator("rate_factors", "freeze", mode="before", check_fields=False)
    @classmethod
    def _split(cls, value: Any) -> Any:
        return tuple(value.split(",")) if isinstance(value, str) else value

    @field_validator("rate_factors")
    @classmethod
    def _in_size(cls, value: tuple[float, ...] | None) -> tuple[float, ...] | None:
        factors = tuple(sorted(set(value or ())))
        if len(factors) == 1:
            raise ValueError("needs two different factors or more")
        return factors or None

    @classmethod
    def read(cls, values: dict[str, Any]) -> Self:
        """Return validated options.

        Raises:
            NestError: an option is unknown, or has a value it cannot take.
        """
        if names := [name for name in values if name in cls.unused]:
            raise NestError(
                f"{', '.join(names)}: a {cls.kind} does not use it; give it to the other training, or leave it out."
            )
        others = {name: value for name, value in values.items() if name in cls.other_fields()}
        own = {name: value for name, value in values.items() if name not in others}
        other_values = {
            name: _checked(name, value, cls.other_fields()[name]) for name, value in others.items()
        }
        if other_values:
            own["fields"] = {**own.get("fields", {}), **other_values}
        try:
            options = cls(**own)
        except ValidationError as error:
            raise NestError(
                "; ".join(_message(dict(fault), cls.names()) for fault in error.errors())
            ) from None
        if options.epochs is not None and options.fields.get("least_steps"):
            raise NestError(
                "epochs and least_steps: the epochs are as many as you name, whatever least_steps; leave one of the "
                "two out."
            )
        return options

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the options of a setting: `name=value` pairs separated by spaces.

        Raises:
            NestError: see `read`; or a pair has no value, or a name occurs twice.
        """
        pairs = [part.partition("=") for part in text.split()]
        if faults := [name for name, equals, value in pairs if not (name and equals and value)]:
            raise NestError(
                f"{', '.join(faults) or '='}: has no value; write name=value pairs separated by spaces."
            )
        aliases = {field: option for option, field in FIELDS.items()}
        names = [aliases.get(name, name) for name in (name.replace("-", "_") for name, _, _ in pairs)]
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise NestError(f"{', '.join(duplicates)}: given more than once; give it once.")
        return cls.read({name: pair[2] for name, pair in zip(names, pairs, strict=True)})

    @property
    def overrides(self) -> dict[str, Any]:
        """The options that are set, by field name."""
        return self.model_dump(exclude_none=True)

    @classmethod
    def other_fields(cls) -> dict[str, Any]:
        """Return the type of each field of the model's config and the recipe that is no option of its own."""
        model, recipe = (get_type_hints(kind, include_extras=True) for kind in (ModelConfig, Recipe))
        hints = {name: hint for name, hint in model.items() if name in cls.of_model}
        hints |= {field.name: recipe[field.name] for field in fields(Recipe)}
        own = {
            *cls.model_fields,
            *(FIELDS[name] for name in cls.model_fields if name in FIELDS),
            *NOT_CHANGED,
            *cls.unused,
        }
        return {name: hint for name, hint in hints.items() if name not in own}

    @classmethod
    def names(cls) -> list[str]:
        """Return every name that may be set."""
        return [*(name for name in cls.model_fields if name != "fields"), *cls.other_fields()]

    @property
    def recipe(self) -> dict[str, Any]:
        """The fields of the recipe that are set."""
        return {name: value for name, value in {**self.overrides, **self.fields}.items() if name in _RECIPE}

    def flags(self) -> dict[str, str]:
        """Return the options that are set as command-line flags, without the leading dashes."""
        flags = {name.replace("_", "-"): _text(value) for name, value in self.overrides.items()}
        others = " ".join(f"{name}={_text(value)}" for name, value in self.fields.items())
        return flags | ({"set": others} if others else {})

    @classmethod
    def from_flags(cls, flags: Mapping[str, str]) -> Self:
        """Return the options that command-line flags, without their dashes, set; see `read`."""
        others = cls.from_text(flags.get("set", ""))
        own = {name.replace("-", "_"): value for name, value in flags.items() if name != "set"}
        return cls.read({**own, **others.overrides, **others.fields})


class PretrainingOptions(Options):
    """Options of a pretraining."""

    of_model: ClassVar[frozenset[str]] = frozenset(field.name for field in fields(ModelConfig))
    kind: ClassVar[str] = "pretraining"
    unused: ClassVar[frozenset[str]] = frozenset(("dropout", "head_rate", "thinning"))

    position: Literal["days_since_first", "days_since_prior", "index"] | None = Field(
        None, description="position of a set among its patient's sets"
    )
    set_position: Literal["hours", "none"] | None = Field(
        None, description="position of events inside a set; none: events of a set are unordered"
    )
    layers: int | None = Field(None, ge=1, description="number of layers (default: preset)")
    set_wise: Literal["attention", "mean_pool"] | None = Field(
        None,
        description="how a set's [CLS] reads its events; mean_pool, an ablation: as their mean, not by set-wise blocks",
    )
    cross_set: bool | None = Field(
        None, description="whether sets see each other; false, an ablation: there are no cross-set blocks"
    )
    max_sets: int | None = Field(None, ge=1, description="keep each patient's last N sets (default: preset)")
    max_set_rows: int | None = Field(
        None,
        ge=2,
        description="rows of a set, [CLS] included: longer sets keep their first events, and a masked set weighs as "
        "one of N rows (default: preset)",
    )
    leave_out_last_set: bool | None = Field(
        None,
        description="do not read each patient's last filled set, so that a later model can be trained to predict it",
    )
    patient_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share of the training and validation patients to learn from, drawn with each seed; the epochs "
        "grow so that there are as many steps as with all of them (default: 1)",
    )
    visit_types: bool | None = Field(
        None,
        description="whether GT-BEHRT reads the admission type of a visit and learns to guess it (default: true, where "
        "the source has any)",
    )
    time2vec: Literal["hours", "days", "hours+days", "none"] | None = Field(
        None,
        description="learned time embeddings to add: of the event's hour, of the set's position in days",
    )
    time2vec_scale: float | None = Field(None, gt=0, description="factor that multiplies Time2Vec")
    mlm_weight: float | None = Field(
        None, ge=0, description="weight of the masked-token loss; 0: no token is masked"
    )
    msm_weight: float | None = Field(
        None, ge=0, description="weight of the masked-set loss; 0: no set is masked"
    )
    own_set_weight: float | None = Field(
        None, ge=0, description="weight of guessing a visible set from its own [CLS]; 0 in the paper"
    )
    token_mask_share: float | None = Field(
        None, gt=0, le=1, description="share of tokens masked, in the sets that are not masked"
    )
    set_mask_share: float | None = Field(None, gt=0, le=1, description="share of sets masked")

    @property
    def of_data(self) -> dict[str, Any]:
        """What is read of the data, by argument of `pretrain`; with the default where an option is not set."""
        return {
            "leave_out_last_set": bool(self.leave_out_last_set),
            "patient_share": self.patient_share or 1.0,
            "visit_types": self.visit_types is not False,
        }

    def changes(self, preset: str, system: str = "nest") -> dict[str, Any]:
        """Return the fields of a preset's model config that these options change.

        With set_position none the preset's Time2Vec of hours is dropped, as in the paper.

        Raises:
            NestError: the options contradict each other, the preset or the system.
        """
        absent = absent_fields(system)
        values = {**self.overrides, **self.fields}
        if absent_names := [name for name in values if FIELDS.get(name, name) in absent]:
            raise NestError(
                f"{system} has no {', '.join(absent_names)}; leave out what only another system reads."
            )
        changes = {
            FIELDS.get(name, name): None if value == "none" else value
            for name, value in values.items()
            if name not in (*_RECIPE, *OF_DATA)
        }
        if self.set_position == "none" and self.time2vec is None:
            changes |= _without_hours(PRESETS[preset].get("time2vec"))
        config = ModelConfig.preset(preset, _ANY_VOCAB, system=system, **changes)
        for fault, sentence in self._contradictions(preset, config):
            if fault:
                raise NestError(sentence)
        return changes

    def _contradictions(self, preset: str, config: ModelConfig) -> list[tuple[bool, str]]:
        mlm, msm, own_set = config.mlm_weight, config.msm_weight, config.own_set_weight
        return [
            (
                self.set_position == "none" and "hours" in (config.time2vec or ""),
                f"time2vec {config.time2vec} distinguishes events of a set by their hours, but set_position none says "
                "that a set is unordered; take time2vec days or none, or leave set_position out.",
            ),
            (
                self.set_position == "hours" and config.set_wise == "mean_pool",
                "set_position hours has nothing to order: set_wise mean_pool has no attention inside a set; leave "
                "set_position out, and add hours to time2vec if they are to be read.",
            ),
            (
                self.time2vec_scale is not None and config.time2vec is None,
                f"time2vec_scale has nothing to scale: {_time2vec_origin(self.time2vec, preset)} has no Time2Vec; "
                "set time2vec to hours, days or hours+days, or leave the scale out.",
            ),
            (
                mlm == msm == 0 and (self.mlm_weight, self.msm_weight) != (None, None),
                "mlm_weight and msm_weight are both 0, so nothing would be masked (own_set_weight masks nothing); set "
                "one of the two above 0.",
            ),
            (
                self.fields.get("starts_at_shares") is True and msm == own_set == 0,
                "starts_at_shares begins with a set head that nothing trains while msm_weight and own_set_weight are "
                "0; leave it out.",
            ),
            (
                self.fields.get("tied_set_head") is True and msm == own_set == 0,
                "tied_set_head ties a set head that nothing trains while msm_weight and own_set_weight are 0; leave it "
                "out.",
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
                config.set_mask_share == 1 and msm > 0 and (mlm > 0 or own_set > 0),
                "set_mask_share 1 masks every set, so no token is left for MLM and no visible set to guess from its "
                "own [CLS]; take a share below 1, or set mlm_weight and own_set_weight to 0.",
            ),
            (
                config.max_sets == 1 and msm > 0,
                "max_sets 1 keeps one set of each patient, so MSM has no visible set to guess a masked set from; "
                "take 2 or more, or set msm_weight to 0.",
            ),
        ]


class FineTuningOptions(Options):
    """Options of a fine-tuning; of the model's config only what is read of a patient can change."""

    of_model: ClassVar[frozenset[str]] = frozenset(ContextLimits.__annotations__)
    kind: ClassVar[str] = "fine-tuning"
    unused: ClassVar[frozenset[str]] = frozenset(("starts_at_shares", "shares_embeddings"))

    readout: Readout | None = Field(
        None,
        description="what the task's head reads (default: as the pretrained model; cls in the paper); mean_pool, an "
        "ablation: the mean of the last set's events",
    )
    freeze: tuple[Literal["embedding", "swe", "cse"], ...] | None = Field(
        None,
        description="blocks to keep as pretrained, separated by commas: embedding, swe (set-wise blocks), cse "
        "(cross-set blocks); all three: the whole encoder, so that the task's head alone is trained",
    )
    shuffle_sets: bool | None = Field(
        None,
        description="let the sets before the last trade their contents at random, in all splits, an ablation; "
        "the model remembers it, and predict does the same",
    )

    @property
    def context(self) -> dict[str, Any]:
        """The limits of what is read of a patient that are set."""
        return {name: value for name, value in self.fields.items() if name in self.of_model}

    def unfrozen(self) -> Self:
        """Return these options without `freeze`, which means nothing for fresh weights."""
        return self.model_copy(update={"freeze": None})

    def refuse_contradictions(self, pretraining: PretrainingOptions, preset: str) -> None:
        """Refuse what contradicts a NEST pretrained with these options, as its fine-tuning would.

        Raises:
            NestError: it lacks a block to freeze, its limits of what is read do not fit these, or shuffled sets are not
                read.
        """
        config = ModelConfig.preset(preset, _ANY_VOCAB, **pretraining.changes(preset))
        present = blocks_of("nest", set_wise=config.set_wise, cross_set=config.cross_set)
        refuse_absent_blocks(self.freeze or (), present, "nest")
        config = replace(config, **self.context, readout=self.readout or config.readout)
        if self.shuffle_sets:
            refuse_idle_shuffle(config)

    @field_validator("freeze")
    @classmethod
    def _in_order(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return tuple(block for block in BLOCKS if block in (value or ())) or None


def refuse_absent_blocks(blocks: Sequence[str], present: Collection[str], system: str) -> None:
    """Refuse to freeze a block that a system's encoder does not have.

    All of BLOCKS together are the whole encoder, of any system.

    Raises:
        NestError: which blocks, and which there are.
    """
    absent = [block for block in blocks if block not in present]
    if absent and set(blocks) != set(BLOCKS):
        raise NestError(
            f"freeze {','.join(absent)}: {system} has no such blocks; it has {', '.join(present)}."
        )


def refuse_idle_shuffle(config: ModelConfig) -> None:
    """Refuse to shuffle the sets before the last where a task's head reads at most one of them.

    Raises:
        NestError: why it changes nothing.
    """
    if config.max_sets < 3:
        raise NestError(
            f"shuffle_sets shuffles nothing: of max_sets {config.max_sets} at most one set lies before the last; take "
            "3 or more, or leave shuffle_sets out."
        )
    if not config.cross_set and config.readout in ("cls", "mean_pool"):
        raise NestError(
            f"shuffle_sets changes nothing: without cross-set blocks the readout {config.readout} reads the last set "
            "alone; take the readout history, or leave shuffle_sets out."
        )


def add_flags(command: "argparse._ActionsContainer", kind: type[Options]) -> None:
    """Add a flag for each option of a class."""
    for name, field in kind.model_fields.items():
        if name == "fields":
            command.add_argument(
                "--set", dest=name, metavar="NAME=VALUE", action="append", default=[], help=field.description
            )
            continue
        values = [value for part in get_args(field.annotation) for value in get_args(part)]
        choices = [value for value in values if isinstance(value, str)]
        # a switch may stand alone
        switch: dict[str, Any] = {"nargs": "?", "const": True} if bool in get_args(field.annotation) else {}
        command.add_argument(
            f"--{name.replace('_', '-')}",
            type=_option_parser(kind, name),
            metavar="{" + ",".join(choices) + "}" if choices else None,
            help=(field.description or "").replace("%", "%%"),
            **switch,
        )


def take_options(kind: type[Options], values: dict[str, Any]) -> Any:
    """Remove an option class's values from a command's values and return them validated."""
    texts: Sequence[str] = values.pop("fields")
    own = {
        name: value
        for name in kind.model_fields
        if name != "fields" and (value := values.pop(name)) is not None
    }
    others = kind.from_text(" ".join(texts))
    if twice := sorted(own.keys() & others.overrides.keys()):
        raise NestError(f"{', '.join(twice)}: given by its own flag and by --set; give it once.")
    return kind.read({**own, **others.overrides, **others.fields})


def preset_for(model: str, *, gpu: bool) -> str:
    """Return the preset to use; `auto` is `paper` on a GPU and `tiny` without."""
    return ("paper" if gpu else "tiny") if model == "auto" else model


def preset_choice(name: str) -> str:
    """Return a `--model` value, for argparse.

    Raises:
        ArgumentTypeError: it is neither `auto` nor a preset.
    """
    names = ["auto", *PRESETS]
    if name not in names:
        raise argparse.ArgumentTypeError(f"preset {name!r} is unknown; {_suggestion(name, names)}")
    return name


def system_choice(name: str) -> str:
    """Return a `--system` value, for argparse.

    Raises:
        ArgumentTypeError: there is no such system.
    """
    if name not in systems():
        raise argparse.ArgumentTypeError(f"system {name!r} is unknown; {_suggestion(name, list(systems()))}")
    return name


_RECIPE = frozenset(field.name for field in fields(Recipe))
_ANY_VOCAB = 100


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _checked(name: str, value: Any, hint: Any) -> Any:
    """Return the value of a field, from text or as it is.

    Raises:
        NestError: the field cannot take it.
    """
    if isinstance(value, str):
        value = None if value == "none" else value.split(",") if "tuple" in str(hint) else value
    if value is None and name in _RECIPE:
        raise NestError(f"{name} cannot be none; give a number (a large clip_norm clips nothing).")
    try:
        return TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        raise NestError(
            "; ".join(_message({**fault, "loc": (name,)}, [name]) for fault in error.errors())
        ) from None


def _without_hours(time2vec: str | None) -> dict[str, Any]:
    if "hours" not in (time2vec or ""):
        return {}
    return {"time2vec": "days" if time2vec == "hours+days" else None}


def _time2vec_origin(time2vec: str | None, preset: str) -> str:
    return f"time2vec {time2vec}" if time2vec else f"the preset {preset}"


def _option_parser(kind: type[Options], name: str) -> Callable[[str], Any]:
    def value_of(text: str) -> Any:
        try:
            return getattr(kind.read({name: text}), name)
        except NestError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return value_of


def _suggestion(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"choose one of {', '.join(names)}."


def _message(fault: dict[str, Any], names: list[str]) -> str:
    name = str(fault["loc"][0])
    if fault["type"] == "extra_forbidden":
        return f"{name} is not an option; {_suggestion(name, names)}"
    reason = fault["msg"].removeprefix("Value error, ")
    return f"{name} {reason[0].lower()}{reason[1:]}".replace("input should be", "must be") + "."

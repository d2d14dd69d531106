"""The model's whole shape in one frozen object, stored beside its weights."""

import json
import math
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import Field, TypeAdapter, ValidationError

from nest_model.systems import absent_fields, systems
from schemas.errors import NestError
from schemas.tables.vocab import SPECIALS

Readout = Literal["cls", "history", "mean_pool"]
"""What a task's head reads of an example, see model/readout.py."""


@dataclass(frozen=True)
class Shortcuts:
    """Computations skipped because they cannot change the result; each can be switched off, to compare."""

    collapsed_sets: bool = True  # one row, weighted by their number, stands for a masked set's [MASK] rows
    merged_duplicates: bool = True  # one weighted row stands for equal rows of a set
    heads_where_a_loss_is: bool = True  # logits only for rows that carry a loss
    chunked_cross_entropy: bool = True  # logits never exist all at once
    pruned_last_layer: bool = True  # the last layer computes only the rows that are read


class ContextLimits(TypedDict):
    """The fields of a config that limit what is read of a patient."""

    max_sets: int
    max_set_rows: int
    max_rows: int | None


@dataclass(frozen=True)
class ModelConfig:
    """Sizes, positions, limits and masking shares of a model, NEST or another of the systems.

    The encoder reads neither `cse_position` nor the limits: they describe how batches are packed.

    Raises:
        NestError: sizes do not fit together, or a choice is unknown.
    """

    vocab_size: int  # specials included
    d_model: int = 64
    heads: int = 4
    d_ff: int = 192
    layers: int = 2  # of two blocks each, in NEST a set-wise block and a cross-set block
    # NEST's ablations: mean_pool adds the mean of a set's other rows to its [CLS]; cross_set False: sets stay apart
    set_wise: Literal["attention", "mean_pool"] = "attention"
    cross_set: bool = True

    max_set_rows: Annotated[int, Field(ge=2)] = 512  # [CLS] included; longer sets keep their first events
    max_sets: Annotated[int, Field(ge=1)] = 64  # per patient; the last ones are kept
    max_rows: Annotated[int, Field(ge=2)] | None = (
        None  # per patient, a set's [CLS] included; the newest ones are kept
    )

    set_position: Literal["hours"] | None = "hours"  # RoPE inside a set, hours since its start
    cse_position: Literal["days_since_first", "days_since_prior", "index"] = "days_since_first"
    time2vec: Literal["hours", "days", "hours+days"] | None = None  # additive; see layers.Time2Vec
    time2vec_scale: float = 1.0

    mlm_weight: float = 1.0  # 0: no token is masked
    msm_weight: float = 1.0  # 0: no set is masked, the paper's MLM-only
    own_set_weight: float = 0.0  # loss of guessing a visible set from its own [CLS]; 0 in the paper
    tied_set_head: bool = False  # the set head's last weight is the embedding's; False in the paper
    token_mask_share: float = 0.20  # share of the tokens in sets that are not masked
    set_mask_share: float = 0.40  # share of the non-empty sets

    # the paper has cls, and mean_pool as an ablation
    readout: Readout = "cls"
    # an ablation of a task: its earlier sets trade their contents, drawn with this seed; see data/context.py
    shuffle_seed: int | None = None

    # what GT-BEHRT is told of a set beside its codes, number and days; admission types that it does not know are none
    visit_types: tuple[str, ...] = ()
    day_of_year: bool = False

    shortcuts: Shortcuts = Shortcuts()

    @property
    def context(self) -> ContextLimits:
        """The limits of what is read of a patient, see `limit_context`."""
        return {"max_sets": self.max_sets, "max_set_rows": self.max_set_rows, "max_rows": self.max_rows}

    @property
    def timed_rows(self) -> bool:
        """Whether the hours of a set's rows reach the model."""
        is_rotated = self.set_position == "hours" and self.set_wise == "attention"
        return is_rotated or "hours" in (self.time2vec or "")

    @property
    def loss_weights(self) -> dict[str, float]:
        """The weight of each pretraining loss in their sum."""
        return {"mlm": self.mlm_weight, "msm": self.msm_weight, "own": self.own_set_weight}

    def __post_init__(self) -> None:
        for fault, hint in _faults(self):
            if fault:
                raise NestError(f"model config: {hint}")

    @classmethod
    def preset(cls, name: str, vocab_size: int, *, system: str = "nest", **changes: Any) -> Self:
        """Return a system's preset for a vocabulary, with the given fields changed.

        Fields the system has no use for keep the values that say so.
        """
        if name not in PRESETS:
            raise NestError(f"model preset {name!r} is unknown; choose one of {', '.join(PRESETS)}.")
        sizes = PRESETS[name] | dict(systems()[system].presets.get(name, {}))
        return cls(vocab_size=vocab_size, **(sizes | changes | absent_fields(system)))

    def to_json(self) -> str:
        """Return every field as JSON, in the order of the class."""
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what `to_json` wrote, here or in an older version: a field it did not know takes its default.

        Raises:
            NestError: the text is not JSON, has an unknown key, or a value that a field cannot take.
        """
        try:
            values = json.loads(text)
        except json.JSONDecodeError as error:
            raise NestError(f"model config: not JSON (line {error.lineno}).") from None
        if not isinstance(values, dict) or not isinstance(values.get("shortcuts", {}), dict):
            raise NestError("model config: not a JSON object; it must hold the model's fields.")
        _refuse_unknown_keys(cls, values)
        _refuse_unknown_keys(Shortcuts, values.get("shortcuts", {}))
        try:
            return TypeAdapter(cls).validate_json(text, strict=True)
        except ValidationError as error:
            faults = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
            raise NestError(f"model config: {'; '.join(faults)}; mend the file, or train again.") from None


def _refuse_unknown_keys(kind: type, values: dict[str, Any]) -> None:
    if unknown := sorted(set(values) - {field.name for field in fields(kind)}):
        raise NestError(
            f"model config: unknown keys {unknown}; it was written by another version of this package. Train again, or "
            "mend the file by hand."
        )


BEYOND_PAPER = {
    "own_set_weight": 1.0,
    "tied_set_head": True,
    "readout": "history",
    "cse_position": "index",
}
"""Fields in which the presets `tiny` and `small` differ from the paper; docs/learning.md measures each."""

# days since the previous set, and Time2Vec: as in the paper's runs on MIMIC-IV; docs/learning.md
_PAPER = {"d_model": 768, "heads": 12, "d_ff": 2048, "layers": 6, "max_sets": 8} | {
    "cse_position": "days_since_prior",
    "time2vec": "hours+days",
}

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"d_model": 64, "heads": 2, "d_ff": 192, "layers": 2, "max_sets": 8} | BEYOND_PAPER,
    "small": {"d_model": 256, "heads": 4, "d_ff": 768, "layers": 4, "max_sets": 8} | BEYOND_PAPER,
    "paper": _PAPER,
    "matched": _PAPER,  # the other systems have as many weights as NEST, and all of them the same recipe and context
    "matched_flops": _PAPER,  # as matched, and flat systems have half as many blocks, so about as much work as NEST
}


def _faults(config: ModelConfig) -> list[tuple[bool, str]]:
    sizes = (config.d_model, config.heads, config.d_ff, config.layers, config.max_sets)
    shares = (config.token_mask_share, config.set_mask_share)
    weights = (config.mlm_weight, config.msm_weight, config.own_set_weight)
    numbers = (*shares, *weights, config.time2vec_scale)
    return [
        (
            not all(map(math.isfinite, numbers)),
            "shares, weights and time2vec_scale must be finite numbers.",
        ),
        (min(sizes) < 1, "d_model, heads, d_ff, layers and max_sets must be at least 1."),
        (config.vocab_size <= len(SPECIALS), f"vocab_size must exceed the {len(SPECIALS)} special tokens."),
        (config.max_set_rows < 2, "max_set_rows must be at least 2, a [CLS] and one event."),
        (
            config.max_rows is not None and config.max_rows < config.max_set_rows,
            "max_rows must be null or at least max_set_rows, so that the last set has room.",
        ),
        (
            config.heads > 0 and config.d_model % (2 * config.heads) != 0,
            "d_model must be a multiple of 2 · heads.",
        ),
        (config.set_position not in ("hours", None), "set_position must be hours or null."),
        (config.set_wise not in ("attention", "mean_pool"), "set_wise must be attention or mean_pool."),
        (
            config.set_wise == "mean_pool" and not config.cross_set,
            "set_wise mean_pool without cross_set leaves no block to train; change one of the two alone.",
        ),
        (
            config.cse_position not in ("days_since_first", "days_since_prior", "index"),
            "cse_position must be days_since_first, days_since_prior or index.",
        ),
        (
            config.time2vec not in ("hours", "days", "hours+days", None),
            "time2vec must be hours, days, hours+days or null.",
        ),
        (config.readout not in ("cls", "history", "mean_pool"), "readout must be cls, history or mean_pool."),
        (config.shuffle_seed is not None and config.shuffle_seed < 0, "shuffle_seed must not be negative."),
        (
            list(config.visit_types) != sorted(set(config.visit_types)),
            "visit_types must be different names, sorted.",
        ),
        (min(shares) < 0 or max(shares) > 1, "token_mask_share and set_mask_share must lie in 0 … 1."),
        (min(weights) < 0, "mlm_weight, msm_weight and own_set_weight must not be negative."),
    ]

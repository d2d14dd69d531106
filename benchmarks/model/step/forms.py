"""The forms of a training step, from padded ones to that of NEST, and how to run each."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Literal

import torch
from torch import Generator, Tensor

from benchmarks.model.patients import draw_typical_batch
from benchmarks.model.step.padded import Attend, PaddedBatch, competent, literal, padded_loss
from nest_model.config import ModelConfig, Shortcuts
from nest_model.model.systems.nest.encoder import NestModel, merge_duplicates
from nest_model.training.losses import Counts, pretraining_loss
from nest_model.training.masking import MaskedBatch, mask_batch
from nest_model.training.ranks import balanced_runs

SHORTCUTS = [field.name for field in fields(Shortcuts)]
NONE = Shortcuts(**dict.fromkeys(SHORTCUTS, False))


@dataclass(frozen=True)
class Form:
    """One way to compute a step; all forms with the same `set_position` compute the same loss."""

    words: str
    shortcuts: Shortcuts = NONE
    padded_by: Attend | None = None  # None: packed
    bf16: bool = False
    set_position: Literal["hours"] | None = "hours"


@dataclass(frozen=True)
class Size:
    """The size of a model and of a micro-batch."""

    d_model: int
    layers: int
    vocab_size: int = 20_377
    max_sets: int = 8
    max_set_rows: int = 512
    row_budget: int = 8192

    def config(self, form: Form) -> ModelConfig:
        """Return the model's config, with heads of width 64 and d_ff ≈ 8/3 d as in the paper."""
        return ModelConfig(
            vocab_size=self.vocab_size,
            d_model=self.d_model,
            heads=max(self.d_model // 64, 1),
            d_ff=round(self.d_model / 12) * 32,
            layers=self.layers,
            max_set_rows=self.max_set_rows,
            max_sets=self.max_sets,
            set_position=form.set_position,
            shortcuts=form.shortcuts,
        )

    @property
    def padded_patients(self) -> int:
        """Return how many padded patients a micro-batch holds."""
        return max(self.row_budget // (self.max_sets * self.max_set_rows), 1)


def _cumulative_forms() -> dict[str, Form]:
    """Return the packed form, and with the shortcuts added one after the other in the config's order."""
    names = ["packed", *SHORTCUTS]
    switched_on = [dict.fromkeys(SHORTCUTS[:count], True) for count in range(len(names))]
    words = ["packed: real rows alone", *(f"+ {name.replace('_', ' ')}" for name in SHORTCUTS)]
    return {
        name: Form(text, replace(NONE, **on))
        for name, text, on in zip(names, words, switched_on, strict=True)
    }


ALL = Shortcuts()
FORMS = {
    "literal": Form("padded, as the paper draws it", padded_by=literal),
    "competent": Form("padded, fused attention, heads where a loss is", padded_by=competent),
    **_cumulative_forms(),
    "bf16": Form("+ bf16", ALL, bf16=True),
    "unordered": Form("all of them, sets without an order", ALL, set_position=None),
    "unordered_bf16": Form("+ bf16, sets without an order", ALL, bf16=True, set_position=None),
}


@dataclass(frozen=True)
class PreparedStep:
    """A prepared training step of a form: forward and backward over its micro-batches."""

    patients: int
    rows: int  # computed by the encoder
    head_rows: int  # of tokens and sets, with logits over the vocabulary
    run: Callable[[], float]  # returns the loss


def prepare(form: Form, size: Size, patients: int, seed: int = 42) -> PreparedStep:
    """Draw patients, masks and weights, which are the same for every form."""
    config = size.config(form)
    batch = draw_typical_batch(patients, config, seed)
    masked_batch = mask_batch(batch, Generator().manual_seed(seed), config)
    torch.manual_seed(seed)
    model = NestModel(config)
    if form.padded_by:
        losses, rows, head_rows = _padded(form.padded_by, model, masked_batch)
    else:
        losses, rows, head_rows = _packed(model, masked_batch, size.row_budget)

    def run() -> float:
        model.zero_grad(set_to_none=True)
        total = 0.0
        for loss in losses:
            with torch.autocast("cpu", torch.bfloat16, enabled=form.bf16):
                part = loss()
            part.backward()
            total += float(part.detach())
        return total

    return PreparedStep(patients, rows, head_rows, run)


LossFunctions = list[Callable[[], Tensor]]


def _padded(attend: Attend, model: NestModel, masked_batch: MaskedBatch) -> tuple[LossFunctions, int, int]:
    laid_out = PaddedBatch.of(masked_batch, model.config)
    everywhere = attend is literal
    rows = len(laid_out.batch.tokens)
    head_rows = (
        rows + laid_out.batch.sets
        if everywhere
        else len(masked_batch.mlm_rows) + len(masked_batch.masked_sets.sets)
    )

    def loss() -> Tensor:
        return padded_loss(model, laid_out, attend, heads_everywhere=everywhere)

    return [loss], rows, head_rows


def _packed(model: NestModel, masked_batch: MaskedBatch, row_budget: int) -> tuple[LossFunctions, int, int]:
    guesses = Counts.of(masked_batch)
    shortcuts, batch = model.config.shortcuts, masked_batch.batch
    if shortcuts.merged_duplicates:
        batch, _ = merge_duplicates(batch, hours_matter=model.config.timed_rows)
    rows = len(batch.tokens)
    head_rows = (
        sum(guesses) if shortcuts.heads_where_a_loss_is else len(masked_batch.batch.tokens) + batch.sets
    )
    parts = [
        masked_batch.slice_subjects(run.start, run.stop)
        for run in balanced_runs(masked_batch.batch.rows, row_budget, 1)
    ]

    def loss(part: MaskedBatch) -> Tensor:
        return pretraining_loss(model, part, guesses).total

    return [partial(loss, part) for part in parts], rows, head_rows

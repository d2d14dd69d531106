"""Where a model looks: within sets by kind of event, across sets by how far back, beside looking everywhere alike.

Attention adds up values by its weights. Given as values which class each row is of, it adds up the weights themselves,
class by class: what a fused kernel never shows. These are weights, not reasons.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nest_model.attention import AttentionPlan, plan_attention
from nest_model.batch import PackedBatch
from nest_model.batches import micro_batches, pack
from nest_model.data import SeqSets
from nest_model.model import NestModel
from nest_model.selection import Selection
from schemas.events import KINDS
from schemas.suppress import SMALLEST_SHOWN

CLASSES = ("[CLS]", *KINDS)
"""Of the rows of a set."""

FARTHEST = 7  # sets back; those before it count with it


@dataclass
class _Watched:
    """A plan that notes, layer by layer, how much of the attention of some rows each class of rows gets."""

    plan: AttentionPlan
    classes: Tensor  # f32 [rows, classes], one-hot
    asking: Tensor  # i64, the rows it is noted of
    noted: list[Tensor] = field(default_factory=list)  # [asking, classes], the mean over heads

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        classes = self.classes[:, None].expand(-1, key.shape[1], -1).to(key.dtype)
        self.noted.append(self.plan.attend(query, key, classes)[self.asking].mean(dim=1).double())
        return self.plan.attend(query, key, value)


@dataclass
class _Sums:
    """Attention beyond an even share, added up over those who ask and have any row of the class."""

    beyond: np.ndarray  # [layers, classes]
    asking: np.ndarray  # [classes]

    @classmethod
    def of(cls, layers: int, classes: int) -> "_Sums":
        return cls(np.zeros((layers, classes)), np.zeros(classes, dtype=np.int64))

    def add(self, watched: _Watched, piece_of_row: Tensor, piece_of_asking: Tensor) -> None:
        """Add what was noted, less what looking at every row of the piece alike would give."""
        rows = torch.zeros(int(piece_of_row.max()) + 1, watched.classes.shape[1], dtype=torch.float64)
        rows = rows.index_add_(0, piece_of_row, watched.classes.double())[piece_of_asking]
        has = rows > 0
        even = rows / rows.sum(dim=1, keepdim=True)
        for layer, noted in enumerate(watched.noted):
            self.beyond[layer] += ((noted - even) * has).sum(dim=0).numpy()
        self.asking += has.sum(dim=0).numpy()

    def mean(self, names: tuple[str, ...]) -> dict[str, list[float]]:
        """Return name → layer by layer; a class fewer than eleven have is left out."""
        shown = [place for place, count in enumerate(self.asking) if count >= SMALLEST_SHOWN]
        return {
            names[place]: [round(float(x), 6) for x in self.beyond[:, place] / self.asking[place]]
            for place in shown
        }


@torch.no_grad()
def attended(
    model: NestModel, seqsets: SeqSets, selection: Selection, *, row_budget: int
) -> Mapping[str, Any]:
    """Return, layer by layer, how much more of the attention a class gets than an even share, of these examples.

    Returns:
        `kinds`: what the [CLS] of each set gives the rows of a kind in it. `sets_back`: what the [CLS] of each
        example's last set gives the set so many back (`"7"`: or farther), of examples with more than one set. Shares
        of 1, means over sets or examples that have such rows.
    """
    model.eval()
    layers = len(model.layers)
    kinds, back = _Sums.of(layers, len(CLASSES)), _Sums.of(layers, FARTHEST + 1)
    for run in micro_batches(selection.rows, row_budget):
        chosen = selection.take(np.arange(run.start, run.stop))
        batch = pack(seqsets, chosen, model.config)
        _watch(model, batch, torch.from_numpy(chosen.values(seqsets.kinds).astype(np.int64)), kinds, back)
    return {
        "kinds": kinds.mean(CLASSES),
        "sets_back": back.mean(tuple(str(number) for number in range(FARTHEST + 1))),
    }


def _watch(model: NestModel, batch: PackedBatch, kind_of_event: Tensor, kinds: _Sums, back: _Sums) -> None:
    device = model.embedding.weight.device
    is_event = torch.ones(len(batch.tokens), dtype=torch.bool).index_fill_(0, batch.cls_rows, False)
    class_of_row = torch.zeros(len(batch.tokens), dtype=torch.long)
    class_of_row[is_event] = kind_of_event + 1

    sets_of_subject = batch.subject_offsets.diff()
    last_sets = batch.subject_offsets[1:] - 1
    subject_of_set = torch.repeat_interleave(sets_of_subject)
    sets_back = (last_sets[subject_of_set] - torch.arange(batch.sets)).clamp(max=FARTHEST)
    asking = last_sets[sets_of_subject > 1]

    offsets = batch.set_offsets, batch.subject_offsets
    set_plan, subject_plan = (plan_attention(of.to(device), backend="sdpa") for of in offsets)
    within = _Watched(set_plan, _one_hot(class_of_row, len(CLASSES), device), batch.cls_rows.to(device))
    across = _Watched(subject_plan, _one_hot(sets_back, FARTHEST + 1, device), asking.to(device))
    moved = batch.to(device)
    attending = replace(model.attending(moved), set_plan=within, subject_plan=across)
    hidden = model.embed(moved)
    for layer in model.layers:
        hidden = layer(hidden, moved.cls_rows, attending)
    kinds.add(_on_cpu(within), batch.set_of_row, torch.arange(batch.sets))
    back.add(_on_cpu(across), subject_of_set, subject_of_set[asking])


def _one_hot(classes: Tensor, count: int, device: torch.device) -> Tensor:
    return F.one_hot(classes, count).float().to(device)


def _on_cpu(watched: _Watched) -> _Watched:
    return replace(watched, classes=watched.classes.cpu(), noted=[noted.cpu() for noted in watched.noted])

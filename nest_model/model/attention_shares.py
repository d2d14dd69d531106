"""Where a model looks: within sets by kind of event, across sets by how far back, patient by patient.

Attention adds up values by its weights. Given as values which class each row is of, it adds up the weights themselves,
class by class: what a fused kernel never shows. These are weights, not reasons.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nest_model.data.packed import PackedBatch, micro_batches, pack
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.model.attention import AttentionPlan, plan_attention
from nest_model.model.encoder import NestModel
from schemas.tables.events import KINDS

CLASSES = ("[CLS]", *KINDS)
"""Of the rows of a set; the first is the row that asks."""

FARTHEST = 7  # sets back; those before it count with it
SETS_BACK = tuple(str(number) for number in range(FARTHEST + 1))
"""Of the sets of a subject; the first is the set that asks."""


@dataclass
class _Watched:
    """A plan that notes, layer by layer, how much of the attention of some rows each class of rows gets."""

    plan: AttentionPlan
    plan_of_asking: AttentionPlan  # with these queries alone
    classes: Tensor  # f32 [rows, classes], one-hot
    asking: Tensor  # i64, rising, the rows it is noted of
    noted: list[Tensor] = field(default_factory=list)  # [asking, classes], the mean over heads

    @classmethod
    def over(cls, offsets: Tensor, classes: Tensor, count: int, asking: Tensor) -> "_Watched":
        is_asking = torch.zeros_like(classes, dtype=torch.bool).index_fill_(0, asking, True)
        plans = (
            plan_attention(offsets, backend="sdpa"),
            plan_attention(offsets, asking=is_asking, backend="sdpa"),
        )
        return cls(*plans, F.one_hot(classes, count).float(), asking)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        classes = self.classes[:, None].expand(-1, key.shape[1], -1).to(key.dtype)
        self.noted.append(self.plan_of_asking.attend(query[self.asking], key, classes).mean(dim=1).double())
        return self.plan.attend(query, key, value)


@dataclass
class Profile:
    """Attention beyond an even share, added up by patient over those who ask and have any row of the class.

    Counting alone: those who ask keep for themselves what they do, and the others share the rest evenly.
    """

    observed: np.ndarray  # f64 [patients, layers, classes]
    by_count: np.ndarray  # likewise, as counting alone would look
    asking: np.ndarray  # f64 [patients, classes], how many

    @classmethod
    def empty(cls, patients: int, layers: int, classes: int) -> "Profile":
        of_layers = (np.zeros((patients, layers, classes)) for _ in range(2))
        return cls(*of_layers, np.zeros((patients, classes)))

    def add(self, watched: _Watched, piece_of_row: Tensor, piece_of_asking: Tensor, patient: Tensor) -> None:
        """Add what was noted of those who ask, whose piece and patient are given."""
        if not len(patient):  # then nothing was noted
            return
        rows = torch.zeros(int(piece_of_row.max()) + 1, watched.classes.shape[1], dtype=torch.float64)
        rows = rows.index_add_(0, piece_of_row, watched.classes.double())[piece_of_asking]
        others = rows.clone()
        others[:, 0] = 0
        others /= others.sum(dim=1, keepdim=True).clamp(min=1)
        even = rows / rows.sum(dim=1, keepdim=True)
        has = (rows > 0).double()
        for layer, noted in enumerate(watched.noted):
            by_count = others * (1 - noted[:, :1])
            by_count[:, 0] = noted[:, 0]
            self._add(self.observed[:, layer], (noted - even) * has, patient)
            self._add(self.by_count[:, layer], (by_count - even) * has, patient)
        self._add(self.asking, has, patient)

    @staticmethod
    def _add(to: np.ndarray, values: Tensor, patient: Tensor) -> None:
        torch.from_numpy(to).index_add_(0, patient, values)


@torch.no_grad()
def attended(
    model: NestModel, seqsets: SeqSets, selection: Selection, *, row_budget: int
) -> tuple[Profile, Profile]:
    """Return how much more of the attention a class gets than an even share, of these examples.

    Returns:
        Of CLASSES: what the [CLS] of each set gives the rows of a kind in it. Of SETS_BACK: what the [CLS] of each
        example's last set gives the set so many back, of examples with more than one set.
    """
    model.eval()
    subjects, patient = np.unique(seqsets.subject_id[selection.target_set], return_inverse=True)
    kinds, back = (
        Profile.empty(len(subjects), len(model.layers), len(names)) for names in (CLASSES, SETS_BACK)
    )
    for run in micro_batches(selection.rows, row_budget):
        examples = np.arange(run.start, run.stop)
        chosen = selection.take(examples)
        kind_of_event = torch.from_numpy(chosen.values(seqsets.kinds).astype(np.int64))
        patients = torch.from_numpy(patient[examples])
        _watch(model, pack(seqsets, chosen, model.config), kind_of_event, patients, kinds, back)
    return kinds, back


def _watch(
    model: NestModel,
    batch: PackedBatch,
    kind_of_event: Tensor,
    patient: Tensor,
    kinds: Profile,
    back: Profile,
) -> None:
    """Add a batch to both profiles; `patient` is each subject's of the batch."""
    device = model.embedding.weight.device
    is_event = torch.ones(len(batch.tokens), dtype=torch.bool).index_fill_(0, batch.cls_rows, False)
    class_of_row = torch.zeros(len(batch.tokens), dtype=torch.long)
    class_of_row[is_event] = kind_of_event + 1

    sets_of_subject = batch.subject_offsets.diff()
    last_sets = batch.subject_offsets[1:] - 1
    subject_of_set = torch.repeat_interleave(sets_of_subject)
    sets_back = (last_sets[subject_of_set] - torch.arange(batch.sets)).clamp(max=FARTHEST)
    asking = last_sets[sets_of_subject > 1]

    moved = batch.to(device)
    within = _Watched.over(moved.set_offsets, class_of_row.to(device), len(CLASSES), moved.cls_rows)
    across = _Watched.over(moved.subject_offsets, sets_back.to(device), len(SETS_BACK), asking.to(device))
    attending = replace(model.attending(moved), set_plan=within, subject_plan=across)
    hidden = model.embed(moved)
    for layer in model.layers:
        hidden = layer(hidden, moved.cls_rows, attending)
    patient_of_set = patient[subject_of_set]
    kinds.add(_on_cpu(within), batch.set_of_row, torch.arange(batch.sets), patient_of_set)
    back.add(_on_cpu(across), subject_of_set, subject_of_set[asking], patient_of_set[asking])


def _on_cpu(watched: _Watched) -> _Watched:
    return replace(watched, classes=watched.classes.cpu(), noted=[noted.cpu() for noted in watched.noted])

"""Attention shares per patient: within sets by kind of event, across sets by how far back they lie.

Attention sums values by its weights. With one-hot classes of the rows as values it sums the weights of each class,
which a fused kernel never exposes. Attention weights are not explanations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch, micro_batches, pack
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.model.attention import AttentionPlan, plan_attention
from schemas.tables.events import KINDS

CLASSES = ("[CLS]", *KINDS)
"""Classes of the rows of a set; the first is the querying row itself."""

FARTHEST = 7  # sets back; earlier sets are counted here too
SETS_BACK = tuple(str(number) for number in range(FARTHEST + 1))
"""Classes of the sets of a patient; the first is the querying set itself."""


@runtime_checkable
class SetEncoder(Protocol):
    """An encoder whose layers attend within each set, then across the sets of a patient, by plans they are given."""

    config: ModelConfig
    embedding: nn.Embedding
    layers: Sequence[Any]

    def layer_context(self, batch: PackedBatch) -> Any:
        """Return a dataclass with `set_plan` and `subject_plan`, which every layer takes."""
        ...

    def embed(self, batch: PackedBatch) -> Tensor:
        """Return the input of the first layer, [rows, d_model]."""
        ...

    def eval(self) -> Any:
        """Switch dropout off."""
        ...


@dataclass
class _RecordingPlan:
    """A plan that records for each layer how much attention some query rows give to each class of rows."""

    plan: AttentionPlan
    query_plan: AttentionPlan  # with the recorded queries alone
    classes: Tensor  # f32 [rows, classes], one-hot
    query_rows: Tensor  # i64 [queries], rising, the rows recorded
    recorded_shares: list[Tensor] = field(
        default_factory=list
    )  # per layer [queries, classes], mean over heads

    @classmethod
    def over(cls, offsets: Tensor, classes: Tensor, count: int, query_rows: Tensor) -> "_RecordingPlan":
        is_query = torch.zeros_like(classes, dtype=torch.bool).index_fill_(0, query_rows, True)
        plans = (
            plan_attention(offsets, backend="sdpa"),
            plan_attention(offsets, is_query=is_query, backend="sdpa"),
        )
        return cls(*plans, F.one_hot(classes, count).float(), query_rows)

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        classes = self.classes[:, None].expand(-1, key.shape[1], -1).to(key.dtype)
        self.recorded_shares.append(
            self.query_plan.attend(query[self.query_rows], key, classes).mean(dim=1).double()
        )
        return self.plan.attend(query, key, value)


@dataclass
class AttentionProfile:
    """Attention beyond an even share, summed per patient over the queries that have any row of the class.

    Under the null `by_count` a query keeps its attention to itself, and the other rows share the rest evenly.
    """

    observed: np.ndarray  # f64 [patients, layers, classes]
    by_count: np.ndarray  # f64 [patients, layers, classes]
    query_counts: np.ndarray  # f64 [patients, classes]

    @classmethod
    def empty(cls, patients: int, layers: int, classes: int) -> "AttentionProfile":
        shape = (patients, layers, classes)
        return cls(np.zeros(shape), np.zeros(shape), np.zeros((patients, classes)))

    def add(
        self, plan: _RecordingPlan, piece_of_row: Tensor, piece_of_query: Tensor, patient: Tensor
    ) -> None:
        """Add a plan's recorded shares.

        Args:
            piece_of_row: i64 [rows]. piece_of_query: i64 [queries]. patient: i64 [queries].
        """
        if not len(patient):  # no query: nothing was recorded
            return
        rows = torch.zeros(int(piece_of_row.max()) + 1, plan.classes.shape[1], dtype=torch.float64)
        rows = rows.index_add_(0, piece_of_row, plan.classes.double())[piece_of_query]
        other_rows = rows.clone()
        other_rows[:, 0] = 0
        other_rows /= other_rows.sum(dim=1, keepdim=True).clamp(min=1)
        even = rows / rows.sum(dim=1, keepdim=True)
        has = (rows > 0).double()
        for layer, shares in enumerate(plan.recorded_shares):
            by_count = other_rows * (1 - shares[:, :1])
            by_count[:, 0] = shares[:, 0]
            self._add(self.observed[:, layer], (shares - even) * has, patient)
            self._add(self.by_count[:, layer], (by_count - even) * has, patient)
        self._add(self.query_counts, has, patient)

    @staticmethod
    def _add(sums: np.ndarray, values: Tensor, patient: Tensor) -> None:
        torch.from_numpy(sums).index_add_(0, patient, values)


@torch.no_grad()
def attention_profiles(
    model: SetEncoder, seqsets: SeqSets, selection: Selection, *, row_budget: int
) -> tuple[AttentionProfile, AttentionProfile]:
    """Measure how much more attention than an even share each class gets in these examples.

    Returns:
        By CLASSES: attention of each set's [CLS] to the rows of its set. By SETS_BACK: attention of the [CLS] of each
        example's last set to the example's sets, for examples with more than one set.
    """
    model.eval()
    subjects, patient = np.unique(seqsets.subject_id[selection.target_set], return_inverse=True)
    kinds, back = (
        AttentionProfile.empty(len(subjects), len(model.layers), len(names)) for names in (CLASSES, SETS_BACK)
    )
    for run in micro_batches(selection.rows, row_budget):
        examples = np.arange(run.start, run.stop)
        micro_batch = selection.take(examples)
        kind_of_event = torch.from_numpy(micro_batch.values(seqsets.kinds).astype(np.int64))
        patients = torch.from_numpy(patient[examples])
        _record_batch(model, pack(seqsets, micro_batch, model.config), kind_of_event, patients, kinds, back)
    return kinds, back


def _record_batch(
    model: SetEncoder,
    batch: PackedBatch,
    kind_of_event: Tensor,
    patient: Tensor,
    kinds: AttentionProfile,
    back: AttentionProfile,
) -> None:
    """Add a batch to both profiles; `patient` is i64 [subjects], the profile row of each patient of the batch."""
    device = model.embedding.weight.device
    is_event = torch.ones(len(batch.tokens), dtype=torch.bool).index_fill_(0, batch.cls_rows, False)
    class_of_row = torch.zeros(len(batch.tokens), dtype=torch.long)
    class_of_row[is_event] = kind_of_event + 1

    sets_of_subject = batch.subject_offsets.diff()
    last_sets = batch.subject_offsets[1:] - 1
    subject_of_set = torch.repeat_interleave(sets_of_subject)
    sets_back = (last_sets[subject_of_set] - torch.arange(batch.sets)).clamp(max=FARTHEST)
    query_sets = last_sets[sets_of_subject > 1]

    device_batch = batch.to(device)
    set_plan = _RecordingPlan.over(
        device_batch.set_offsets, class_of_row.to(device), len(CLASSES), device_batch.cls_rows
    )
    subject_plan = _RecordingPlan.over(
        device_batch.subject_offsets, sets_back.to(device), len(SETS_BACK), query_sets.to(device)
    )
    context = replace(model.layer_context(device_batch), set_plan=set_plan, subject_plan=subject_plan)
    hidden_states = model.embed(device_batch)
    for layer in model.layers:
        hidden_states = layer(hidden_states, device_batch.cls_rows, context)
    patient_of_set = patient[subject_of_set]
    kinds.add(_on_cpu(set_plan), batch.set_of_row, torch.arange(batch.sets), patient_of_set)
    back.add(_on_cpu(subject_plan), subject_of_set, subject_of_set[query_sets], patient_of_set[query_sets])


def _on_cpu(plan: _RecordingPlan) -> _RecordingPlan:
    return replace(
        plan, classes=plan.classes.cpu(), recorded_shares=[shares.cpu() for shares in plan.recorded_shares]
    )

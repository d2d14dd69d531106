"""Attention shares per patient: within sets by kind of event, across sets by how far back they lie.

Attention sums values by its weights. With one-hot classes of the rows as values it sums the weights of each class,
which a fused kernel never exposes. Attention weights are not explanations.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

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

DAY_EDGES = (7, 30, 90, 365)
DAYS_BACK = ("0", "< 7", "7 to 29", "30 to 89", "90 to 364", "≥ 365")
"""Classes of the sets of a patient by the days from their start to the querying set's; the first is that set itself."""

SETS_FOR_DAYS = 4
"""The fewest sets of a patient whose attention is measured by days: of fewer, days and places say the same."""


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


def is_set_encoder(encoder: object) -> bool:
    """Return whether an encoder has what a SetEncoder has.

    By `isinstance` it would have not: from Python 3.12 on a protocol is held against the class alone, and a module of
    torch has its layers in the instance.
    """
    return all(hasattr(encoder, name) for name in ("embedding", "layers", "layer_context", "embed"))


@dataclass
class _RecordingPlan:
    """A plan that records for each layer how much attention some query rows give to each class of rows."""

    plan: AttentionPlan
    query_plan: AttentionPlan  # with the recorded queries alone
    classes: Tensor  # f32 [rows, classes], one-hot; of several kinds of classes, one after the other
    query_rows: Tensor  # i64 [queries], rising, the rows recorded
    recorded_shares: list[Tensor] = field(
        default_factory=list
    )  # per layer [queries, classes], mean over heads

    @classmethod
    def over(cls, offsets: Tensor, classes: Tensor, query_rows: Tensor) -> "_RecordingPlan":
        is_query = torch.zeros(len(classes), dtype=torch.bool, device=classes.device)
        plans = (
            plan_attention(offsets, backend="sdpa"),
            plan_attention(offsets, is_query=is_query.index_fill_(0, query_rows, True), backend="sdpa"),
        )
        return cls(*plans, classes, query_rows)

    def part(self, columns: slice, queries: Tensor) -> "_RecordingPlan":
        """Return what was recorded of some classes and queries, on the CPU.

        Args:
            queries: i64 [any], places among the recorded queries.
        """
        shares = [layer.cpu()[queries, columns] for layer in self.recorded_shares]
        return replace(self, classes=self.classes.cpu()[:, columns], recorded_shares=shares)

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
) -> tuple[AttentionProfile, AttentionProfile, AttentionProfile]:
    """Measure how much more attention than an even share each class gets in these examples.

    Returns:
        By CLASSES: attention of each set's [CLS] to the rows of its set. By SETS_BACK: attention of the [CLS] of each
        example's last set to the example's sets, for examples with more than one set. By DAYS_BACK: the same, for
        examples with SETS_FOR_DAYS sets.
    """
    model.eval()
    subjects, patient = np.unique(seqsets.subject_id[selection.target_set], return_inverse=True)
    kinds, back, days = (
        AttentionProfile.empty(len(subjects), len(model.layers), len(names))
        for names in (CLASSES, SETS_BACK, DAYS_BACK)
    )
    for run in micro_batches(selection.rows, row_budget):
        examples = np.arange(run.start, run.stop)
        micro_batch = selection.take(examples)
        kind_of_event = torch.from_numpy(micro_batch.values(seqsets.kinds).astype(np.int64))
        sets = _Sets(
            pack(seqsets, micro_batch, model.config),
            torch.from_numpy(patient[examples]),
            torch.from_numpy(seqsets.days_since_first[micro_batch.sets].astype(np.float64)),
        )
        _record_batch(model, sets, kind_of_event, kinds, back, days)
    return kinds, back, days


@dataclass(frozen=True)
class _Sets:
    """A batch, and what is measured of its sets."""

    batch: PackedBatch
    patient: Tensor  # i64 [subjects], the profile row of each
    days: Tensor  # f64 [sets], of their starts since the patient's first

    @cached_property
    def subject(self) -> Tensor:
        """The subject of each set, i64 [sets]."""
        return torch.repeat_interleave(self.batch.subject_offsets.diff())

    @cached_property
    def last(self) -> Tensor:
        """The last set of each subject, i64 [subjects]."""
        return self.batch.subject_offsets[1:] - 1

    def classes(self) -> Tensor:
        """Return the classes of each set, f32 [sets, SETS_BACK and DAYS_BACK], one-hot in either."""
        last = self.last[self.subject]
        back = last - torch.arange(self.batch.sets)
        days = torch.bucketize(self.days[last] - self.days, torch.tensor(DAY_EDGES).double(), right=True) + 1
        by_place, by_days = (
            F.one_hot(classes, len(names)).float()
            for classes, names in ((back.clamp(max=FARTHEST), SETS_BACK), (days * (back > 0), DAYS_BACK))
        )
        return torch.cat([by_place, by_days], dim=1)


def _record_batch(
    model: SetEncoder,
    sets: _Sets,
    kind_of_event: Tensor,
    kinds: AttentionProfile,
    back: AttentionProfile,
    days: AttentionProfile,
) -> None:
    """Add a batch to all profiles."""
    device, batch = model.embedding.weight.device, sets.batch
    is_event = torch.ones(len(batch.tokens), dtype=torch.bool).index_fill_(0, batch.cls_rows, False)
    class_of_row = torch.zeros(len(batch.tokens), dtype=torch.long)
    class_of_row[is_event] = kind_of_event + 1

    sets_of_subject = batch.subject_offsets.diff()
    query_sets = sets.last[sets_of_subject > 1]

    device_batch = batch.to(device)
    class_of_row = F.one_hot(class_of_row, len(CLASSES)).float()
    set_plan = _RecordingPlan.over(device_batch.set_offsets, class_of_row.to(device), device_batch.cls_rows)
    subject_plan = _RecordingPlan.over(
        device_batch.subject_offsets, sets.classes().to(device), query_sets.to(device)
    )
    context = replace(model.layer_context(device_batch), set_plan=set_plan, subject_plan=subject_plan)
    hidden_states = model.embed(device_batch)
    for layer in model.layers:
        hidden_states = layer(hidden_states, device_batch.cls_rows, context)
    patient_of_set = sets.patient[sets.subject]
    all_sets = torch.arange(batch.sets)
    kinds.add(set_plan.part(slice(None), all_sets), batch.set_of_row, all_sets, patient_of_set)
    with_days = (sets_of_subject[sets.subject[query_sets]] >= SETS_FOR_DAYS).nonzero().squeeze(1)
    for profile, columns, queries in (
        (back, slice(0, len(SETS_BACK)), torch.arange(len(query_sets))),
        (days, slice(len(SETS_BACK), None), with_days),
    ):
        rows = query_sets[queries]
        profile.add(
            subject_plan.part(columns, queries), sets.subject, sets.subject[rows], patient_of_set[rows]
        )

"""What a system costs: its parameters, and the floating-point operations of reading a row."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from nest_model.config import Readout
from nest_model.data.packed import pack
from nest_model.data.selection import limit_context, whole_subjects
from nest_model.data.seqsets import SeqSets
from nest_model.model.checkpoint import read_card
from nest_model.model.encoder import encoder_class
from nest_model.training.freezing import freeze_blocks
from schemas.contract import read_table
from schemas.tables.events import SUBJECTS

PATIENTS = 12

Shape = Sequence[int]


def flop_counter() -> FlopCounterMode:
    """Return a counter of the floating-point operations of matrix products and attention, on any device."""
    # torch itself counts attention on a GPU alone
    forward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return FlopCounterMode(display=False, custom_mapping={forward: _forward, backward: _backward})


def _forward(query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    count: int = sdpa_flop_count(query, key, value)
    return count


def _backward(gradient: Shape, query: Shape, key: Shape, value: Shape, *_: Any, **__: Any) -> int:
    count: int = sdpa_backward_flop_count(gradient, query, key, value)
    return count


class Costs:
    """Measures encoders on the same few training patients of a source."""

    def __init__(self, seqset: Path, subjects: Path) -> None:
        self._seqset, self._subjects = seqset, subjects
        self._costs: dict[tuple[Path, Readout | None, tuple[str, ...]], dict[str, Any]] = {}

    @cached_property
    def _seqsets(self) -> SeqSets:
        return SeqSets.read(self._seqset)

    @cached_property
    def _patients(self) -> np.ndarray:
        table = read_table(self._subjects, SUBJECTS)
        is_train = pc.equal(table["pretrain_split"], "train").to_numpy()
        rows = self._seqsets.subject_rows(table["subject_id"].to_numpy()[is_train])
        return rows[:: max(1, len(rows) // PATIENTS)][:PATIENTS]

    def of(
        self, model: Path, *, readout: Readout | None = None, freeze: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        """Return the parameters of a pretrained model's encoder, and its FLOP for each row of NEST's batch.

        FLOP: of the matrix products and the attention of reading patients for a task, forward and backward; a
        multiply-add is two. Keys that only fill a bucket of attention count.

        Args:
            readout: of the task's head; None: the pretrained model's.
            freeze: blocks that stay as pretrained; nothing goes backward through an encoder that stays so as a whole.
        """
        key = (model, readout, freeze)
        if key not in self._costs:
            self._costs[key] = self._measure(*key)
        return self._costs[key]

    def _measure(self, model: Path, readout: Readout | None, freeze: tuple[str, ...]) -> dict[str, Any]:
        card = read_card(model)
        config, kind = card.model, encoder_class(card.system)
        if readout is not None:
            config = replace(config, readout=readout)
        selection, _ = limit_context(whole_subjects(self._seqsets, self._patients), **config.context)
        batch = pack(self._seqsets, selection, config)
        torch.manual_seed(0)
        encoder = kind(config)
        parameters = sum(
            weight.numel()
            for name, weight in encoder.named_parameters()
            if not name.startswith(kind.unused_in_tasks)
        )
        freeze_blocks(encoder, freeze)
        with flop_counter() as counter:
            vectors = encoder.patients(batch)
            if vectors.requires_grad:
                vectors.sum().backward()
        flops = counter.get_total_flops() / len(batch.tokens)
        return {
            "parameters": parameters,
            "without_embedding": parameters - encoder.embedding.weight.numel(),
            "flops_per_row": flops,
        }

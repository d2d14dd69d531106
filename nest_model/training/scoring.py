"""Run a trained module over every example of a selection."""

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from nest_model.data.packed import micro_batches, pack
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.model.classifier import Classifier, FrozenFeatures
from nest_model.model.parcel import Parcel
from nest_model.training.ranks import runs_of_rank
from nest_model.training.telemetry import Progress


@torch.no_grad()
def score(
    module: nn.Module,
    seqsets: SeqSets,
    selection: Selection,
    fabric: Fabric,
    *,
    row_budget: int,
    advance: Callable[[slice], None] = lambda _: None,
) -> Tensor:
    """Return the module's output for every example, [examples, module.width], on the CPU; each rank does its share.

    Args:
        advance: is told which examples this rank has just done.
    """
    module.eval()
    inner = cast("Classifier | FrozenFeatures", getattr(module, "module", module))
    outputs = torch.zeros(len(selection), inner.width)
    for run, is_own in runs_of_rank(list(micro_batches(selection.rows, row_budget)), fabric):
        batch = pack(seqsets, selection.take(np.arange(run.start, run.stop)), inner.encoder.config)
        results = module(Parcel(batch.to(fabric.device))).cpu()
        if is_own:
            outputs[run] = results
            advance(run)
    if fabric.world_size == 1:
        return outputs
    return cast("Tensor", fabric.all_reduce(outputs.to(fabric.device), reduce_op="sum")).cpu()


def count_rows(progress: Progress, selection: Selection, fabric: Fabric) -> Callable[[slice], None]:
    """Return what tells `progress` the rows of examples that are done, assuming that all ranks are equally far."""
    return lambda run: progress.advance(int(selection.rows[run].sum()) * fabric.world_size)

"""Run a trained module over every example of a selection."""

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
    progress: Progress | None = None,
) -> Tensor:
    """Return the module's output for every example, [examples, module.width], on the CPU; each rank does its share.

    Args:
        progress: counts rows, assuming that all ranks are as far as this one.
    """
    module.eval()
    inner = cast("Classifier | FrozenFeatures", getattr(module, "module", module))
    outputs = torch.zeros(len(selection), inner.width)
    for run, is_own in runs_of_rank(list(micro_batches(selection.rows, row_budget)), fabric):
        batch = pack(seqsets, selection.take(np.arange(run.start, run.stop)), inner.encoder.config)
        results = module(Parcel(batch.to(fabric.device))).cpu()
        if is_own:
            outputs[run] = results
            if progress is not None:
                progress.advance(int(selection.rows[run].sum()) * fabric.world_size)
    if fabric.world_size == 1:
        return outputs
    return cast("Tensor", fabric.all_reduce(outputs.to(fabric.device), reduce_op="sum")).cpu()

"""What a trained module makes of every example of a selection."""

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from nest_model.data.packed import micro_batches, pack
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.model.parcel import Parcel
from nest_model.training.ranks import own
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
    """Return what `module` makes of every example, [examples, module.width], on the CPU; each rank does its share.

    Args:
        progress: is told the rows; of ranks, as if all were as far as this one.
    """
    module.eval()
    inner = getattr(module, "module", module)
    scored = torch.zeros(len(selection), inner.width)
    for run, counts in own(list(micro_batches(selection.rows, row_budget)), fabric):
        batch = pack(seqsets, selection.take(np.arange(run.start, run.stop)), inner.encoder.config)
        found = module(Parcel(batch.to(fabric.device))).cpu()
        if counts:
            scored[run] = found
            if progress is not None:
                progress.advance(int(selection.rows[run].sum()) * fabric.world_size)
    return (
        fabric.all_reduce(scored.to(fabric.device), reduce_op="sum").cpu()
        if fabric.world_size > 1
        else scored
    )

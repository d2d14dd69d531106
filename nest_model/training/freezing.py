"""Freeze blocks of a pretrained encoder during fine-tuning."""

from collections.abc import Sequence

from torch import nn

from nest_model.model.encoder import NestModel


def freeze_blocks(encoder: NestModel, blocks: Sequence[str]) -> None:
    """Exclude these of `options.BLOCKS` from training: without gradient they have no decay and no moments."""
    parts: dict[str, list[nn.Module]] = {
        "embedding": [encoder.embedding, encoder.time2vec],
        "swe": [layer.set_wise for layer in encoder.layers],
        "cse": [layer.cross_set for layer in encoder.layers],
    }
    for block in blocks:
        for part in parts[block]:
            part.requires_grad_(False)

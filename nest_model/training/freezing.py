"""Weights of a pretrained encoder that a fine-tuning leaves as they are."""

from collections.abc import Sequence

from torch import nn

from nest_model.model.encoder import NestModel


def freeze_blocks(encoder: NestModel, blocks: Sequence[str]) -> None:
    """Take these of `options.BLOCKS` out of the training: no gradient, so no decay and no moments either."""
    parts: dict[str, list[nn.Module]] = {
        "embedding": [encoder.embedding, encoder.time2vec],
        "swe": [layer.set_wise for layer in encoder.layers],
        "cse": [layer.cross_set for layer in encoder.layers],
    }
    for block in blocks:
        for part in parts[block]:
            part.requires_grad_(False)

"""Freeze blocks of a pretrained encoder during fine-tuning."""

from collections.abc import Sequence

from nest_model.model.encoder import Encoder


def freeze_blocks(encoder: Encoder, blocks: Sequence[str]) -> None:
    """Exclude these of `options.BLOCKS` from training: without gradient they have no decay and no moments."""
    parts = encoder.parts()
    for block in blocks:
        for part in parts[block]:
            part.requires_grad_(False)

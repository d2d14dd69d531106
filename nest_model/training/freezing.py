"""Freeze blocks of a pretrained encoder during fine-tuning."""

from collections.abc import Sequence

from nest_model.model.encoder import Encoder
from nest_model.options import refuse_absent_blocks
from nest_model.systems import BLOCKS


def freeze_blocks(encoder: Encoder, blocks: Sequence[str]) -> None:
    """Exclude these of `systems.BLOCKS` from training: without gradient they have no decay and no moments.

    All of them together are every weight of the encoder, its last norm too: the paper's linear probe.

    Raises:
        NestError: the encoder has no such block.
    """
    parts = encoder.parts()
    refuse_absent_blocks(blocks, parts, encoder.system)
    if set(blocks) == set(BLOCKS):
        encoder.requires_grad_(False)
        return
    for block in blocks:
        for part in parts[block]:
            part.requires_grad_(False)

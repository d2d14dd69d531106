"""Freeze blocks of a pretrained encoder during fine-tuning."""

from collections.abc import Sequence

from nest_model.model.encoder import Encoder
from schemas.errors import NestError


def freeze_blocks(encoder: Encoder, blocks: Sequence[str]) -> None:
    """Exclude these of `options.BLOCKS` from training: without gradient they have no decay and no moments.

    Raises:
        NestError: the encoder has no such block.
    """
    parts = encoder.parts()
    if unknown := [block for block in blocks if block not in parts]:
        raise NestError(
            f"freeze {','.join(unknown)}: {encoder.system} has no such blocks; it has {', '.join(parts)}."
        )
    for block in blocks:
        for part in parts[block]:
            part.requires_grad_(False)

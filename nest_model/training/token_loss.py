"""The loss of guessing masked tokens by the embedding as head, for every encoder that is trained so."""

import torch
from torch import Tensor

from nest_model.model.cross_entropy import Targets, cross_entropy_sum
from nest_model.model.encoder import Encoder


def token_loss(model: Encoder, hidden_states: Tensor, places: Tensor, tokens: Tensor) -> Tensor:
    """Sum the cross-entropy of the masked tokens; a merged row guesses each of its targets."""
    rows, row_of_target = torch.arange(len(hidden_states), device=hidden_states.device), places
    if model.config.shortcuts.heads_where_a_loss_is:
        rows, row_of_target = torch.unique(places, return_inverse=True)
    targets = Targets(row_of_target, tokens, torch.ones_like(tokens, dtype=torch.float64))
    return cross_entropy_sum(
        hidden_states.index_select(0, rows),
        model.embedding.weight,
        None,
        targets,
        in_chunks=model.config.shortcuts.chunked_cross_entropy,
    )

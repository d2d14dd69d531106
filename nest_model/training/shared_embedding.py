"""Embeddings shared during pretraining: each token's own plus those of its code groups."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from nest_model.data.code_groups import CodeGroups

OWN_SHARE = 0.3
"""Initial scale of a token's own embedding, small so that groups are learnt first."""

_OWN = "parametrizations.weight.original"
_GROUPS = "parametrizations.weight.0.groups"


class SharedEmbedding(nn.Module):
    """Adds the factor-weighted sum of its groups' embeddings to each token's own embedding."""

    group: Tensor  # i64 [entries]
    factor: Tensor  # f32 [entries]
    first: Tensor  # i64 [tokens], the first entry of each token

    def __init__(self, tokens: int, d_model: int, code_groups: CodeGroups) -> None:
        super().__init__()
        self.groups = nn.Parameter(torch.randn(len(code_groups.names), d_model) * 0.5 * d_model**-0.5)
        ends = torch.bincount(torch.from_numpy(code_groups.token), minlength=tokens).cumsum(0)
        entries = {
            "group": torch.from_numpy(code_groups.group),
            "factor": torch.from_numpy(code_groups.factor),
            "first": torch.cat([ends.new_zeros(1), ends[:-1]]),
        }
        for name, tensor in entries.items():
            self.register_buffer(name, tensor, persistent=False)  # derived from the vocabulary

    def forward(self, embedding: Tensor) -> Tensor:
        """Add the groups' embeddings to the tokens' own: [tokens, d_model] → [tokens, d_model]."""
        return embedding + F.embedding_bag(
            self.group,
            self.groups,
            self.first,
            mode="sum",
            per_sample_weights=self.factor.to(self.groups.dtype),
        )


def share_embedding(embedding: nn.Embedding, code_groups: CodeGroups) -> None:
    """Replace an embedding's weight by the sum of each token's own and its groups' embeddings, both trained.

    The own part starts at OWN_SHARE of its value. Without groups nothing changes.
    """
    if code_groups.names:
        with torch.no_grad():
            embedding.weight *= OWN_SHARE
        tokens, d_model = embedding.weight.shape
        parametrization = SharedEmbedding(tokens, d_model, code_groups)
        parametrize.register_parametrization(embedding, "weight", parametrization)


def fold_embedding(embedding: nn.Embedding, weights: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return a model's weights with the two parts of an embedding summed into one, as in a model without groups.

    Args:
        weights: of the whole model, on the CPU; empty on ranks other than the first.
        name: the name of the embedding in `weights`.
    """
    if not parametrize.is_parametrized(embedding, "weight") or not weights:
        return weights
    parametrizations = cast("nn.ModuleDict", embedding.parametrizations)
    parametrization = cast("nn.ModuleList", parametrizations["weight"])[0]
    assert isinstance(parametrization, SharedEmbedding)
    parts = {f"{name}.{part}" for part in (_OWN, _GROUPS)}
    other_weights = {key: weight for key, weight in weights.items() if key not in parts}
    groups = F.embedding_bag(
        parametrization.group.cpu(),
        weights[f"{name}.{_GROUPS}"],
        parametrization.first.cpu(),
        mode="sum",
        per_sample_weights=parametrization.factor.cpu().to(weights[f"{name}.{_GROUPS}"].dtype),
    )
    return other_weights | {f"{name}.weight": weights[f"{name}.{_OWN}"] + groups}

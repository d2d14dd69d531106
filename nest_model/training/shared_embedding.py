"""An embedding that tokens share while a model is pretrained: a token's own, and those of its code's groups."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from nest_model.data.code_groups import CodeGroups

OWN_SHARE = 0.3
"""Of a token's own embedding where training begins: so most of what is learnt is learnt of the groups first."""

_OWN = "parametrizations.weight.original"
_GROUPS = "parametrizations.weight.0.groups"


class SharedEmbedding(nn.Module):
    """Adds to each token's own embedding the factor-weighted sum of its groups' embeddings."""

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
            self.register_buffer(name, tensor, persistent=False)  # the vocabulary says them

    def forward(self, own: Tensor) -> Tensor:
        """[tokens, d_model] of their own → [tokens, d_model] with their groups'."""
        return own + F.embedding_bag(
            self.group,
            self.groups,
            self.first,
            mode="sum",
            per_sample_weights=self.factor.to(self.groups.dtype),
        )


def share_embedding(embedding: nn.Embedding, code_groups: CodeGroups) -> None:
    """Let an embedding's weight be each token's own and its groups' together, both trained.

    The own part begins at OWN_SHARE of what it was. Without a group nothing changes.
    """
    if code_groups.names:
        with torch.no_grad():
            embedding.weight *= OWN_SHARE
        shared = SharedEmbedding(*embedding.weight.shape, code_groups)
        parametrize.register_parametrization(embedding, "weight", shared)


def fold_embedding(embedding: nn.Embedding, weights: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return a model's whole weights with one embedding in place of its two parts, as a model without groups has it.

    Args:
        weights: of the whole model, on the CPU; empty on other ranks than the first.
        name: what the embedding is called in them.
    """
    if not parametrize.is_parametrized(embedding, "weight") or not weights:
        return weights
    shared = embedding.parametrizations.weight[0]
    parts = {f"{name}.{part}" for part in (_OWN, _GROUPS)}
    folded = {key: weight for key, weight in weights.items() if key not in parts}
    groups = F.embedding_bag(
        shared.group.cpu(),
        weights[f"{name}.{_GROUPS}"],
        shared.first.cpu(),
        mode="sum",
        per_sample_weights=shared.factor.cpu().to(weights[f"{name}.{_GROUPS}"].dtype),
    )
    return folded | {f"{name}.weight": weights[f"{name}.{_OWN}"] + groups}

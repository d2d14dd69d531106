"""What is read off the encoder's rows: a set's token distribution, and a task's classes."""

import torch
from torch import Tensor, nn


class SetHead(nn.Module):
    """Logits of a set's token distribution from its [CLS]: Linear, GELU, norm, Linear.

    The model says whose weight the last one has, see `NestModel.set_weight`.
    """

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(d_model, bias=False)
        self.out = nn.Linear(d_model, vocab_size)

    def before_out(self, cls_rows: Tensor) -> Tensor:
        """Return what the last Linear takes, [sets, d_model] → the same shape."""
        return self.norm(self.activation(self.dense(cls_rows)))


class ClassifierHead(nn.Module):
    """A task's logits from the [CLS] of the set it is asked at: Linear, GELU, Dropout, Linear."""

    def __init__(self, d_model: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, classes)

    def forward(self, parts: Tensor) -> Tensor:
        """[examples, 1, d_model] → [examples, classes]."""
        return self.out(self.dropout(self.activation(self.dense(parts.squeeze(1)))))


class HistoryHead(nn.Module):
    """A task's logits from several parts of an example, each normed and dropped out: a curve beside a straight line.

    The line begins at 0. What adds up, as codes do, need not pass through the curve, which is left with the rest.
    """

    def __init__(self, parts: int, d_model: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(d_model, bias=False) for _ in range(parts))
        self.dense = nn.Linear(parts * d_model, d_model)
        self.activation = nn.GELU()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(d_model, classes)
        self.line = nn.Linear(parts * d_model, classes, bias=False)
        for linear in (self.dense, self.out):
            nn.init.normal_(linear.weight, std=linear.in_features**-0.5)
            nn.init.zeros_(linear.bias)
        nn.init.zeros_(self.line.weight)

    def forward(self, parts: Tensor) -> Tensor:
        """[examples, parts, d_model] → [examples, classes]."""
        normed = torch.cat(
            [norm(part) for norm, part in zip(self.norms, parts.unbind(1), strict=True)], dim=1
        )
        curve = self.out(self.dropout(self.activation(self.dense(self.dropout(normed)))))
        return curve + self.line(normed)

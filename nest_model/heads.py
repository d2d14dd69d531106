"""What is read off the encoder's rows: a set's token distribution, and a task's classes."""

from torch import Tensor, nn


class SetHead(nn.Module):
    """Logits of a set's token distribution from its [CLS]: Linear, GELU, norm, Linear."""

    def __init__(self, d_model: int, vocab_size: int) -> None:
        super().__init__()
        self.dense = nn.Linear(d_model, d_model)
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(d_model, bias=False)
        self.out = nn.Linear(d_model, vocab_size)

    def forward(self, cls_rows: Tensor) -> Tensor:
        """[sets, d_model] → [sets, vocab_size]."""
        return self.out(self.before_out(cls_rows))

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

    def forward(self, cls_rows: Tensor) -> Tensor:
        """[examples, d_model] → [examples, classes]."""
        return self.out(self.dropout(self.activation(self.dense(cls_rows))))

"""The sizes that all six models share, with the paper's as defaults."""

import math
from dataclasses import dataclass, fields

from nest_model.config import ModelConfig, Shortcuts
from schemas.errors import NestError


@dataclass(frozen=True)
class Sizes:
    """Sizes of a batch of B patients with m full sets of n rows each, so that packed and padded rows are equal.

    Raises:
        NestError: the sizes are not valid for a batch or a model.
    """

    subjects: int = 16  # B
    sets: int = 64  # m, per patient; also Longformer's anchors and Nyströmformer's landmarks
    set_rows: int = 32  # n, [CLS] included
    vocab_size: int = 45_000
    d_model: int = 768
    heads: int = 12
    d_ff: int = 2048
    layers: int = 6
    window: int = 32  # Longformer's keys per query, including its own

    def __post_init__(self) -> None:
        names = [field.name for field in fields(self) if getattr(self, field.name) < 1]
        if names:
            raise NestError(f"sizes: {', '.join(names)} must be at least 1.")
        if self.window % 2:
            raise NestError("sizes: window must be even, half of it before a query and half after.")
        self.config()

    @property
    def length(self) -> int:
        """Return N, the rows per patient."""
        return self.sets * self.set_rows

    @property
    def rows(self) -> int:
        """Return the rows per batch."""
        return self.subjects * self.length

    @property
    def d_head(self) -> int:
        return self.d_model // self.heads

    @property
    def features(self) -> int:
        """Return r, Performer's random features: ⌊d_head ln d_head⌋."""
        return max(int(self.d_head * math.log(self.d_head)), 1)

    def config(self) -> ModelConfig:
        """Return NEST's config: no positions within a set, and days since the first set between sets.

        Duplicates are not merged, since the formulas count every row and a small vocabulary repeats tokens.
        """
        return ModelConfig(
            vocab_size=self.vocab_size,
            d_model=self.d_model,
            heads=self.heads,
            d_ff=self.d_ff,
            layers=self.layers,
            max_set_rows=self.set_rows,
            max_sets=self.sets,
            set_position=None,
            shortcuts=Shortcuts(merged_duplicates=False),
        )

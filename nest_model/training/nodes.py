"""What the objectives of GT-BEHRT share: sets with each code once, and codes guessed by the tied embedding.

After Poulain & Beheshti (ICLR 2024), who first guess masked nodes (NAM), then the node that a set lacks (MNP).
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Generator, Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch, offsets
from nest_model.model.systems.gt_behrt.encoder import GtBehrt
from nest_model.training.guesses.verdicts import with_verdicts
from nest_model.training.objective import CorruptedBatch, Objective, PackedPatients
from nest_model.training.pretraining_data import PretrainingExamples
from nest_model.training.token_loss import token_loss
from schemas.tables.vocab import SPECIALS

FIRST_TOKEN = len(SPECIALS)


def distinct_codes(batch: PackedBatch) -> PackedBatch:
    """Keep the first of a set's rows with the same code; special tokens, [UNK] among the events too, all stay."""
    keys = batch.set_of_row * (int(batch.tokens.max()) + 1) + batch.tokens
    _, first = np.unique(keys.numpy(), return_index=True)
    is_first = torch.zeros_like(keys, dtype=torch.bool).index_fill_(0, torch.from_numpy(first), True)
    return keep_rows(batch, is_first | (batch.tokens < FIRST_TOKEN))


def keep_rows(batch: PackedBatch, is_kept: Tensor) -> PackedBatch:
    """Return a batch of some rows, bool [rows], among them each [CLS]."""
    return replace(
        batch,
        tokens=batch.tokens[is_kept],
        hours=batch.hours[is_kept],
        key_bias=batch.key_bias[is_kept],
        set_offsets=offsets(torch.bincount(batch.set_of_row[is_kept], minlength=batch.sets)),
    )


class HiddenNodes(CorruptedBatch, Protocol):
    """A batch of nodes, some of which are hidden and guessed."""

    @property
    def hidden_tokens(self) -> Tensor:
        """The tokens of the hidden nodes, i64 [hidden nodes]."""
        ...


class NodeObjective(Objective):
    """Guess the codes of hidden nodes among the whole vocabulary; what is hidden, a subclass says."""

    name: ClassVar[str]  # of its loss
    knows_kind: ClassVar[bool]  # whether the kind of a hidden node is seen
    compares_trainings = True
    unread_weights: ClassVar[tuple[str, ...]] = ()
    last_evaluation = None

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._kinds = np.zeros(config.vocab_size, dtype=np.int64)

    @abstractmethod
    def corrupt(self, batch: PackedBatch, generator: Generator) -> HiddenNodes:
        """Keep each code of a set once, and hide some; see Objective."""

    @abstractmethod
    def guesses(self, encoder: GtBehrt, corrupted_batch: Any) -> Tensor:
        """Return the vectors that are compared with the tokens' embeddings, [hidden nodes, node width]."""

    def target(self, encoder: GtBehrt) -> None:
        """Return nothing: it trains no second network."""

    def after_step(self, encoder: GtBehrt) -> None:
        """Do nothing."""

    def fit(self, encoder: GtBehrt, batches: PackedPatients) -> None:
        """Take the kinds of tokens, if the constant guess may know them."""
        if self.knows_kind:
            self._kinds = encoder.kind_of_token.cpu().numpy().copy()

    def start_at_shares(self, encoder: GtBehrt, examples: PretrainingExamples) -> None:
        """Leave the encoder as it is: the tied token head has no bias that could start there."""

    def counts(self, corrupted_batch: HiddenNodes) -> dict[str, int]:
        """Return the number of hidden nodes."""
        return {self.name: len(corrupted_batch.hidden_tokens)}

    def losses(
        self, encoder: GtBehrt, corrupted_batch: HiddenNodes, counts: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return the mean over the hidden nodes of the step; see Objective."""
        loss = self._sum(encoder, corrupted_batch) / max(counts[self.name], 1)
        return {"loss": loss, self.name: loss.detach()}

    def scores(self, encoder: GtBehrt, corrupted_batch: HiddenNodes) -> dict[str, float]:
        """Return the sum of the loss."""
        return {self.name: float(self._sum(encoder, corrupted_batch))}

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the mean loss."""
        loss = sums[self.name] / max(counts[self.name], 1)
        return {"val_loss": loss, f"val_{self.name}": loss}

    def warnings(self, examples: PretrainingExamples) -> list[str]:
        """Return nothing: nodes of a single set can be guessed from each other."""
        return []

    def compare_with_guesses(
        self, validation: Mapping[str, float], examples: PretrainingExamples
    ) -> dict[str, Any]:
        """Return the loss of a constant guess, by how many training sets hold a code, and the verdicts."""
        nats = nats_of_codes(examples.popularity.holders + 0.5, self._kinds)
        codes = [
            corrupted_batch.hidden_tokens.numpy()
            for corrupted_batch in examples.corrupted_batches(examples.val, self.corrupt)
        ]
        of_nodes, metric = nats[np.concatenate(codes)], f"val_{self.name}"
        yardsticks = {metric: {"constant": float(of_nodes.mean())}} if len(of_nodes) else {}
        return with_verdicts(
            validation, yardsticks, weights={metric: 1.0}, val_patients=examples.val_patients
        )

    def _sum(self, encoder: GtBehrt, corrupted_batch: HiddenNodes) -> Tensor:
        vectors = self.guesses(encoder, corrupted_batch)
        rows = torch.arange(len(vectors), device=vectors.device)
        return token_loss(encoder, vectors, rows, corrupted_batch.hidden_tokens)


def nats_of_codes(holders: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Return the loss of guessing each code by its share of the holders of its kind, f64 [vocab_size]; 0 for specials.

    Args:
        holders: f64 [vocab_size], above 0.
        kinds: i64 [vocab_size]; all the same: the guess does not know them.
    """
    codes = slice(FIRST_TOKEN, None)
    totals = np.bincount(kinds[codes], weights=holders[codes])
    nats = np.zeros(len(holders))
    nats[codes] = np.log(totals[kinds[codes]] / holders[codes])
    return nats

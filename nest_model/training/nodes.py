"""What the objectives of GT-BEHRT share: sets with each code once, and codes guessed by the tied embedding.

After Poulain & Beheshti (ICLR 2024), who first guess masked nodes (NAM), then the node that a set lacks (MNP) and the
type of visit (VTP).
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

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


class NodeObjective(Objective):
    """Guess the codes of hidden nodes among the whole vocabulary, and perhaps more; what is hidden, a subclass says.

    Its losses have names, are means over what is hidden for each, and add up.
    """

    name: ClassVar[str]  # of the loss of nodes
    knows_kind: ClassVar[bool]  # whether the kind of a hidden node is seen
    compares_trainings = True
    unread_weights: ClassVar[tuple[str, ...]] = ()
    last_evaluation = None

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._kinds = np.zeros(config.vocab_size, dtype=np.int64)

    @abstractmethod
    def hidden_values(self, corrupted_batch: Any) -> dict[str, Tensor]:
        """Return what is hidden and guessed for each loss, i64 [hidden]: codes for that of nodes."""

    @abstractmethod
    def loss_sums(self, encoder: GtBehrt, corrupted_batch: Any) -> dict[str, Tensor]:
        """Return the sum of each loss over what is hidden."""

    def constant_nats(self, examples: PretrainingExamples) -> dict[str, np.ndarray]:
        """Return for each loss that of a constant guess from the training patients, f64, by what is hidden."""
        return {self.name: nats_of_codes(examples.popularity.holders + 0.5, self._kinds)}

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

    def counts(self, corrupted_batch: CorruptedBatch) -> dict[str, int]:
        """Return how many are hidden for each loss."""
        return {name: len(values) for name, values in self.hidden_values(corrupted_batch).items()}

    def losses(
        self, encoder: GtBehrt, corrupted_batch: CorruptedBatch, counts: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return the means over what is hidden in the step; see Objective."""
        sums = self.loss_sums(encoder, corrupted_batch)
        means = {name: loss / max(counts[name], 1) for name, loss in sums.items()}
        return {"loss": torch.stack([*means.values()]).sum()} | {
            name: loss.detach() for name, loss in means.items()
        }

    def scores(self, encoder: GtBehrt, corrupted_batch: CorruptedBatch) -> dict[str, float]:
        """Return the sums of the losses."""
        return {name: float(loss) for name, loss in self.loss_sums(encoder, corrupted_batch).items()}

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the mean losses, and what they add up to."""
        means = {f"val_{name}": value / max(counts[name], 1) for name, value in sums.items()}
        return {"val_loss": sum(means.values()), **means}

    def warnings(self, examples: PretrainingExamples) -> list[str]:
        """Return nothing: nodes of a single set can be guessed from each other."""
        return []

    def compare_with_guesses(
        self, validation: Mapping[str, float], examples: PretrainingExamples
    ) -> dict[str, Any]:
        """Return the loss of a constant guess by the shares of the training patients, and the verdicts."""
        nats = self.constant_nats(examples)
        losses: dict[str, list[np.ndarray]] = {name: [] for name in nats}
        for corrupted_batch in examples.corrupted_batches(examples.val, self.corrupt):
            for name, values in self.hidden_values(corrupted_batch).items():
                losses[name].append(nats[name][values.numpy()])
        of_losses = {f"val_{name}": np.concatenate(parts) for name, parts in losses.items()}
        yardsticks = {name: {"constant": float(each.mean())} for name, each in of_losses.items() if len(each)}
        return with_verdicts(
            validation, yardsticks, weights=dict.fromkeys(of_losses, 1.0), val_patients=examples.val_patients
        )


def loss_of_nodes(encoder: GtBehrt, vectors: Tensor, codes: Tensor) -> Tensor:
    """Sum the losses of guessing the codes of nodes by vectors, [nodes, node width], as wide as the embedding."""
    return token_loss(encoder, vectors, torch.arange(len(vectors), device=vectors.device), codes)


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

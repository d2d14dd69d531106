"""GT-BEHRT's objective without visit types: guess masked nodes (NAM), and the node that a set lacks (MNP).

Poulain & Beheshti (ICLR 2024) train one after the other. Here both are guessed in one pass, whose graphs have masked
nodes and lack one: a masked node from its graph, a missing node from its set's row in BERT.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Generator, Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch, offsets
from nest_model.model.systems.gt_behrt.encoder import GtBehrt
from nest_model.training.guesses.verdicts import not_judged, not_learnt
from nest_model.training.objective import Objective, PackedPatients
from nest_model.training.pretraining_data import PretrainingExamples
from nest_model.training.token_loss import token_loss
from schemas.tables.vocab import MASK, SPECIALS

FIRST_TOKEN = len(SPECIALS)


@dataclass(frozen=True)
class CorruptedGraphs:
    """A batch whose sets have each code once, some masked, and lack one that is guessed."""

    batch: PackedBatch
    codes: Tensor  # i64 [rows], the tokens before any was masked, which tell the kinds of nodes
    masked_rows: Tensor  # i64 [masked nodes], rising
    lacking_sets: Tensor  # i64 [missing nodes], rising: at most one in a set
    missing: Tensor  # i64 [missing nodes], their tokens

    @property
    def masked(self) -> Tensor:
        """The tokens of the masked nodes, i64 [masked nodes]."""
        return self.codes.index_select(0, self.masked_rows)

    def slice_subjects(self, first: int, end: int) -> Self:
        """Return the patients `first` … `end - 1`."""
        first_set, end_set = self.batch.subject_offsets[[first, end]].tolist()
        first_row, end_row = self.batch.set_offsets[[first_set, end_set]].tolist()
        masked = (self.masked_rows >= first_row) & (self.masked_rows < end_row)
        lacking = (self.lacking_sets >= first_set) & (self.lacking_sets < end_set)
        return type(self)(
            batch=self.batch.slice_subjects(first, end),
            codes=self.codes[first_row:end_row],
            masked_rows=self.masked_rows[masked] - first_row,
            lacking_sets=self.lacking_sets[lacking] - first_set,
            missing=self.missing[lacking],
        )

    def to(self, device: torch.device | str) -> Self:
        """Return the batch with every tensor on `device`."""
        return type(self)(**{name: value.to(device) for name, value in vars(self).items()})


def corrupt_graphs(batch: PackedBatch, generator: Generator, share: float) -> CorruptedGraphs:
    """Keep each code of a set once; of sets with two or more remove one; mask a share of the others.

    A special token among the events, [UNK], counts as a code of its set, but is never removed, masked or guessed.

    Args:
        generator: the only source of randomness.
    """
    set_of_row = batch.set_of_row
    is_event = torch.ones_like(set_of_row, dtype=torch.bool).index_fill_(0, batch.cls_rows, False)
    is_code = is_event & (batch.tokens >= FIRST_TOKEN)
    is_code &= _is_first(set_of_row * (int(batch.tokens.max()) + 1) + batch.tokens)
    is_node = is_code | (batch.tokens < FIRST_TOKEN)
    nodes_of_set = torch.zeros(batch.sets, dtype=torch.long).index_add_(
        0, set_of_row, (is_node & is_event).long()
    )
    # of each set with enough nodes the code with the highest number
    numbers = torch.rand(len(set_of_row), generator=generator, dtype=torch.float64)
    numbers = numbers.where(is_code & (nodes_of_set[set_of_row] > 1), -1.0)
    highest = torch.zeros(batch.sets, dtype=torch.float64).scatter_reduce_(0, set_of_row, numbers, "amax")
    is_missing = numbers == highest[set_of_row]
    is_masked = is_code & ~is_missing & (torch.rand(len(set_of_row), generator=generator) < share)
    rows = (is_node & ~is_missing).nonzero().squeeze(1)
    missing_rows = is_missing.nonzero().squeeze(1)
    codes = batch.tokens[rows]
    return CorruptedGraphs(
        PackedBatch(
            tokens=codes.masked_fill(is_masked[rows], MASK),
            hours=batch.hours[rows],
            key_bias=batch.key_bias[rows],
            set_offsets=offsets(torch.bincount(set_of_row[rows], minlength=batch.sets)),
            subject_offsets=batch.subject_offsets,
            days=batch.days,
            gaps=batch.gaps,
        ),
        codes,
        is_masked[rows].nonzero().squeeze(1),
        set_of_row[missing_rows],
        batch.tokens[missing_rows],
    )


def _is_first(keys: Tensor) -> Tensor:
    """Return whether a key is the first of its kind, bool [keys]."""
    _, first = np.unique(keys.numpy(), return_index=True)
    return torch.zeros_like(keys, dtype=torch.bool).index_fill_(0, torch.from_numpy(first), True)


class MaskedAndMissingNodes:
    """NAM, with the weight and share that the config has for masked tokens, and MNP."""

    last_evaluation = None

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self._kinds: np.ndarray | None = None  # i64 [vocab_size], of each token

    def target(self, encoder: GtBehrt) -> None:
        """Return nothing: it trains no second network."""

    def after_step(self, encoder: GtBehrt) -> None:
        """Do nothing."""

    def fit(self, encoder: GtBehrt, batches: PackedPatients) -> None:
        """Take the kinds of tokens, which a masked node keeps, so that a guess may know them."""
        self._kinds = encoder.kind_of_token.cpu().numpy().copy()

    def start_at_shares(self, encoder: GtBehrt, examples: PretrainingExamples) -> None:
        """Leave the encoder as it is: the tied token head has no bias that could start there."""

    def corrupt(self, batch: PackedBatch, generator: Generator) -> CorruptedGraphs:
        """Mask and remove nodes."""
        share = self.config.token_mask_share if self.config.mlm_weight else 0.0
        return corrupt_graphs(batch, generator, share)

    def counts(self, corrupted: CorruptedGraphs) -> dict[str, int]:
        """Return the number of masked and of missing nodes."""
        return {"nam": len(corrupted.masked_rows), "mnp": len(corrupted.missing)}

    def losses(
        self, encoder: GtBehrt, corrupted: CorruptedGraphs, counts: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return the weighted sum, NAM and MNP; see Objective."""
        means = {name: loss / max(counts[name], 1) for name, loss in self._sums(encoder, corrupted).items()}
        total = self.config.mlm_weight * means["nam"] + means["mnp"]
        return {"loss": total} | {name: loss.detach() for name, loss in means.items()}

    def scores(self, encoder: GtBehrt, corrupted: CorruptedGraphs) -> dict[str, float]:
        """Return the sums of NAM and MNP."""
        return {name: float(loss) for name, loss in self._sums(encoder, corrupted).items()}

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the mean losses and their weighted sum."""
        nam, mnp = (sums[name] / max(counts[name], 1) for name in ("nam", "mnp"))
        return {"val_loss": self.config.mlm_weight * nam + mnp, "val_nam": nam, "val_mnp": mnp}

    def warnings(self, examples: PretrainingExamples) -> list[str]:
        """Return nothing: nodes of a single set can be guessed from each other."""
        return []

    def compare_with_guesses(
        self, validation: Mapping[str, float], examples: PretrainingExamples
    ) -> dict[str, Any]:
        """Return the losses of a constant guess, by how many training sets hold a code, and the verdicts.

        Of a masked node the guess knows the kind, as the encoder does.
        """
        assert self._kinds is not None, "fit comes before any guess"
        holders = examples.popularity.holders + 0.5
        nats = {"val_nam": nats_of_codes(holders, self._kinds), "val_mnp": nats_of_codes(holders)}
        sums, counts = dict.fromkeys(nats, 0.0), dict.fromkeys(nats, 0)
        for corrupted in examples.corrupted(examples.val, self.corrupt):
            for name, codes in (("val_nam", corrupted.masked), ("val_mnp", corrupted.missing)):
                sums[name] += float(nats[name][codes.numpy()].sum())
                counts[name] += len(codes)
        yardsticks = {name: {"constant": sums[name] / count} for name, count in counts.items() if count}
        return {
            "yardsticks": yardsticks,
            "not_learnt": not_learnt(validation, yardsticks, None),
            "not_judged": not_judged(
                val_patients=examples.val_patients,
                unguessable_sets=None,
                weights={"val_nam": self.config.mlm_weight, "val_mnp": 1.0},
                yardsticks=yardsticks,
            ),
        }

    def _sums(self, encoder: GtBehrt, corrupted: CorruptedGraphs) -> dict[str, Tensor]:
        batch = corrupted.batch
        graphs, nodes = encoder.nodes(batch, encoder.kind_of_token[corrupted.codes])
        lacking = encoder.sets(batch, graphs, nodes).index_select(0, corrupted.lacking_sets)
        masked = nodes.index_select(0, graphs.node_of_row[corrupted.masked_rows])
        guesses = {
            "nam": (masked, corrupted.masked),
            "mnp": (encoder.missing_node(lacking), corrupted.missing),
        }
        return {
            name: token_loss(encoder, rows, torch.arange(len(rows), device=rows.device), tokens)
            for name, (rows, tokens) in guesses.items()
        }


def nats_of_codes(holders: np.ndarray, kinds: np.ndarray | None = None) -> np.ndarray:
    """Return the loss of guessing each code by its share of the holders, f64 [vocab_size]; 0 for specials.

    Args:
        holders: f64 [vocab_size], above 0.
        kinds: i64 [vocab_size]; the guess knows a code's kind. None: it does not.
    """
    groups = np.zeros(len(holders), dtype=np.int64) if kinds is None else kinds
    codes = slice(FIRST_TOKEN, None)
    totals = np.bincount(groups[codes], weights=holders[codes])
    nats = np.zeros(len(holders))
    nats[codes] = np.log(totals[groups[codes]] / holders[codes])
    return nats


OBJECTIVE: type[Objective] = MaskedAndMissingNodes

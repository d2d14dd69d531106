"""NEST's objective: guess masked tokens (MLM), masked sets (MSM), and visible sets from their own [CLS]."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Generator, Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.training.guesses.comparison import compare_with_guesses
from nest_model.training.guesses.table import ONE_ROW
from nest_model.training.guesses.verdicts import SETS_APART, single_set_warning
from nest_model.training.guesses.yardsticks import has_single_sets
from nest_model.training.losses import (
    Counts,
    SetPrediction,
    pretraining_loss,
    set_prediction,
    validation_scores,
)
from nest_model.training.masking import FIRST_TOKEN, MaskedBatch, mask_batch, mask_sets
from nest_model.training.objective import Objective, PackedPatients
from nest_model.training.pretraining_data import PretrainingExamples

_PREDICTIONS = tuple(
    f"val_{name}_at_10_{row}" for row in ("cls", "mask", "head") for name in ("recall", "ndcg")
)


@dataclass(frozen=True)
class MaskedTokensAndSets:
    """MLM, MSM and the own-set loss with the config's weights and shares.

    Tokens are masked in the same pass as sets, so its values of set prediction serve for curves alone.
    """

    config: ModelConfig
    compares_trainings = True
    unread_weights: ClassVar[tuple[str, ...]] = ()

    @property
    def last_evaluation(self) -> "MaskedSets":
        """Set prediction, with no token masked."""
        return MaskedSets(self.config)

    def target(self, encoder: NestModel) -> None:
        """Return nothing: it trains no second network."""

    def after_step(self, encoder: NestModel) -> None:
        """Do nothing."""

    def fit(self, encoder: NestModel, batches: PackedPatients) -> None:
        """Take nothing: what is guessed is in the batch itself."""

    @torch.no_grad()
    def start_at_shares(self, encoder: NestModel, examples: PretrainingExamples) -> None:
        """Initialise MSM's head at the constant guess, and specials, which are never targets, at its minimum.

        Its lists then start at the tokens that most sets hold.
        """
        guess = torch.from_numpy(examples.popularity.mean_set)
        guess = guess.where(guess > 0, guess[FIRST_TOKEN:].min())
        encoder.set_head.out.bias.copy_(guess.log())
        presence = torch.from_numpy(examples.popularity.presence)
        encoder.set_head.log_presence_ratio.copy_(presence.log() - guess.log())

    def corrupt(self, batch: PackedBatch, generator: Generator) -> MaskedBatch:
        """Mask tokens and sets."""
        return mask_batch(batch, generator, self.config)

    def counts(self, masked_batch: MaskedBatch) -> dict[str, int]:
        """Return the number of guesses of each loss."""
        return Counts.of(masked_batch)._asdict()

    def losses(
        self, encoder: NestModel, masked_batch: MaskedBatch, counts: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return the weighted sum, and MLM, MSM and own-set losses; see Objective."""
        losses = pretraining_loss(encoder, masked_batch, Counts(**counts))
        return {"loss": losses.total} | {name: getattr(losses, name) for name in self._terms}

    def scores(self, encoder: NestModel, masked_batch: MaskedBatch) -> dict[str, float]:
        """Return the sums of the losses and, of the masked sets, of set prediction."""
        losses, prediction = validation_scores(encoder, masked_batch)
        return {name: float(loss) for name, loss in losses.items()} | _sums(prediction)

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the mean losses, their weighted sum and, if sets are masked, set prediction."""
        means = {name: sums[name] / max(count, 1) for name, count in counts.items()}
        loss = sum(weight * means[name] for name, weight in self.config.loss_weights.items())
        lists = {name: sums[name] / counts["msm"] for name in _PREDICTIONS} if counts["msm"] else {}
        return {"val_loss": loss} | {f"val_{name}": means[name] for name in self._terms} | lists

    @property
    def _terms(self) -> list[str]:
        weights = self.config.loss_weights
        return [name for name in weights if name != "own" or weights[name]]  # MLM and MSM are always reported

    def warnings(self, examples: PretrainingExamples) -> list[str]:
        """Return a sentence if MSM is trained where no set can be guessed from another."""
        sentence = self._unguessable_sets(examples)
        return [sentence] if sentence else []

    def compare_with_guesses(
        self, validation: Mapping[str, float], examples: PretrainingExamples
    ) -> dict[str, Any]:
        """Return the yardsticks of tokens, sets and lists, and the verdicts; see Objective."""
        return compare_with_guesses(validation, examples, self._unguessable_sets(examples), self.corrupt)

    def _unguessable_sets(self, examples: PretrainingExamples) -> str | None:
        """Return why no masked set can be guessed from another, as a sentence; None where none is masked."""
        if not self.config.msm_weight:
            return None
        if not self.config.cross_set:
            return SETS_APART
        name = _single_set_split(examples)
        return single_set_warning(name) if name else None


@dataclass(frozen=True)
class MaskedSets:
    """Recall@10 and NDCG@10 of masked sets by each of the three readouts.

    A model that was pretrained without masked sets never met a [MASK] row that weighs as many rows: it is scored with
    one that weighs as one row, too.
    """

    config: ModelConfig

    def corrupt(self, batch: PackedBatch, generator: Generator) -> MaskedBatch:
        """Mask sets alone."""
        return mask_sets(batch, generator, self.config)

    def counts(self, masked_batch: MaskedBatch) -> dict[str, int]:
        """Return the number of masked sets."""
        return {"sets": len(masked_batch.masked_sets.sets)}

    def scores(self, encoder: NestModel, masked_batch: MaskedBatch) -> dict[str, float]:
        """Return the sums of set prediction."""
        sums = _sums(set_prediction(encoder, masked_batch))
        if self.config.msm_weight:
            return sums
        batch = masked_batch.batch
        as_one_row = replace(masked_batch, batch=replace(batch, key_bias=torch.zeros_like(batch.key_bias)))
        of_one_row = _sums(set_prediction(encoder, as_one_row))
        return sums | {f"{name}{ONE_ROW}": value for name, value in of_one_row.items()}

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the means over the sets."""
        return {name: value / max(counts["sets"], 1) for name, value in sums.items()}


def _sums(prediction: SetPrediction) -> dict[str, float]:
    """Return the sums of each score over the sets, in the order of `_PREDICTIONS`."""
    rankings = (
        ranking
        for row in (prediction.cls, prediction.mask, prediction.head)
        for ranking in (row.recall, row.ndcg)
    )
    return {name: float(ranking.sum()) for name, ranking in zip(_PREDICTIONS, rankings, strict=True)}


def _single_set_split(examples: PretrainingExamples) -> str | None:
    """Return the split whose patients all have a single set, if there is one."""
    splits = {"training": examples.train} | ({} if examples.few_validate else {"validation": examples.val})
    return next((name for name, selection in splits.items() if has_single_sets(selection)), None)


OBJECTIVE: type[Objective] = MaskedTokensAndSets

"""The objective of flat encoders: guess masked tokens (MLM)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Generator, Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model.encoder import Encoder
from nest_model.training.guesses.comparison import compare_with_guesses
from nest_model.training.masking import MaskedBatch, mask_batch
from nest_model.training.objective import Objective, PackedPatients
from nest_model.training.pretraining_data import PretrainingExamples
from nest_model.training.token_loss import token_loss


@dataclass(frozen=True)
class MaskedTokens:
    """MLM with the config's weight and share; the config masks no set."""

    config: ModelConfig
    compares_trainings = True
    unread_weights: ClassVar[tuple[str, ...]] = ()
    last_evaluation = None

    def target(self, encoder: Encoder) -> None:
        """Return nothing: it trains no second network."""

    def after_step(self, encoder: Encoder) -> None:
        """Do nothing."""

    def fit(self, encoder: Encoder, batches: PackedPatients) -> None:
        """Take nothing: what is guessed is in the batch itself."""

    def start_at_shares(self, encoder: Encoder, examples: PretrainingExamples) -> None:
        """Leave the encoder as it is: the tied token head has no bias that could start there."""

    def corrupt(self, batch: PackedBatch, generator: Generator) -> MaskedBatch:
        """Mask tokens, after rows at one time have been shuffled, whose order would reveal them."""
        return mask_batch(batch.without_order_at_one_time(generator), generator, self.config)

    def counts(self, masked_batch: MaskedBatch) -> dict[str, int]:
        """Return the number of masked tokens."""
        return {"mlm": len(masked_batch.mlm_rows)}

    def losses(
        self, encoder: Encoder, masked_batch: MaskedBatch, counts: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Return MLM as weighed and as it is; see Objective."""
        mlm = self._sum(encoder, masked_batch) / max(counts["mlm"], 1)
        return {"loss": self.config.mlm_weight * mlm, "mlm": mlm.detach()}

    def scores(self, encoder: Encoder, masked_batch: MaskedBatch) -> dict[str, float]:
        """Return the sum of MLM."""
        return {"mlm": float(self._sum(encoder, masked_batch))}

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the mean loss, as weighed and as it is."""
        mlm = sums["mlm"] / max(counts["mlm"], 1)
        return {"val_loss": self.config.mlm_weight * mlm, "val_mlm": mlm}

    def warnings(self, examples: PretrainingExamples) -> list[str]:
        """Return nothing: tokens of a single set can be guessed from each other."""
        return []

    def compare_with_guesses(
        self, validation: Mapping[str, float], examples: PretrainingExamples
    ) -> dict[str, Any]:
        """Return the yardsticks of tokens and the verdicts; see Objective."""
        return compare_with_guesses(validation, examples, None, self.corrupt)

    def _sum(self, encoder: Encoder, masked_batch: MaskedBatch) -> Tensor:
        read = encoder.read(masked_batch.batch, masked_batch.mlm_rows)
        return token_loss(encoder, read.hidden_states, read.place, masked_batch.mlm_targets)


OBJECTIVE: type[Objective] = MaskedTokens

"""Pretraining: MLM and MSM on the training patients, stopped early on the validation patients."""

import hashlib
import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import torch
from lightning_fabric import Fabric
from torch import Generator, Tensor, nn

from nest_model import checkpoint
from nest_model.batches import pack
from nest_model.config import ModelConfig
from nest_model.data import SeqSets
from nest_model.files import write_json
from nest_model.loop import SECONDS_BETWEEN_STATES, Parcel, Position, Recipe, fit, seed_of
from nest_model.masking import MaskedBatch, mask_batch, mask_sets
from nest_model.model import NestModel
from nest_model.objectives import pretraining_loss, set_prediction
from nest_model.ranks import share, total
from nest_model.readme import pretrained_readme
from nest_model.selection import limit_context, whole_subjects
from nest_model.sharding import whole_weights
from nest_model.state import StateFolder
from nest_model.telemetry import StopRequest, Telemetry
from nest_model.whereabouts import ShardRows, shard_rows
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.events import SUBJECTS
from schemas.suppress import shown_count
from schemas.vocab import VOCAB, content_sha256

log = logging.getLogger("nest")

VALIDATION_SEED = 2025  # of the validation masks: the same in every epoch and every run

RECIPES = {
    # tiny: chosen on the validation loss within a minute of two cores; 12 patients a step, not the paper's 36, because
    # many small steps are worth more there
    "tiny": Recipe(
        learning_rate=4e-3, epochs=10, patience=3, warmup_share=0.05, cosine=True, examples_per_step=12
    ),
    "paper": Recipe(learning_rate=5e-5, epochs=30, patience=10),
}


@dataclass(frozen=True)
class Patients:
    """Shards, and which of their subjects are trained on and which stop the training."""

    seqsets: SeqSets
    train: np.ndarray  # subject rows
    val: np.ndarray

    @classmethod
    def read(cls, seqset: Path, subjects: Path) -> "Patients":
        """Read the shards and the subjects' `pretrain_split`.

        Raises:
            NestError: no subject of the training split has a set.
        """
        seqsets = SeqSets.read(seqset)
        table = read_table(subjects, SUBJECTS)
        ids, split = table["subject_id"].to_numpy(), table["pretrain_split"]
        train, val = (
            seqsets.subject_rows(ids[pc.equal(split, name).to_numpy()]) for name in ("train", "val")
        )
        if not len(train):
            raise NestError(
                f"{subjects}: no subject of the training split has a set; there is nothing to learn."
            )
        if not len(val):
            log.warning("no subject of the validation split has a set; the training stops on its own loss.")
        return cls(seqsets, train, val if len(val) else train)


def pretrain(
    *,
    seqset: Path,
    subjects: Path,
    vocab: Path,
    out: Path,
    model: str,
    position: str,
    seed: int,
    fabric: Fabric,
    telemetry: Telemetry,
    stop: StopRequest,
    recipe: Recipe | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    row_budget: int | None = None,
    lower_row_budget: bool = False,
    seconds_between_states: float = SECONDS_BETWEEN_STATES,
    key: str = "",
    **changes: Any,
) -> None:
    """Pretrain a model and write its folder: weights, config, card, `metrics.json`.

    Args:
        model: "tiny", "paper", or "auto" (tiny on a CPU, paper on a GPU).
        position: the config's `cse_position`.
        recipe: None: the preset's own. epochs, learning_rate, row_budget: in the recipe's place.
        lower_row_budget: as for `fit`.
        key: of what the caller knows it to be made from, the code among it; no state of another is gone on with.
        changes: of the preset's model config.

    Raises:
        NestError: inputs that do not belong together, or a disk that is full.
        Stopped: asked to end; the state is saved.
    """
    began = time.monotonic()
    if model == "auto":
        model = "tiny" if fabric.device.type == "cpu" else "paper"
    patients = Patients.read(seqset, subjects)
    config = ModelConfig.preset(
        model, vocab_size(vocab, patients.seqsets.vocab_sha256), cse_position=position, **changes
    )
    recipe = (recipe or RECIPES[model]).changed(
        epochs=epochs, learning_rate=learning_rate, row_budget=row_budget
    )
    torch.manual_seed(seed)
    trainee = Pretraining(patients, config, recipe, fabric)
    states = StateFolder(out / "state", run_key(config, recipe, seed, patients, key))
    log.info("pretraining %s (%.2f M weights) on %s", model, trainee.weights / 1e6, trainee.context_words)
    position_reached, module = fit(
        trainee,
        recipe,
        seed=seed,
        fabric=fabric,
        states=states,
        telemetry=telemetry,
        stop=stop,
        seconds_between_states=seconds_between_states,
        lower_row_budget=lower_row_budget,
    )

    metrics = {**trainee.evaluate(module)[0], **trainee.set_prediction(module)}
    summary = trainee.summary(recipe, seed, position_reached) | {
        "preset": model,
        "device": fabric.device.type,
    }
    card = checkpoint.ModelCard(config, patients.seqsets.vocab_sha256, summary)
    weights = whole_weights(trainee.module.model)
    if not fabric.is_global_zero:
        return
    checkpoint.save(out, weights, card, pretrained_readme(card, metrics))
    content = {"validation": metrics, **summary, "history": position_reached.history}
    write_json(out / "metrics.json", content)
    states.clear()
    told = metrics | {"epochs": len(position_reached.history)}
    telemetry.result(told, seconds=round(time.monotonic() - began, 1))


class _PretrainingModule(nn.Module):
    """Does what it is asked with the model, so that all of it is inside the one call that Fabric wraps.

    What is asked is a function for the reason `Parcel` gives.
    """

    def __init__(self, model: NestModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, asked: Callable[[NestModel], Any]) -> Any:
        return asked(self.model)


@dataclass(frozen=True)
class Part:
    """A micro-batch of a step."""

    masked: MaskedBatch
    mlm_count: int  # of the whole step
    msm_count: int
    counts: bool  # or is another rank's, and there for the turn alone

    def losses(self, model: NestModel) -> tuple[Tensor, Tensor, Tensor]:
        losses = pretraining_loss(model, self.masked, mlm_count=self.mlm_count, msm_count=self.msm_count)
        return losses.total * self.counts, losses.mlm * self.counts, losses.msm * self.counts


class Pretraining:
    """The trainee of the pretraining loop: one example is one subject with its last sets."""

    stage = "pretrain"

    def __init__(self, patients: Patients, config: ModelConfig, recipe: Recipe, fabric: Fabric) -> None:
        self._seqsets, self._config, self._recipe, self._fabric = patients.seqsets, config, recipe, fabric
        limits = {"max_sets": config.max_sets, "max_set_rows": config.max_set_rows}
        self._train, self._cut = limit_context(whole_subjects(patients.seqsets, patients.train), **limits)
        self._val, _ = limit_context(whole_subjects(patients.seqsets, patients.val), **limits)
        self.module = _PretrainingModule(NestModel(config))
        self.rows = self._train.rows
        self.padded_rows = config.max_sets * config.max_set_rows
        self.row_budget = recipe.row_budget

    @property
    def weights(self) -> int:
        return sum(weight.numel() for weight in self.module.parameters())

    @property
    def context_words(self) -> str:
        return (
            f"{shown_count(len(self._train))} patients, {shown_count(self.rows.sum())} rows a pass; the context "
            f"leaves out {self._cut.sets_share:.1%} of the sets, with them {self._cut.events_in_cut_sets_share:.1%} "
            f"of the events, and {self._cut.events_in_long_sets_share:.1%} of the events in over-long sets"
        )

    def parts(self, examples: np.ndarray, step_seed: int) -> list[Part]:
        batch = pack(self._seqsets, self._train.take(examples), self._config)
        masked = mask_batch(batch, Generator().manual_seed(step_seed), self._config)
        return list(self._parts(masked, len(masked.mlm_rows), len(masked.masked_sets)))

    def losses(self, module: nn.Module, part: Part) -> dict[str, Tensor]:
        return dict(zip(("loss", "mlm", "msm"), module(part.losses), strict=True))

    @torch.no_grad()
    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return the two losses over all validation patients, and their sum as the config weighs it."""
        sums, counts = np.zeros(2), np.zeros(2)
        for masked in self._validation(mask_batch):
            counts += len(masked.mlm_rows), len(masked.masked_sets)
            for part in self._parts(masked):
                sums += [float(loss) for loss in module(part.losses)[1:]]
        sums = total({"mlm": sums[0], "msm": sums[1]}, self._fabric)
        mlm, msm = (np.array(list(sums.values())) / np.maximum(counts, 1)).tolist()
        loss = self._config.mlm_weight * mlm + self._config.msm_weight * msm
        return {"val_loss": loss, "val_mlm": mlm, "val_msm": msm}, loss

    @torch.no_grad()
    def set_prediction(self, module: nn.Module) -> dict[str, float]:
        """Return Recall@10 and NDCG@10 of masked validation sets, read at the [CLS] and at the [MASK] row."""
        module.eval()
        wanted = [(row, name) for row in ("cls", "mask") for name in ("recall", "ndcg")]
        sums, sets = {f"val_{name}_at_10_{row}": 0.0 for row, name in wanted}, 0
        for masked in self._validation(mask_sets):
            sets += len(masked.masked_sets)
            for part in self._parts(masked):
                predicted = module(
                    lambda model, part=part: Parcel(set_prediction(model, part.masked))
                ).content
                for row, name in wanted:
                    found = getattr(getattr(predicted, row), name)
                    sums[f"val_{name}_at_10_{row}"] += part.counts * float(found.sum())
        return {name: value / max(sets, 1) for name, value in total(sums, self._fabric).items()}

    def _parts(self, masked: MaskedBatch, mlm_count: int = 1, msm_count: int = 1) -> Iterator[Part]:
        for run, counts in share(masked.batch.rows, self.row_budget, self._fabric):
            part = masked.slice_subjects(run.start, run.stop).to(self._fabric.device)
            yield Part(part, mlm_count, msm_count, counts)

    def where(self, examples: np.ndarray) -> list[ShardRows]:
        """Return the rows of the shards these training examples are read from."""
        return shard_rows(self._seqsets, self._train.take(examples))

    def summary(self, recipe: Recipe, seed: int, position: Position) -> dict[str, Any]:
        """Return what the model card tells of the run: counts, never a row."""
        return {
            "seed": seed,
            "recipe": asdict(recipe),
            "weights": self.weights,
            "train_patients": len(self._train),
            "val_patients": len(self._val),
            "train_sets": len(self._train.event_counts),
            "train_tokens": int(self._train.event_counts.sum()),
            "context_cut": asdict(self._cut),
            "epochs": len(position.history),
            "best_epoch": position.best_epoch,
        }

    def _validation(self, mask: Any) -> Iterator[MaskedBatch]:
        per_step = self._recipe.examples_per_step
        for first in range(0, len(self._val), per_step):
            examples = np.arange(first, min(first + per_step, len(self._val)))
            batch = pack(self._seqsets, self._val.take(examples), self._config)
            yield mask(batch, Generator().manual_seed(seed_of(VALIDATION_SEED, first)), self._config)


def vocab_size(vocab: Path, vocab_sha256: str) -> int:
    """Return the number of token ids of the vocabulary the shards were written with.

    Raises:
        NestError: the file is another vocabulary.
    """
    table = read_table(vocab, VOCAB)
    if content_sha256(table) != vocab_sha256:
        raise NestError(
            f"{vocab}: not the vocabulary the shards were written with ({vocab_sha256[:8]}…); "
            "materialize the shards again."
        )
    return int(pc.max(table["token_id"]).as_py()) + 1


def run_key(config: ModelConfig, recipe: Recipe, seed: int, patients: Patients, key: str = "") -> str:
    """Return what a saved state must agree on with the run that would go on from it."""
    digest = hashlib.sha256(config.to_json().encode())
    digest.update(json.dumps([recipe.of_the_result(), seed, key]).encode())
    digest.update(patients.seqsets.content_sha256().encode())
    digest.update(patients.train.tobytes() + patients.val.tobytes())
    return digest.hexdigest()

"""Fine-tuning: a cohort's labels, the history the leak guard allows, and all weights trained for the task."""

import hashlib
import json
import logging
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from nest_model import checkpoint
from nest_model.batches import pack
from nest_model.classifier import Classifier, loss_sum, probabilities, score, targets_of
from nest_model.data import SeqSets
from nest_model.evaluate import evaluate, headline
from nest_model.features import leak_count, select
from nest_model.files import write_json
from nest_model.labels import Labels, why_not_trainable, write_predictions
from nest_model.loop import SECONDS_BETWEEN_STATES, Parcel, Recipe, fit
from nest_model.model import NestModel
from nest_model.not_trainable import give_up
from nest_model.predictions import scorable
from nest_model.ranks import share
from nest_model.readme import classifier_readme
from nest_model.selection import Cut, Selection, limit_context, thin
from nest_model.sharding import whole_weights
from nest_model.state import StateFolder
from nest_model.telemetry import StopRequest, Telemetry
from nest_model.whereabouts import ShardRows, shard_rows
from schemas.errors import NestError
from schemas.suppress import shown_count

log = logging.getLogger("nest")

DROPOUT = 0.1
_EXAMPLES_HASHED_AT_A_TIME = 1_024
RECIPES = {
    # tiny: 12 examples a step, not the paper's 36, and thinning, which the paper has not: without it few hundred
    # positives are learnt by heart in two epochs
    "tiny": Recipe(
        learning_rate=3e-4,
        epochs=6,
        patience=3,
        weight_decay=1e-3,
        warmup_share=0.1,
        cosine=True,
        examples_per_step=12,
        thinning=0.6,
    ),
    "paper": Recipe(
        learning_rate=1e-5, epochs=30, patience=3, weight_decay=1e-3, warmup_share=0.1, cosine=True
    ),
}


def finetune(
    *,
    pretrained: Path,
    labels: Path,
    seqset: Path,
    out: Path,
    predictions: Path,
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
) -> None:
    """Fine-tune a pretrained model for one task; write its folder and the predictions of every split.

    A task that cannot be learnt writes `not_trainable.json` and no model, and is no error. `key` is as for `pretrain`.

    Raises:
        NestError: a foreign vocabulary, features later than their prediction, or a disk that is full.
        Stopped: asked to end; the state is saved.
    """
    began = time.monotonic()
    table = Labels.read(labels)
    reason = why_not_trainable(table)
    if reason is not None:
        if fabric.is_global_zero:
            give_up(table, reason, out, predictions, telemetry)
        return
    seqsets = SeqSets.read(seqset)
    encoder, parent = checkpoint.load_pretrained(pretrained, vocab_sha256=seqsets.vocab_sha256)
    recipe = recipe or RECIPES[parent.training["preset"]]
    recipe = recipe.changed(epochs=epochs, learning_rate=learning_rate, row_budget=row_budget)
    torch.manual_seed(seed)
    trainee = FineTuning(table, seqsets, encoder, recipe, fabric)
    states = StateFolder(out / "state", _run_key(trainee, pretrained, recipe, seed, key))
    log.info("%s: %s", table.task.cohort, trainee.words)
    position, module = fit(
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

    probability = trainee.predict(module)
    metrics, _ = trainee.evaluate(module)
    weights = whole_weights(trainee.module)
    if not fabric.is_global_zero:
        return
    summary: dict[str, Any] = trainee.summary() | {
        "seed": seed,
        "recipe": asdict(recipe),
        "preset": parent.training["preset"],
        "epochs": len(position.history),
        "best_epoch": position.best_epoch,
    }
    card = checkpoint.ModelCard(encoder.config, seqsets.vocab_sha256, summary, table.task, DROPOUT)
    checkpoint.save(out, weights, card, classifier_readme(card, metrics))
    write_predictions(
        predictions,
        table.task,
        f"{table.task.cohort}_nest",
        subject_id=table.subject_id,
        encounter_id=table.encounter_id,
        predict_at_us=table.predict_at_us,
        label=table.label,
        probability=probability,
        split=table.split,
    )
    judged = evaluate(predictions)
    content = {"validation": metrics, "test": judged, **summary, "history": position.history}
    write_json(out / "metrics.json", content)
    write_json(predictions.parent / "metrics.json", judged)
    (out / "not_trainable.json").unlink(missing_ok=True)
    states.clear()
    told = headline(judged) | {"epochs": summary["epochs"]}
    telemetry.result(told, seconds=round(time.monotonic() - began, 1))


@dataclass(frozen=True)
class Part:
    """A micro-batch of a step."""

    chosen: Selection
    targets: Tensor
    weight: float  # of each example's loss; 0: another rank's, and there for the turn alone


class FineTuning:
    """The trainee of a task: one example is one index encounter with the history known at its prediction."""

    stage = "finetune"

    def __init__(
        self, labels: Labels, seqsets: SeqSets, encoder: NestModel, recipe: Recipe, fabric: Fabric
    ) -> None:
        self._labels, self._seqsets, self._recipe, self._fabric = labels, seqsets, recipe, fabric
        self._type = labels.task.label_type
        self._targets = targets_of(labels)
        self._selection, self._cut = select_examples(labels, seqsets, encoder)
        self._train = np.flatnonzero(labels.split == "train")
        self._val = np.flatnonzero(labels.split == "val")
        self.module = Classifier(encoder, len(labels.task.classes), DROPOUT)
        encoder.set_head.requires_grad_(False)
        self.rows = self._selection.rows[self._train]
        self.padded_rows = encoder.config.max_sets * encoder.config.max_set_rows
        self.row_budget = recipe.row_budget

    @property
    def words(self) -> str:
        return (
            f"{shown_count(len(self._train))} examples, {shown_count(self.rows.sum())} rows a pass; the context "
            f"leaves out {self._cut.sets_share:.1%} of the sets and, in them or in over-long ones, "
            f"{self._cut.events_in_cut_sets_share + self._cut.events_in_long_sets_share:.1%} of the events"
        )

    def content(self) -> Iterator[bytes]:
        """Yield what is read and what is to be learnt from it, so that a run knows its data again."""
        chosen = self._selection
        yield from (of.tobytes() for of in (chosen.first_set, chosen.target_set, chosen.event_offsets))
        for column in (self._seqsets.tokens, self._seqsets.hours):
            for first in range(0, len(chosen), _EXAMPLES_HASHED_AT_A_TIME):
                examples = np.arange(first, min(first + _EXAMPLES_HASHED_AT_A_TIME, len(chosen)))
                yield chosen.take(examples).values(column).tobytes()
        yield self._train.tobytes() + self._targets.numpy().tobytes()

    def parts(self, examples: np.ndarray, step_seed: int) -> list[Part]:
        torch.manual_seed(step_seed + self._fabric.global_rank)  # dropout
        chosen = self._selection.take(self._train[examples])
        chosen = thin(chosen, self._recipe.thinning, np.random.default_rng(step_seed))
        targets = self._targets[self._train[examples]]
        return [
            Part(chosen.take(np.arange(run.start, run.stop)), targets[run], counts / len(chosen))
            for run, counts in share(chosen.rows, self.row_budget, self._fabric)
        ]

    def losses(self, module: nn.Module, part: Part) -> dict[str, Tensor]:
        batch = pack(self._seqsets, part.chosen, self.module.encoder.config)
        logits = module(Parcel(batch.to(self._fabric.device)))
        return {"loss": loss_sum(logits, part.targets.to(logits.device), self._type) * part.weight}

    def evaluate(self, module: nn.Module) -> tuple[dict[str, float], float]:
        """Return the validation loss and AP; what should fall is the negative AP, or without one the loss.

        What is returned to be told is nothing where so few have the outcome that it would tell how many.
        """
        logits = self._score(module, self._val)
        if not logits.isfinite().all():
            return {}, math.nan
        targets = self._targets[self._val]
        loss = float(loss_sum(logits, targets, self._type)) / len(self._val)
        scores = probabilities(logits, self._type)
        truth = as_truth(targets.numpy(), scores.shape[1], self._type)
        precision = mean_average_precision(truth, scores)
        told = {"val_loss": loss} | ({} if precision is None else {"val_average_precision": precision})
        return told if len(scorable(truth)) else {}, loss if precision is None else -precision

    def where(self, examples: np.ndarray) -> list[ShardRows]:
        """Return the rows of the shards these training examples are read from."""
        return shard_rows(self._seqsets, self._selection.take(self._train[examples]))

    def predict(self, module: nn.Module) -> np.ndarray:
        """Return the probabilities of every row of the labels."""
        return probabilities(self._score(module, np.arange(len(self._labels))), self._type)

    def summary(self) -> dict[str, Any]:
        """Return what the model card tells of the examples: counts, never a row."""
        splits = {
            split: int(np.count_nonzero(self._labels.split == split)) for split in ("train", "val", "test")
        }
        return {f"{split}_rows": rows for split, rows in splits.items()} | {"context_cut": asdict(self._cut)}

    def _score(self, module: nn.Module, examples: np.ndarray) -> Tensor:
        return score(
            module,
            self._seqsets,
            self._selection.take(examples),
            self._fabric,
            row_budget=self.row_budget,
        )


def select_examples(labels: Labels, seqsets: SeqSets, encoder: NestModel) -> tuple[Selection, Cut]:
    """Select each row's history as its task allows, prove it, and cut it to the model's context.

    Raises:
        NestError: a row's features hold something later than its prediction.
    """
    features = labels.task.features
    chosen = select(seqsets, features, labels.subject_id, labels.encounter_id, labels.predict_at_us)
    leaks = leak_count(seqsets, chosen, features, labels.predict_at_us)
    if leaks:
        raise NestError(
            f"{labels.task.cohort}: the features of {leaks:,} of {len(labels):,} rows reach past their "
            "prediction; nothing was trained. This is a bug in the selector: report it."
        )
    config = encoder.config
    return limit_context(chosen, max_sets=config.max_sets, max_set_rows=config.max_set_rows)


def as_truth(targets: np.ndarray, classes: int, label_type: str) -> np.ndarray:
    """Return what is to be learnt as a truth [rows, classes]; of a bool task [rows, 1]."""
    if label_type == "bool":
        return targets[:, None]
    return targets[:, None] == np.arange(classes) if label_type == "class" else targets


def mean_average_precision(truth: np.ndarray, probability: np.ndarray) -> float | None:
    """Return AP, the mean over classes that vary; None: none does."""
    varies = scorable(truth, least=1)
    if not len(varies):
        return None
    return float(average_precision_score(truth[:, varies], probability[:, varies], average="macro"))


def _run_key(trainee: FineTuning, pretrained: Path, recipe: Recipe, seed: int, key: str) -> str:
    digest = hashlib.sha256(checkpoint.weights_sha256(pretrained).encode())
    digest.update(trainee.module.encoder.config.to_json().encode())
    digest.update(json.dumps([recipe.of_the_result(), seed, key]).encode())
    for part in trainee.content():
        digest.update(part)
    return digest.hexdigest()

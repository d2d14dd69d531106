"""A pretraining as its stages, one after the other: each has its own objective, optimiser and early stopping.

A stage starts from the best weights of the one before, and counts on its epochs. Most systems have one stage.
"""

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from nest_model.config import ModelConfig
from nest_model.data.code_groups import CodeGroups
from nest_model.model.encoder import Encoder, encoder_class
from nest_model.recipe import Recipe
from nest_model.systems import systems
from nest_model.training.fsdp import whole_weights
from nest_model.training.guesses.verdicts import WHAT_TO_DO
from nest_model.training.memory import within_memory
from nest_model.training.objectives import objective_of
from nest_model.training.pretraining_data import PretrainingPatients
from nest_model.training.pretraining_task import Pretraining
from nest_model.training.rate_search import train
from nest_model.training.resume import Position
from nest_model.training.runtime import Runtime
from nest_model.training.shared_embedding import fold_embedding, share_embedding
from nest_model.training.state import StateFolder
from schemas.errors import NestError

log = logging.getLogger("nest")


@dataclass(frozen=True)
class TrainedStage:
    """A stage that is over. Its weights and the comparison with guesses are on the first rank alone."""

    name: str
    recipe: Recipe  # with the learning rate it had; its epochs are those of all stages
    position: Position
    encoder_weights: dict[str, Tensor]  # whole, of the best epoch, from which another stage starts
    model_weights: dict[str, Tensor]  # the same with shared embeddings folded in
    validation: dict[str, float]  # of the best epoch
    guess_comparison: dict[str, Any]  # see `Pretraining.compare_with_guesses`
    summary: dict[str, Any]  # see `Pretraining.summary`


@dataclass(frozen=True)
class PretrainingRun:
    """What a pretraining depends on, before any weight is drawn."""

    system: str
    preset: str
    config: ModelConfig
    recipe: Recipe  # its epochs are those of all stages
    seed: int
    patients: PretrainingPatients
    tokens: pa.Table  # the vocabulary

    @property
    def stages(self) -> Mapping[str, float]:
        """The objectives, one for each stage, and their shares of the epochs."""
        return systems()[self.system].stages

    def key(self, of_caller: str = "") -> str:
        """Return a hash of everything a saved state and the run resuming from it must have in common."""
        digest = hashlib.sha256(self.config.to_json().encode())
        settings = [self.system, [*self.stages.items()], self.recipe.result_fields(), self.seed, of_caller]
        digest.update(json.dumps(settings).encode())
        patients = self.patients
        digest.update(patients.seqsets.content_sha256().encode())
        digest.update(patients.train.tobytes() + patients.val.tobytes())
        if patients.leave_out_last_set:
            digest.update(b"without the last filled set")
        return digest.hexdigest()

    def train(self, runtime: Runtime, states: StateFolder) -> "TrainedStages":
        """Train all stages; one whose states show that it is over is not trained again.

        A search of the learning rate is one of the first stage, and the others have its rate.

        Raises:
            NestError: see `fit`.
            Stopped: a stop was requested; the states of this stage and of those before are saved.
        """
        over: list[TrainedStage] = []
        recipe = self.recipe
        for name in self.stages:
            over.append(self._train_stage(name, over, recipe, runtime, states))
            recipe = over[-1].recipe
        return TrainedStages(over)

    def _train_stage(
        self,
        name: str,
        earlier: Sequence[TrainedStage],
        recipe: Recipe,
        runtime: Runtime,
        states: StateFolder,
    ) -> TrainedStage:
        """Train a stage from the best weights of the one before, the first from fresh weights."""
        of_stage = self._search_of(name, recipe.for_share(self.stages[name]))

        def make_task() -> Pretraining:
            encoder = self._encoder()
            if earlier:  # on every rank, before the objective and the sharding see the encoder
                encoder.load_state_dict(runtime.fabric.broadcast(earlier[-1].encoder_weights))
            task = Pretraining(self.patients, encoder, objective_of(name, self.config), of_stage, runtime)
            if len(self.stages) > 1:
                task.stage = f"pretrain by {name}"
            return task

        task = make_task()
        if of_stage.rate_factors and not task.examples.val_patients:
            raise NestError(
                "rate_factors: no validation patient has an event in the context, so nothing can judge a learning "
                "rate; leave it out."
            )
        early_warnings = self._announce(task, name)
        training = train(
            task,
            of_stage,
            runtime,
            make_another=make_task,
            seed=self.seed,
            states=states.of_stage(name),
            cuts_trials=True,
            first_epoch=sum(len(stage.position.history) for stage in earlier),
        )
        task, module, position = training.task, training.module, training.position
        encoder = task.module.model
        recipe = replace(recipe, learning_rate=training.recipe.learning_rate, rate_factors=())
        metrics = within_memory(
            lambda: {**task.evaluate(module)[0], **task.evaluate_last(module)}, task, runtime
        )
        weights = whole_weights(encoder)
        return TrainedStage(
            name,
            recipe,
            position,
            weights,
            fold_embedding(encoder.embedding, weights, "embedding"),
            metrics,
            self._compare(task, metrics, early_warnings) if runtime.fabric.is_global_zero else {},
            task.summary(recipe, self.seed, position) | training.record,
        )

    def _search_of(self, stage: str, recipe: Recipe) -> Recipe:
        """Return the recipe without a search where the objective's loss cannot judge one."""
        if not recipe.rate_factors or objective_of(stage, self.config).compares_trainings:
            return recipe
        log.warning(
            "%s: its loss does not compare trainings, so no learning rate is searched; set learning_rate to take "
            "another.",
            stage,
        )
        return replace(recipe, rate_factors=())

    def _encoder(self) -> Encoder:
        """Return an encoder with fresh weights."""
        torch.manual_seed(self.seed)
        encoder = encoder_class(self.system)(self.config)
        encoder.describe_tokens(self.tokens)
        if self.recipe.shares_embeddings:
            share_embedding(encoder.embedding, CodeGroups.of(self.tokens))
        return encoder

    def _announce(self, task: Pretraining, stage: str) -> list[str]:
        """Log what a stage will learn from; return the warnings about its data."""
        warnings = task.warnings
        _warn(warnings)
        name = self.preset if self.system == "nest" else f"{self.system} {self.preset}"
        if len(self.stages) > 1:
            name += f" by {stage}"
        log.info(
            "pretraining %s (%.2f M weights) on %s", name, task.num_parameters / 1e6, task.context_summary
        )
        return warnings

    def _compare(
        self, task: Pretraining, metrics: Mapping[str, float], early_warnings: Sequence[str]
    ) -> dict[str, Any]:
        """Return a stage's metrics compared with guesses, and log the verdicts that no early warning has said."""
        comparison = task.compare_with_guesses(metrics)
        verdicts = [*comparison["not_judged"], *comparison["not_learnt"]]
        _warn(sentence for sentence in verdicts if sentence not in (*early_warnings, WHAT_TO_DO))
        if WHAT_TO_DO in verdicts:
            log.info("%s", WHAT_TO_DO)  # no warning: in a job the check of the model gives this advice
        return comparison


def _warn(sentences: Iterable[str]) -> None:
    for sentence in sentences:
        log.warning("%s", sentence)


@dataclass(frozen=True)
class TrainedStages:
    """All stages of a pretraining, and what is reported of them together."""

    stages: Sequence[TrainedStage]

    @property
    def model_weights(self) -> dict[str, Tensor]:
        """The weights of the model: the last stage's."""
        return self.stages[-1].model_weights

    @property
    def validation(self) -> dict[str, float]:
        """The metrics at the best epoch of each stage; several have no loss together, as theirs do not add up."""
        metrics = {name: value for stage in self.stages for name, value in stage.validation.items()}
        if len(self.stages) > 1:
            metrics.pop("val_loss", None)  # absent where few patients validate
        return metrics

    @property
    def guess_comparison(self) -> dict[str, Any]:
        """The guesses of each stage, and the verdicts on all; see `Pretraining.compare_with_guesses`."""
        comparisons = [stage.guess_comparison for stage in self.stages]
        return {
            "yardsticks": {name: guess for each in comparisons for name, guess in each["yardsticks"].items()},
            **{
                name: _without_repetition([sentence for each in comparisons for sentence in each[name]])
                for name in ("not_learnt", "not_judged")
            },
        }

    @property
    def history(self) -> list[dict[str, Any]]:
        """The metrics of every epoch."""
        return [epoch for stage in self.stages for epoch in stage.position.history]

    @property
    def summary(self) -> dict[str, Any]:
        """The settings and counts of the run for the model card, of several stages with what is each one's own."""
        summary = self.stages[-1].summary
        if len(self.stages) == 1:
            return summary
        own = {
            stage.name: {name: stage.summary[name] for name in ("epochs", "best_epoch")}
            for stage in self.stages
        }
        search = {name: value for name, value in self.stages[0].summary.items() if name == "trials"}
        return summary | search | {"epochs": len(self.history), "stages": own}


def _without_repetition(sentences: Sequence[str]) -> list[str]:
    """Return each sentence once, where it was last: advice on all verdicts comes after them."""
    return list(dict.fromkeys(reversed(sentences)))[::-1]

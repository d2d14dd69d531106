"""MOTOR's objective: tell when each of many events comes next, by hazards that are constant in pieces of time.

Steinberg et al., MOTOR (ICLR 2024), section 3: piecewise exponential survival times, censored where a record ends.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor

from nest_model.config import ModelConfig
from nest_model.data.code_events import CodeEvents
from nest_model.data.packed import PackedBatch
from nest_model.model.systems.motor.encoder import PIECES, Motor, num_tasks
from nest_model.training.event_times import TimedBatch, holders
from nest_model.training.guesses.constant_hazards import Risk, days_at_risk
from nest_model.training.guesses.verdicts import with_verdicts
from nest_model.training.objective import Objective, PackedPatients
from nest_model.training.pretraining_data import PretrainingExamples
from schemas.errors import NestError
from schemas.nouns import with_noun

log = logging.getLogger("nest")

LEAST_SHARE = 0.01
"""The least share of the training patients that an event must have happened to."""
MOST_FIT_PATIENTS = 4_096
"""About as many training patients, evenly spread, on whom pieces of time and hazards are fitted."""
FIT_SEED = 2024  # of the points of these patients


class TimeToEvent:
    """The times to the events that the training patients' records are most undecided about."""

    compares_trainings = True
    unread_weights: ClassVar[tuple[str, ...]] = ()
    last_evaluation = None

    def __init__(self, config: ModelConfig) -> None:
        self._most_tasks = num_tasks(config)
        self._tasks: CodeEvents | None = None
        self._risk: Risk | None = None

    def target(self, encoder: Motor) -> None:
        """Return nothing: it trains no second network."""

    def after_step(self, encoder: Motor) -> None:
        """Do nothing."""

    @torch.no_grad()
    def fit(self, encoder: Motor, batches: PackedPatients) -> None:
        """Choose the tasks and pieces of time by the training patients, and start at constant hazards.

        A resumed run chooses the same: nothing depends on the run's seed.

        Raises:
            NestError: no event of the vocabulary happened to enough of them, or none follows another day's.
        """
        assert encoder.events is not None, "describe_tokens comes before fit"
        tasks = self._choose(encoder.events, batches)
        self._tasks = encoder.events.select(tasks)
        log.info(
            "motor learns the times of %s%s.",
            with_noun(len(tasks), "event"),
            _other_kinds_words(encoder.events),
        )
        days = [timed_batch.days[timed_batch.is_event].numpy() for timed_batch in self._sample(batches)]
        observed, head = np.concatenate([*days, np.zeros(0)]), encoder.time_to_event
        if len(observed):
            edges = np.quantile(observed, np.arange(1, PIECES) / PIECES)
            head.edges.copy_(torch.from_numpy(edges))
        head.tasks[: len(tasks)] = torch.from_numpy(tasks)
        risk = Risk.none(head.edges.clone(), len(tasks))
        for timed_batch in self._sample(batches):
            risk = risk.add(timed_batch.days, timed_batch.is_event)
        if not risk.events.any():
            raise NestError(
                "motor: no event follows a day of the training patients' records: each has a single set of a single "
                "day, so times to events cannot be learnt; take patients with several sets, or another system."
            )
        self._risk = risk
        head.out.bias[: len(tasks)] = risk.constant_hazards.log()

    def _choose(self, events: CodeEvents, batches: PackedPatients) -> np.ndarray:
        """Return the events with the most entropy among those of enough patients, rising: i64 [tasks]."""
        counts, patients = np.zeros(len(events.names)), 0
        for batch in _each(batches):
            counts += holders(batch, events)
            patients += batch.subjects
        share = counts / max(patients, 1)
        is_common = (share >= LEAST_SHARE) & (counts > 0)
        inner = share.clip(1e-12, 1 - 1e-12)
        entropy = -(inner * np.log(inner) + (1 - inner) * np.log1p(-inner))
        order = np.argsort(np.where(is_common, -entropy, np.inf), kind="stable")
        tasks = np.sort(order[: min(self._most_tasks, int(is_common.sum()))])
        if not len(tasks):
            raise NestError(
                f"motor: no code of the vocabulary happened to {LEAST_SHARE:.0%} of the training patients, so there is "
                "no event whose time could be learnt; take more patients, or another system."
            )
        return tasks

    def _sample(self, batches: PackedPatients) -> Iterator[TimedBatch]:
        """Yield the training patients on whom hazards are fitted, always with the same points."""
        generator = Generator().manual_seed(FIT_SEED)
        stride = math.ceil(len(batches) * batches[0].subjects / MOST_FIT_PATIENTS)
        for batch in _each(batches, stride):
            yield self.corrupt(batch, generator)

    def start_at_shares(self, encoder: Motor, examples: PretrainingExamples) -> None:
        """Leave the encoder as it is: under every recipe `fit` has started its head at a constant guess."""

    def corrupt(self, batch: PackedBatch, generator: Generator) -> TimedBatch:
        """Draw points and find what follows them; the batch itself stays as it is, since no row sees what follows."""
        assert self._tasks is not None, "fit comes before corrupt"
        return TimedBatch.of(batch, self._tasks, generator)

    def counts(self, timed_batch: TimedBatch) -> dict[str, int]:
        """Return the number of times told, one for each point and task."""
        return {"tte": timed_batch.days.numel()}

    def losses(self, encoder: Motor, timed_batch: TimedBatch, counts: Mapping[str, int]) -> dict[str, Tensor]:
        """Return the mean over points and tasks; see Objective."""
        loss = self._sum(encoder, timed_batch) / max(counts["tte"], 1)
        return {"loss": loss, "tte": loss.detach()}

    def scores(self, encoder: Motor, timed_batch: TimedBatch) -> dict[str, float]:
        """Return the sum over points and tasks."""
        return {"tte": float(self._sum(encoder, timed_batch))}

    def metrics(self, sums: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, float]:
        """Return the mean over points and tasks."""
        loss = sums["tte"] / max(counts["tte"], 1)
        return {"val_loss": loss, "val_tte": loss}

    def warnings(self, examples: PretrainingExamples) -> list[str]:
        """Return nothing: `fit` refuses patients of whom nothing can be learnt."""
        return []

    def compare_with_guesses(
        self, validation: Mapping[str, float], examples: PretrainingExamples
    ) -> dict[str, Any]:
        """Return the losses of constant hazards, the same for everybody, and the verdicts; see Objective."""
        assert self._risk is not None, "fit comes before any guess"
        train, val = self._risk, Risk.none(self._risk.edges, self._risk.events.shape[1])
        for timed_batch in examples.corrupted_batches(examples.val, self.corrupt):
            val = val.add(timed_batch.days, timed_batch.is_event)
        guesses = {
            "constant": val.mean_loss(train.hazards),
            "one_hazard": val.mean_loss(train.constant_hazards.expand(PIECES, -1)),
        }
        yardsticks = {"val_tte": guesses} if val.guesses else {}
        return with_verdicts(
            validation, yardsticks, weights={"val_tte": 1.0}, val_patients=examples.val_patients
        )

    def _sum(self, encoder: Motor, timed_batch: TimedBatch) -> Tensor:
        read = encoder.read(timed_batch.batch, timed_batch.rows)
        log_hazards: Tensor = encoder.time_to_event(read.hidden_states)
        log_hazards = log_hazards.index_select(0, read.place)[..., : timed_batch.days.shape[1]]
        return time_to_event_loss(
            log_hazards, timed_batch.days, timed_batch.is_event, encoder.time_to_event.edges
        )


def time_to_event_loss(log_hazards: Tensor, days: Tensor, is_event: Tensor, edges: Tensor) -> Tensor:
    """Return the sum of Σ e^z u - δ z over points, tasks and pieces: the negative log likelihood of the times.

    u are the days at risk in a piece, δ whether the event is in it, z the log of its hazard per day.

    Args:
        log_hazards: [points, pieces, tasks].
        days: [points, tasks], until the event or the end of the record.
        is_event: bool [points, tasks].
        edges: [pieces - 1], in days, rising.
    """
    days, edges = days.to(log_hazards.dtype), edges.to(log_hazards.dtype)
    expected = (log_hazards.exp() * days_at_risk(days, edges)).sum()
    at_event = log_hazards.gather(1, torch.bucketize(days, edges)[:, None]).squeeze(1)
    return expected - (at_event * is_event).sum()


def _other_kinds_words(events: CodeEvents) -> str:
    """Return which kinds of the vocabulary are read, but have no events whose time is learnt."""
    return f", and reads other kinds alone: {', '.join(events.other_kinds)}" if events.other_kinds else ""


def _each(batches: PackedPatients, stride: int = 1) -> Iterator[PackedBatch]:
    return (batches[place] for place in range(0, len(batches), stride))


OBJECTIVE: type[Objective] = TimeToEvent

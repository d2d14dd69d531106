"""The suspects of a cohort and their inflation: from code lists, the data, event times and prediction times."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from nest_model.audit.code_lists import CODE_LISTS, OutcomeCodes, token_ids
from nest_model.audit.columns import Columns, columns_of
from nest_model.audit.inflation import AurocEstimator, inflation, measure, scorable_classes
from nest_model.audit.known_later import (
    early_kinds,
    examples_with,
    is_index_event,
    is_known_later,
    kinds_dated_by_day,
    late_predictions,
    outcome_times_us,
    without_events,
)
from nest_model.audit.nested_counts import NestedCounts
from nest_model.audit.tell_tales import TellTale, tell_tales
from nest_model.data.history import select
from nest_model.data.labels import Labels
from nest_model.data.predictions import Predictions, classes_of
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.metrics import Score
from schemas.cohort import Cohort, Died, IndexDaysLeft, IndexDied, IndexLongerThan
from schemas.cohort.look_ahead import look_aheads
from schemas.nouns import with_capital, with_noun
from schemas.suppress import WITHHELD
from schemas.tables.leak_audit import THRESHOLD, LeakAudit, Proof, Suspect
from schemas.tables.vocab import SPECIAL_KIND

MOST_ROWS = 20_000
"""Most predictions the suspects are scored on; of more, those of randomly drawn patients."""

UNCOUNTED = "–"
"""In place of the predictions with any suspect: with those of each, the number of those with several is known."""

MOST_NAMED = 12
"""How many of the features found in the data are listed, the most telling ones."""


@dataclass(frozen=True)
class Suspects:
    """The predictions that suspects are scored on, without test rows, and the models' input for each."""

    seqsets: SeqSets
    labels: Labels  # of these predictions only
    outcome_us: np.ndarray  # time of each outcome
    is_drawn: bool  # a sample of the cohort's predictions
    tokens: tuple[str, ...]  # by id
    kinds: tuple[str, ...]  # of the tokens
    is_stay_outcome: bool  # in the index stay, certainly or perhaps, and predicted before its end
    looks_ahead: tuple[str, ...]
    selection: Selection
    scores: dict[frozenset[int], Score]  # by left-out features, a cache
    counts: NestedCounts

    @classmethod
    def of(
        cls,
        seqsets: SeqSets,
        labels: Labels,
        tokens: pa.Table,
        cohort: Cohort | None,
        path: Path,
    ) -> Self:
        """Gather the data in which suspects are sought; `tokens` are in the order of their ids."""
        task, rows = labels.task, _sample_rows(labels)
        sample = labels.take(rows)
        selection = select(
            seqsets, task.features, sample.subject_id, sample.encounter_id, sample.predict_at_us
        )
        outcome = cohort.outcome if cohort else None
        may_be_in_stay = isinstance(outcome, IndexDaysLeft | IndexDied | IndexLongerThan | Died)
        in_stay = may_be_in_stay and task.predict_anchor == "index.start"
        return cls(
            seqsets,
            sample,
            outcome_times_us(path, task)[rows],
            len(rows) < int(np.count_nonzero(labels.split != "test")),
            tuple(tokens["token"].to_pylist()),
            tuple(tokens["kind"].to_pylist()),
            in_stay,
            tuple(f"{name}: {reason}." for name, reason in (look_aheads(cohort) if cohort else {}).items()),
            selection,
            {},
            NestedCounts(sample.subject_id, is_total_shown=sample.shown_rows("train", "val") != WITHHELD),
        )

    def audit(self, proofs: list[Proof]) -> LeakAudit:
        """Return the audit with all suspects."""
        suspects = [
            *self.from_code_lists(),
            *self.from_event_times(),
            *self.from_prediction_times(),
            *self.from_data(),
        ]
        combination = self.all_combined()
        return LeakAudit(
            cohort=self.labels.task.cohort,
            judged=self.sample_description(),
            proofs=proofs,
            looks_ahead=list(self.looks_ahead),
            suspects=[*suspects, *([combination] if combination else [])],
            unseen=[codes.name for codes in self._code_lists if not self._has_tokens(self._ids(codes)).any()],
            kinds=list(self.by_kind()),
            unnamed=max(0, len(self._tell_tales) - MOST_NAMED),
        )

    @cached_property
    def classes(self) -> np.ndarray:
        """Return the columns of the truth that are scored."""
        return scorable_classes(self._truth)

    @cached_property
    def estimator(self) -> AurocEstimator:
        names = [classes_of(self.labels.task)[k] for k in self.classes]
        return AurocEstimator(
            Predictions(
                task=self.labels.task,
                classes=tuple(names),
                model="audit",
                subject_id=self.labels.subject_id,
                encounter_id=self.labels.encounter_id,
                split=self.labels.split,
                truth=self._truth[:, self.classes],
                probability=np.zeros((len(self.labels), len(names))),
            )
        )

    @cached_property
    def _truth(self) -> np.ndarray:
        return self.labels.truth(classes_of(self.labels.task))

    @cached_property
    def columns(self) -> Columns:
        return columns_of(self.seqsets, self.selection, self.tokens, self.kinds)

    @cached_property
    def full_score(self) -> Score:
        """Return the score with the models' full input."""
        return self.estimator.auroc(self.columns.matrix)

    def from_code_lists(self) -> Iterator[Suspect]:
        """Yield the code lists, revealing how a stay ends, that occur in the input."""
        for codes, is_present in self._present_lists:
            features = self.columns.token_features(self._ids(codes))
            yield self._without_other_suspects(codes.name, codes.reason, is_present, features, is_listed=True)

    def from_data(self) -> Iterator[Suspect]:
        """Yield the features that reveal the outcome by themselves, the most telling first."""
        for tell_tale in self._tell_tales[:MOST_NAMED]:
            is_bool = self.labels.task.label_type == "bool"
            of_class = "" if is_bool else f" ({self.estimator.rows.classes[tell_tale.label]})"
            reason = f"found in the data: {tell_tale.reason}{of_class}"
            name, features = (
                self.columns.names[tell_tale.feature],
                self.columns.related_features(tell_tale.feature),
            )
            yield self._without_other_suspects(
                name, reason, self._has_features(np.array([tell_tale.feature])), features
            )

    def from_event_times(self) -> Iterator[Suspect]:
        """Yield the kinds with events visible before they were known, and the kinds dated by the day only."""
        early = is_known_later(self.seqsets, self.selection, self.labels.predict_at_us)
        for kind, events in early_kinds(self.seqsets, self.selection, early):
            reduced_selection = without_events(self.selection, events)
            score = self.estimator.auroc(
                columns_of(self.seqsets, reduced_selection, self.tokens, self.kinds).matrix
            )
            yield self._suspect(
                f"{kind} seen before they were known",
                "the rule selects events by when they happened, and these could be known only after the prediction",
                examples_with(self.selection, events),
                self.full_score,
                score,
            )
        for kind in kinds_dated_by_day(self.seqsets, self.selection) if self.is_stay_outcome else ():
            reason = "they have no time of day: events from later that day, or recorded later, appear earlier"
            yield self._kind_suspect(kind, reason)

    def from_prediction_times(self) -> Iterator[Suspect]:
        """Yield the predictions that are made too late."""
        for name, reason, rows in late_predictions(
            self.seqsets, self.labels, self.outcome_us, is_stay_outcome=self.is_stay_outcome
        ):
            if rows.any():
                remaining = self._full_predictions.rows(~rows)
                yield self._suspect(name, reason, rows, self.full_score, self.estimator.auroc_of(remaining))

    def by_kind(self) -> Iterator[Suspect]:
        """Yield each kind of event of the index stay as a whole."""
        for kind in dict.fromkeys(kind for kind in self.columns.kinds if kind != SPECIAL_KIND):
            if self._has_tokens(self.columns.tokens_of_kind(kind)).any():
                yield self._kind_suspect(kind, "")

    def all_combined(self) -> Suspect | None:
        """Return one suspect for all suspect features, left out together; None under two."""
        if len(self._present_lists) + len(self._tell_tales) < 2:
            return None
        name = "All of these codes and features together"
        return self._without_other_suspects(name, "", None, self._suspect_features)

    def sample_description(self) -> str:
        """Return a sentence on the predictions that suspects are scored on."""
        noun = "sampled prediction" if self.is_drawn else "prediction"
        predictions = with_noun(self.labels.shown_rows("train", "val"), noun)
        return (
            f"{with_capital(predictions)} of training and validation patients, each by a light model "
            "fitted on other patients; the test split is not used."
        )

    @cached_property
    def _tell_tales(self) -> list[TellTale]:
        """Return the telling features; a token's coming first or last is left out if its presence tells already."""
        tales = tell_tales(self.columns, self.estimator.rows.truth, self.estimator.rows.subject_id)
        places = np.array([tell_tale.feature for tell_tale in tales], dtype=np.int64)
        tokens = places[places < self.columns.vocab_size]
        implied_features = np.setdiff1d(self.columns.token_features(tokens), tokens)
        return [tell_tale for tell_tale in tales if tell_tale.feature not in implied_features]

    @cached_property
    def _present_lists(self) -> list[tuple[OutcomeCodes, np.ndarray]]:
        """Return the code lists that occur in the input, with a mask of the predictions they occur in."""
        codes_and_rows = [(codes, self._has_tokens(self._ids(codes))) for codes in self._code_lists]
        return [(codes, is_present) for codes, is_present in codes_and_rows if is_present.any()]

    @cached_property
    def _suspect_features(self) -> np.ndarray:
        """Return every suspect feature, from code lists or from the data."""
        list_features = [self.columns.token_features(self._ids(codes)) for codes, _ in self._present_lists]
        data_features = [self.columns.related_features(tell_tale.feature) for tell_tale in self._tell_tales]
        return np.unique(np.concatenate([*list_features, *data_features, np.empty(0, dtype=np.int64)]))

    @cached_property
    def _full_predictions(self) -> Predictions:
        return self.estimator.predictions(self.columns.matrix)

    @property
    def _code_lists(self) -> tuple[OutcomeCodes, ...]:
        """Return the code lists to look for: all for an outcome of the index stay, else none."""
        return CODE_LISTS if self.is_stay_outcome else ()

    def _ids(self, codes: OutcomeCodes) -> np.ndarray:
        return token_ids(codes, self.tokens)

    def _has_tokens(self, ids: np.ndarray) -> np.ndarray:
        """Return bool [predictions]: whether the index stay has one of these tokens."""
        is_token = np.zeros(len(self.tokens), dtype=bool)
        is_token[ids] = True
        is_token_event = is_token[self.selection.values(self.seqsets.tokens)] & self._in_index
        return examples_with(self.selection, is_token_event)

    @cached_property
    def _in_index(self) -> np.ndarray:
        return is_index_event(self.selection)

    def _has_features(self, features: np.ndarray) -> np.ndarray:
        """Return bool [predictions]: whether a prediction has one of these features."""
        return self.columns.rows_with(self.columns.columns_of_features(features))

    def _kind_suspect(self, kind: str, reason: str) -> Suspect:
        is_present = self._has_tokens(self.columns.tokens_of_kind(kind))
        score_without = self._auroc_without(self.columns.kind_features(kind))
        return self._suspect(f"{kind} of the index stay", reason, is_present, self.full_score, score_without)

    def _without_other_suspects(
        self,
        name: str,
        reason: str,
        is_present: np.ndarray | None,
        features: np.ndarray,
        *,
        is_listed: bool = False,
    ) -> Suspect:
        """Return the inflation by features in a model without the other suspects, which could replace them."""
        features = self.columns.twins(features)
        score_without = self._auroc_without(np.union1d(self._suspect_features, features))
        score_with = self._auroc_without(np.setdiff1d(self._suspect_features, features))
        return self._suspect(name, reason, is_present, score_with, score_without, is_listed=is_listed)

    def _auroc_without(self, features: np.ndarray) -> Score:
        left_out = frozenset(features.tolist())
        if left_out not in self.scores:
            self.scores[left_out] = self.estimator.auroc(self.columns.without(features))
        return self.scores[left_out]

    def _suspect(
        self,
        name: str,
        reason: str,
        is_present: np.ndarray | None,
        score_with: Score,
        score_without: Score,
        *,
        is_listed: bool = False,
    ) -> Suspect:
        difference = inflation(score_with, score_without)
        verdict, inflates = _verdict(difference)
        if is_listed:
            verdict = f"seen before the prediction; {verdict}"
        return Suspect(
            name=name,
            why=reason,
            predictions=UNCOUNTED if is_present is None else self.counts.text(is_present),
            auroc_with=measure(score_with),
            auroc_without=measure(score_without),
            inflation=measure(difference),
            verdict=verdict,
            warns=bool(reason) and (inflates or is_listed),
        )


def _verdict(difference: Score) -> tuple[str, bool]:
    """Return a verdict in words, and whether the whole interval lies above the threshold."""
    interval = difference.interval()
    if difference.value is None:
        return f"not measured: {difference.note}", False
    if interval is None:
        return "too few patients to measure it", False
    if interval[0] > THRESHOLD:
        return f"raises the AUROC by more than {THRESHOLD:g}", True
    if interval[1] < THRESHOLD:
        return f"raises the AUROC by less than {THRESHOLD:g}", False
    return "too few patients to tell", False


def _sample_rows(labels: Labels) -> np.ndarray:
    """Return the training and validation rows, or those of randomly drawn patients with at most `MOST_ROWS`."""
    rows = np.flatnonzero(labels.split != "test")
    if len(rows) <= MOST_ROWS:
        return rows
    subjects, place, count = np.unique(labels.subject_id[rows], return_inverse=True, return_counts=True)
    order = np.random.default_rng(0).permutation(len(subjects))
    sample = order[np.cumsum(count[order]) <= MOST_ROWS]
    return rows[np.isin(place, sample)]

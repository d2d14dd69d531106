"""The suspects of a cohort, each with what it is worth: by list, by the data, by the clock, by when one predicts."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from nest_model.audit.code_lists import CODE_LISTS, CodeList, tokens_of
from nest_model.audit.columns import Columns, columns_of
from nest_model.audit.inflation import Judge, inflation, judged_classes, measure
from nest_model.audit.known_later import (
    dated_by_day,
    early_kinds,
    examples_of,
    of_index,
    outcome_times_us,
    seen_early,
    too_late,
    without_events,
)
from nest_model.audit.tell_tales import TellTale, tell_tales
from nest_model.data.history import select
from nest_model.data.labels import Labels
from nest_model.data.predictions import Predictions, classes_of
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.metrics import Score
from schemas.cohort import Cohort, IndexDied, IndexLongerThan
from schemas.cohort.look_ahead import look_aheads
from schemas.suppress import shown_count
from schemas.tables.leak_audit import THRESHOLD, LeakAudit, Proof, Suspect
from schemas.tables.vocab import SPECIAL_KIND

MOST_ROWS = 20_000
"""So many predictions are judged; of more, those of patients drawn."""

MOST_NAMED = 12
"""So many of the features found in the data are listed, the most telling ones."""


@dataclass(frozen=True)
class Suspects:
    """The predictions suspects are judged on, no test row among them, and what is seen of each."""

    seqsets: SeqSets
    labels: Labels  # of these predictions alone
    outcome_us: np.ndarray  # when each outcome came
    is_drawn: bool  # the cohort has more of them
    tokens: tuple[str, ...]  # by id
    kinds: tuple[str, ...]  # of the tokens
    of_the_stay: bool  # the outcome is of the index stay, and predicted before its end
    looks_ahead: tuple[str, ...]
    selection: Selection
    scores: dict[frozenset[int], Score]  # without some features, so that none is taken twice

    @classmethod
    def of(
        cls,
        seqsets: SeqSets,
        labels: Labels,
        tokens: pa.Table,
        cohort: Cohort | None,
        path: Path,
    ) -> Self:
        """Gather what the suspects of a cohort are looked for in; `tokens` in the order of their ids."""
        task, rows = labels.task, _judged(labels)
        judged = labels.take(rows)
        selection = select(
            seqsets, task.features, judged.subject_id, judged.encounter_id, judged.predict_at_us
        )
        outcome = cohort.outcome if cohort else None
        in_stay = isinstance(outcome, IndexDied | IndexLongerThan) and task.predict_anchor == "index.start"
        return cls(
            seqsets,
            judged,
            outcome_times_us(path, task)[rows],
            len(rows) < np.count_nonzero(labels.split != "test"),
            tuple(tokens["token"].to_pylist()),
            tuple(tokens["kind"].to_pylist()),
            in_stay,
            tuple(f"{name}: {why}." for name, why in (look_aheads(cohort) if cohort else {}).items()),
            selection,
            {},
        )

    def audit(self, proved: list[Proof]) -> LeakAudit:
        """Return all that is found."""
        suspects = [*self.by_list(), *self.by_clock(), *self.by_moment(), *self.by_data()]
        together = self.together()
        return LeakAudit(
            cohort=self.labels.task.cohort,
            judged=self.words(),
            proofs=proved,
            looks_ahead=list(self.looks_ahead),
            suspects=[*suspects, *([together] if together else [])],
            unseen=[codes.name for codes in self._lists if not self._hold(self._ids(codes)).any()],
            kinds=list(self.by_kind()),
            unnamed=max(0, len(self._tell_tales) - MOST_NAMED),
        )

    @cached_property
    def classes(self) -> np.ndarray:
        """The columns of the truth that are judged."""
        return judged_classes(self._truth)

    @cached_property
    def judge(self) -> Judge:
        names = [classes_of(self.labels.task)[k] for k in self.classes]
        return Judge(
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
    def with_all(self) -> Score:
        """The score with everything the models see."""
        return self.judge.auroc(self.columns.matrix)

    def by_list(self) -> Iterator[Suspect]:
        """Yield the lists of codes that tell how a stay ends and that are seen."""
        for codes, seen in self._seen_lists:
            features = self.columns.of_tokens(self._ids(codes))
            yield self._beside_no_other(codes.name, codes.why, seen, features, is_listed=True)

    def by_data(self) -> Iterator[Suspect]:
        """Yield the features that tell the outcome by themselves, the most telling ones."""
        for one in self._tell_tales[:MOST_NAMED]:
            is_bool = self.labels.task.label_type == "bool"
            of_class = "" if is_bool else f" ({self.judge.rows.classes[one.label]})"
            why = f"found in the data: {one.how}{of_class}"
            name, features = self.columns.names[one.feature], self.columns.made_of(one.feature)
            yield self._beside_no_other(name, why, self._has(np.array([one.feature])), features)

    def by_clock(self) -> Iterator[Suspect]:
        """Yield what is seen before it was known, kind by kind, and what is dated by the day alone."""
        early = seen_early(self.seqsets, self.selection, self.labels.predict_at_us)
        for kind, events in early_kinds(self.seqsets, self.selection, early):
            without = without_events(self.selection, events)
            score = self.judge.auroc(columns_of(self.seqsets, without, self.tokens, self.kinds).matrix)
            yield self._suspect(
                f"{kind} seen before they were known",
                "the rule cuts by when an event happened, and these could be known only after the prediction",
                examples_of(self.selection, events),
                self.with_all,
                score,
            )
        for kind in dated_by_day(self.seqsets, self.selection) if self.of_the_stay else ():
            why = "they have a day and no hour: what happened later that day, or was written later, looks earlier"
            yield self._of_kind(kind, why)

    def by_moment(self) -> Iterator[Suspect]:
        """Yield the predictions that come too late to be any."""
        for name, why, rows in too_late(
            self.seqsets, self.labels, self.outcome_us, of_the_stay=self.of_the_stay
        ):
            if rows.any():
                rest = self._everything.rows(~rows)
                yield self._suspect(name, why, rows, self.with_all, self.judge.auroc_of(rest))

    def by_kind(self) -> Iterator[Suspect]:
        """Yield each kind of event of the index stay as a whole."""
        for kind in dict.fromkeys(kind for kind in self.columns.kinds if kind != SPECIAL_KIND):
            if self._hold(self.columns.tokens_of_kind(kind)).any():
                yield self._of_kind(kind, "")

    def together(self) -> Suspect | None:
        """Return all suspects that are features, left out at once."""
        if len(self._seen_lists) + len(self._tell_tales) < 2:
            return None
        name = "All of these codes and features together"
        return self._beside_no_other(name, "", self._has(self._suspected), self._suspected)

    def words(self) -> str:
        """Return on whom suspects are judged, in words."""
        note = " drawn" if self.is_drawn else ""
        return (
            f"{shown_count(len(self.labels))} predictions{note} of training and validation patients, each by a light "
            "model of other patients; the test split is not looked at."
        )

    @cached_property
    def _tell_tales(self) -> list[TellTale]:
        """The telling features; not which token comes first or last where that it is there tells already."""
        tales = tell_tales(self.columns, self.judge.rows.truth, self.judge.rows.subject_id)
        places = np.array([one.feature for one in tales], dtype=np.int64)
        tokens = places[places < self.columns.vocab_size]
        implied = np.setdiff1d(self.columns.of_tokens(tokens), tokens)
        return [one for one in tales if one.feature not in implied]

    @cached_property
    def _seen_lists(self) -> list[tuple[CodeList, np.ndarray]]:
        """The lists of codes that are seen, and in which predictions."""
        codes_and_rows = [(codes, self._hold(self._ids(codes))) for codes in self._lists]
        return [(codes, seen) for codes, seen in codes_and_rows if seen.any()]

    @cached_property
    def _suspected(self) -> np.ndarray:
        """Every feature that is suspected, by list or by the data."""
        listed = [self.columns.of_tokens(self._ids(codes)) for codes, _ in self._seen_lists]
        telling = [self.columns.made_of(one.feature) for one in self._tell_tales]
        return np.unique(np.concatenate([*listed, *telling, np.empty(0, dtype=np.int64)]))

    @cached_property
    def _everything(self) -> Predictions:
        return self.judge.predictions(self.columns.matrix)

    @property
    def _lists(self) -> tuple[CodeList, ...]:
        """The lists of codes that may tell the outcome: those of the stay, where it is the stay's."""
        return CODE_LISTS if self.of_the_stay else ()

    def _ids(self, codes: CodeList) -> np.ndarray:
        return tokens_of(codes, self.tokens)

    def _hold(self, ids: np.ndarray) -> np.ndarray:
        """Return bool [predictions]: whose index stay shows one of these tokens."""
        is_one = np.zeros(len(self.tokens), dtype=bool)
        is_one[ids] = True
        shown = is_one[self.selection.values(self.seqsets.tokens)] & self._in_index
        return examples_of(self.selection, shown)

    @cached_property
    def _in_index(self) -> np.ndarray:
        return of_index(self.selection)

    def _has(self, features: np.ndarray) -> np.ndarray:
        """Return bool [predictions]: which have one of these features."""
        return self.columns.holding(self.columns.of(features))

    def _of_kind(self, kind: str, why: str) -> Suspect:
        seen = self._hold(self.columns.tokens_of_kind(kind))
        without = self._auroc_without(self.columns.of_kind(kind))
        return self._suspect(f"{kind} of the index stay", why, seen, self.with_all, without)

    def _beside_no_other(
        self, name: str, why: str, seen: np.ndarray, features: np.ndarray, *, is_listed: bool = False
    ) -> Suspect:
        """Return what features add to a model that sees no other suspect: a twin would make up for them."""
        features = self.columns.twins(features)
        without = self._auroc_without(np.union1d(self._suspected, features))
        with_it = self._auroc_without(np.setdiff1d(self._suspected, features))
        return self._suspect(name, why, seen, with_it, without, is_listed=is_listed)

    def _auroc_without(self, features: np.ndarray) -> Score:
        left_out = frozenset(features.tolist())
        if left_out not in self.scores:
            self.scores[left_out] = self.judge.auroc(self.columns.without(features))
        return self.scores[left_out]

    def _suspect(
        self,
        name: str,
        why: str,
        seen: np.ndarray,
        with_it: Score,
        without: Score,
        *,
        is_listed: bool = False,
    ) -> Suspect:
        difference = inflation(with_it, without)
        verdict, inflates = _verdict(difference)
        if is_listed:
            verdict = f"seen before the prediction; {verdict}"
        return Suspect(
            name=name,
            why=why,
            predictions=shown_count(int(seen.sum()), len(seen)),
            auroc_with=measure(with_it),
            auroc_without=measure(without),
            inflation=measure(difference),
            verdict=verdict,
            warns=bool(why) and (inflates or is_listed),
        )


def _verdict(difference: Score) -> tuple[str, bool]:
    """Return what an inflation says, and whether its whole interval lies above the threshold."""
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


def _judged(labels: Labels) -> np.ndarray:
    """Return the training and validation rows, or those of as many patients as have `MOST_ROWS`."""
    rows = np.flatnonzero(labels.split != "test")
    if len(rows) <= MOST_ROWS:
        return rows
    subjects, place, count = np.unique(labels.subject_id[rows], return_inverse=True, return_counts=True)
    order = np.random.default_rng(0).permutation(len(subjects))
    sample = order[np.cumsum(count[order]) <= MOST_ROWS]
    return rows[np.isin(place, sample)]

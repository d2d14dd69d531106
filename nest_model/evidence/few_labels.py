"""The curve over labels: how many labelled patients each share is, and from how many on a model beats counting."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nest_model.audit.nested_counts import NestedCounts
from nest_model.data.labels import Labels
from nest_model.evidence.rows import REFERENCE, EvidenceRow
from schemas.nouns import with_noun
from schemas.suppress import WITHHELD, suppress_count

PART = "labels"
FROZEN_TITLE = "NEST, frozen"


def points_of_curve(rows: Sequence[EvidenceRow]) -> list[EvidenceRow]:
    """Return the rows of the curve, those with all labels last; none if no row has fewer."""
    shares = [row for row in rows if row.part == PART]
    wholes = {row.whole for row in shares}
    return [*shares, *(row for row in rows if row.name in wholes)]


def trees_beside(rows: Sequence[EvidenceRow]) -> dict[str, str]:
    """Return for each encoder of the curve the boosted trees that learn from as many labels."""
    points = points_of_curve(rows)
    trees = {row.labelled_share: row.name for row in points if row.system is None}
    return {
        row.name: trees[row.labelled_share]
        for row in points
        if row.system is not None and row.labelled_share in trees
    }


def labelled_counts(
    labels: Labels, patients_of_share: Mapping[float, np.ndarray], texts_of_all: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return how many training patients and rows have a label at each share, as they may be shown; all come last.

    Args:
        patients_of_share: the training patients of each share under 1.
        texts_of_all: what the page shows of a cohort's counts, see `label_counts`.
    """
    train = labels.subject_id[labels.split == "train"]
    patients = np.unique(train)
    keys = {"patients": "subjects_train", "rows": "rows_train"}
    members = {"patients": patients, "rows": train}
    counts = {
        name: NestedCounts(subject_id, is_total_shown=texts_of_all.get(keys[name]) != WITHHELD)
        for name, subject_id in members.items()
    }
    lines: list[dict[str, Any]] = []
    for share, subjects in sorted(patients_of_share.items()):
        line = {
            name: nested.text(np.isin(members[name], subjects)) if len(subjects) else "0"
            for name, nested in counts.items()
        }
        lines.append({"share": share} | line)
    of_all = {name: texts_of_all.get(key, suppress_count(len(members[name]))) for name, key in keys.items()}
    return [*lines, {"share": 1.0} | of_all]


@dataclass(frozen=True)
class Point:
    """One model of a task at one share of the labels: its scores, and their differences to the trees'."""

    share: float
    title: str
    scores: Mapping[str, Any]
    less_trees: Mapping[str, Any] | None  # None: of the trees themselves, or without them


def points(metrics: Mapping[str, Any], task: Mapping[str, Any]) -> list[Point]:
    """Return the points of a task's curve, share by share; empty without a cell of fewer labels."""
    rows = {row["name"]: row for row in metrics["rows"]}
    shares = {
        name: (row["whole"], row["share"])
        for name, row in rows.items()
        if row["part"] == PART and row["whole"] in rows
    }
    if not any(name in task["cells"] for name in shares):
        return []
    shares |= {whole: (whole, 1.0) for whole, _ in list(shares.values())}
    return [
        Point(share, title, scores, scores.get("less_trees"))
        for name, (whole, share) in sorted(shares.items(), key=lambda item: item[1][1])
        if name in task["cells"]
        for title, scores in scores_by_title(task["cells"][name], rows[whole]).items()
    ]


def scores_by_title(cell: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the scores that a cell adds to a curve over shares: its own, and of NEST its frozen encoder's.

    Args:
        whole: the row with all labels, or patients.
    """
    frozen = {FROZEN_TITLE: cell["frozen"]} if whole["name"] == REFERENCE and "frozen" in cell else {}
    return {whole["title"]: cell} | frozen


def labelled_at(task: Mapping[str, Any], share: float) -> Mapping[str, str]:
    """Return the counts of labelled patients and rows at a share; empty where they are not known."""
    return next((line for line in task.get("labelled", ()) if line["share"] == share), {})


def patients_words(task: Mapping[str, Any], share: float) -> str:
    """Return the number of labelled patients at a share in words."""
    text = labelled_at(task, share).get("patients", WITHHELD)
    if text == WITHHELD:
        return f"{share:.0%} of the labelled patients"
    return with_noun(text.replace("<", "under").replace(">", "over"), "labelled patient")


def sentence(metrics: Mapping[str, Any], task: Mapping[str, Any], metric: str, words: str) -> str | None:
    """Return from how many labelled patients on each model beats the trees; None where no difference has a value.

    A model beats them from a share on if it does so at every larger share too.

    Args:
        metric: the differences' key, called `words`.
    """
    by_title: dict[str, list[Point]] = {}
    for point in points(metrics, task):
        if point.less_trees and point.less_trees[metric]["value"] is not None:
            by_title.setdefault(point.title, []).append(point)
    if not by_title:
        return None
    clauses = [
        f"{'that' if place else f'the {words}'} of {f'{title},' if ',' in title else title} is "
        f"{_clause(of_title, task, metric)}"
        for place, (title, of_title) in enumerate(by_title.items())
    ]
    return f"{task['title']}: {'; '.join(clauses)}."


def _clause(of_title: Sequence[Point], task: Mapping[str, Any], metric: str) -> str:
    def first(limit: str) -> int | None:
        return _first_of_all_after(of_title, lambda point: _is_above(point, metric, limit))

    def since(place: int) -> str:
        words = patients_words(task, of_title[place].share)
        return f"from {words} on" if place < len(of_title) - 1 else f"only with {words}"

    first_above, first_surely_above = first("value"), first("low")
    last = of_title[-1].share
    most = "all labels" if last == 1 else patients_words(task, last)
    if first_above is None:
        return f"not above LightGBM's, even with {most}"
    if first_surely_above is None:
        return f"above LightGBM's {since(first_above)}, but not surely, even with {most}"
    surely = "so" if first_surely_above == first_above else since(first_surely_above)
    return f"above LightGBM's {since(first_above)}, and surely {surely}"


def _is_above(point: Point, metric: str, limit: str) -> bool:
    assert point.less_trees is not None
    value = point.less_trees[metric][limit]
    return value is not None and value > 0


def _first_of_all_after(of_title: Sequence[Point], holds: Callable[[Point], bool]) -> int | None:
    """Return the first place from which on all points fulfil a condition; None if the last does not."""
    place = len(of_title)
    while place and holds(of_title[place - 1]):
        place -= 1
    return place if place < len(of_title) else None

"""Scores of binary tasks by sex, age, race and insurance, and the gaps between groups."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from nest_model.data.labels import Labels
from nest_model.data.predictions import Predictions, classes_of, patients_of
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import Score, combine, missing, score
from schemas.contract import read_table
from schemas.suppress import SMALLEST_SHOWN, WITHHELD, is_small, names_to_withhold
from schemas.tables.events import ENCOUNTERS, SPLITS, SUBJECTS

METRICS = ("auroc", "average_precision")

LEAST_POSITIVES = 20
"""Fewest patients with the outcome; with fewer a group's score is mostly chance."""

TOO_FEW = f"withheld: under {LEAST_POSITIVES} patients with the outcome, or under {SMALLEST_SHOWN} without"

BESIDE_FEW = "withheld: too few patients in this group, or in one it is hidden with"

GROUPED = ("Sex", "Race")
"""The attributes whose groups the table of characteristics counts."""
COUNTED = (*GROUPED, "Age")
"""The attributes of which it counts a group: of the ages those that are not known."""

NOT_KNOWN = "not known"
_VAGUE = (NOT_KNOWN, "other")

_AGES = (
    (1, "under 1"),
    (5, "1–4"),
    (12, "5–11"),
    (18, "12–17"),
    (45, "18–44"),
    (65, "45–64"),
    (80, "65–79"),
    (float("inf"), "80 and over"),
)
_RACES = (  # by how MIMIC-IV's 33 values start
    ("WHITE", "White"),
    ("BLACK", "Black"),
    ("HISPANIC", "Hispanic"),
    ("SOUTH AMERICAN", "Hispanic"),
    ("ASIAN", "Asian"),
    ("UNKNOWN", NOT_KNOWN),
    ("UNABLE", NOT_KNOWN),
    ("PATIENT DECLINED", NOT_KNOWN),
)


def attributes(
    subjects: Path, encounters: Path, subject_id: np.ndarray, encounter_id: np.ndarray
) -> dict[str, list[str]]:
    """Return by attribute the group of each row."""
    rows = pa.table(
        {"subject_id": subject_id, "encounter_id": encounter_id, "row": np.arange(len(subject_id))}
    )
    people = read_table(subjects, SUBJECTS).select(["subject_id", "sex"])
    stays = read_table(encounters, ENCOUNTERS)
    stays = stays.select(["subject_id", "encounter_id", "age_years", "race", "insurance"])
    stay_rows = rows.join(stays, ["subject_id", "encounter_id"]).join(people, "subject_id").sort_by("row")
    return {
        "Sex": [sex or NOT_KNOWN for sex in stay_rows["sex"].to_pylist()],
        "Age": [age_band(age) for age in stay_rows["age_years"].to_pylist()],
        "Race": [race_group(race) for race in stay_rows["race"].to_pylist()],
        "Insurance": [insurance or NOT_KNOWN for insurance in stay_rows["insurance"].to_pylist()],
    }


def age_band(age_years: float | None) -> str:
    if age_years is None:
        return NOT_KNOWN
    return next(name for end, name in _AGES if age_years < end)


def race_group(race: str | None) -> str:
    if not race:
        return NOT_KNOWN
    return next((group for start, group in _RACES if race.upper().startswith(start)), "other")


def cells_of(labels: Labels) -> list[np.ndarray]:
    """Return the rows of each split with each outcome, bool [rows]: the smallest parts that a page counts."""
    truth = labels.truth(classes_of(labels.task))
    outcomes = [*truth.T, ~truth.any(axis=1)]
    cells = [(labels.split == split) & outcome for split in SPLITS for outcome in outcomes]
    return [cell for cell in cells if cell.any()]


def withheld_in_cells(
    subject_id: np.ndarray, cells: Sequence[np.ndarray], group_of_row: np.ndarray
) -> set[Any]:
    """Return the groups whose rows must be withheld where those of each cell, or of any union of cells, are counted."""
    names = sorted(set(group_of_row))
    tables = []
    for cell in cells:
        parts = {name: cell & (group_of_row == name) for name in names}
        tables.append({name: int(np.count_nonzero(rows)) for name, rows in parts.items()})
        tables.append({name: len(np.unique(subject_id[rows])) for name, rows in parts.items()})
    return names_to_withhold(*tables)


def score_groups(
    predictions: Predictions,
    groups: Mapping[str, Sequence[str]],
    *,
    seed: int,
    withheld_groups: Mapping[str, set[str]] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Score each group of each attribute on its own rows, with the gap to the attribute's largest group.

    All groups share the same resamples, so a gap accounts for patients in both groups (at two ages, say).

    Args:
        withheld_groups: by attribute, those whose counts another table of the page withholds.

    Returns:
        One dict per group: attribute, group, rows, positives (suppressed), auroc, average_precision (value None:
        withheld), gap (in AUROC), reference (the group compared with; None: no group qualifies).
    """
    resamples = Resamples.of(predictions.subject_id, seed=seed)
    group_scores: list[dict[str, Any]] = []
    for attribute, names_of_rows in groups.items():
        group_of_row = np.array(names_of_rows, dtype=object)
        names = sorted(set(group_of_row), key=group_order)
        parts = {name: predictions.rows(group_of_row == name) for name in names}
        withheld = _withheld_groups(predictions, parts) | (
            withheld_groups.get(attribute, set()) & parts.keys()
        )
        scores = _scores(parts, withheld, resamples)
        reference = _reference(parts, scores)
        for name in names:
            gap = _gap(scores, name, reference)
            group_scores.append(
                {
                    "attribute": attribute,
                    "group": name,
                    **_counts(parts[name], name in withheld),
                    **{metric: scores[name][metric].json() for metric in METRICS},
                    "gap": gap.json(),
                    "reference": reference,
                }
            )
    return group_scores


def _reference(parts: Mapping[str, Predictions], scores: Mapping[str, Mapping[str, Score]]) -> str | None:
    """Return the group with the most rows among scored groups, except `other` and `not known`."""
    candidates = [name for name in parts if name not in _VAGUE and scores[name]["auroc"].value is not None]
    return max(candidates, key=lambda name: len(parts[name]), default=None)


def _gap(scores: Mapping[str, Mapping[str, Score]], name: str, reference: str | None) -> Score:
    """Return a group's AUROC minus the reference's."""
    if reference is None:
        return missing("no group to compare with")
    if name == reference:
        return missing("the others are compared with it")
    return combine([scores[name]["auroc"], scores[reference]["auroc"]], lambda pair: pair[0] - pair[1])


def _withheld_groups(predictions: Predictions, parts: Mapping[str, Predictions]) -> set[str]:
    """Return the groups whose rows and positives are withheld; both, since each could be derived from the other.

    Counts of patients with and without the outcome decide, since many rows can belong to few patients. Rows are shown
    and can be subtracted, so the groups withheld together must be large enough in rows too.
    """
    if any(map(is_small, _patients(predictions))):
        return set(parts)
    positives = {name: int(part.positives[0]) for name, part in parts.items()}
    negatives = {name: len(part) - positives[name] for name, part in parts.items()}
    positive_patients, negative_patients = (
        {name: _patients(part)[side] for name, part in parts.items()} for side in (0, 1)
    )
    return names_to_withhold(positives, negatives, positive_patients, negative_patients)


def _patients(part: Predictions) -> tuple[int, int]:
    """Return how many patients have a row with the outcome, and how many a row without."""
    return patients_of(part.truth[:, 0], part.subject_id)


def _may_score_withheld(withheld: set[str], parts: Mapping[str, Predictions]) -> bool:
    """Return whether withheld groups may have scores: a score reveals that its group has enough of both outcomes."""
    eligible = [name for name in withheld if has_enough(parts[name])]
    positives, negatives = (sum(_patients(parts[name])[side] for name in withheld) for side in (0, 1))
    room = SMALLEST_SHOWN - 1
    return positives >= room + LEAST_POSITIVES * len(eligible) and negatives >= room + SMALLEST_SHOWN * len(
        eligible
    )


def has_enough(part: Predictions) -> bool:
    """Return whether enough patients have the outcome, and do not, for a group's score."""
    positives, negatives = _patients(part)
    return positives >= LEAST_POSITIVES and negatives >= SMALLEST_SHOWN


def _scores(
    parts: Mapping[str, Predictions], withheld: set[str], resamples: Resamples
) -> dict[str, dict[str, Score]]:
    is_allowed = _may_score_withheld(withheld, parts)
    return {
        name: dict.fromkeys(METRICS, missing(BESIDE_FEW))
        if name in withheld and not is_allowed
        else score(part, resamples)
        if has_enough(part)
        else dict.fromkeys(METRICS, missing(TOO_FEW))
        for name, part in parts.items()
    }


def _counts(part: Predictions, is_hidden: bool) -> dict[str, str]:
    rows, positives = f"{len(part):,}", f"{int(part.positives[0]):,}"
    return {"rows": WITHHELD, "positives": WITHHELD} if is_hidden else {"rows": rows, "positives": positives}


def group_order(name: str) -> tuple[bool, int, str]:
    """Return a sort key: ages from young to old, other groups by name, unknown groups last."""
    ages = [band for _, band in _AGES]
    return name in _VAGUE, ages.index(name) if name in ages else 0, name

"""Whom the model serves better or worse: the binary tasks by sex, age, race, insurance, and the gaps between groups."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from nest_model.data.predictions import Predictions, patients_of
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import Score, combine, missing, score
from schemas.contract import read_table
from schemas.suppress import SMALLEST_SHOWN, WITHHELD, hidden_together, is_small
from schemas.tables.events import ENCOUNTERS, SUBJECTS

METRICS = ("auroc", "average_precision")

LEAST_POSITIVES = 20
"""Patients with the outcome; with fewer a group's score says more of chance than of the group."""

TOO_FEW = f"withheld: under {LEAST_POSITIVES} patients with the outcome, or under {SMALLEST_SHOWN} without"

BESIDE_FEW = "withheld: too few patients in this group, or in one it is hidden with"

_VAGUE = ("not known", "other")

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
_RACES = (  # the first word of MIMIC-IV's 33 values that decides
    ("WHITE", "White"),
    ("BLACK", "Black"),
    ("HISPANIC", "Hispanic"),
    ("SOUTH AMERICAN", "Hispanic"),
    ("ASIAN", "Asian"),
    ("UNKNOWN", "not known"),
    ("UNABLE", "not known"),
    ("PATIENT DECLINED", "not known"),
)


def attributes(
    subjects: Path, encounters: Path, subject_id: np.ndarray, encounter_id: np.ndarray
) -> dict[str, list[str]]:
    """Return for each row the group it belongs to, by attribute."""
    wanted = pa.table(
        {"subject_id": subject_id, "encounter_id": encounter_id, "row": np.arange(len(subject_id))}
    )
    people = read_table(subjects, SUBJECTS).select(["subject_id", "sex"])
    stays = read_table(encounters, ENCOUNTERS)
    stays = stays.select(["subject_id", "encounter_id", "age_years", "race", "insurance"])
    joined = wanted.join(stays, ["subject_id", "encounter_id"]).join(people, "subject_id").sort_by("row")
    return {
        "Sex": [sex or "not known" for sex in joined["sex"].to_pylist()],
        "Age": [age_band(age) for age in joined["age_years"].to_pylist()],
        "Race": [race_group(race) for race in joined["race"].to_pylist()],
        "Insurance": [insurance or "not known" for insurance in joined["insurance"].to_pylist()],
    }


def age_band(age_years: float | None) -> str:
    if age_years is None:
        return "not known"
    return next(name for end, name in _AGES if age_years < end)


def race_group(race: str | None) -> str:
    if not race:
        return "not known"
    return next((group for start, group in _RACES if race.upper().startswith(start)), "other")


def score_groups(
    predictions: Predictions, groups: Mapping[str, Sequence[str]], *, seed: int
) -> list[dict[str, Any]]:
    """Score each group of each attribute on its own rows, and how far it lies from the attribute's largest group.

    One draw of patients scores all groups: a gap knows of the patients that are in both, at two ages say.

    Returns:
        attribute, group, rows, positives (as shown), auroc, average_precision (value None: withheld), gap (in AUROC),
        reference (the group it is to; None: none can be one).
    """
    resamples, found = Resamples.of(predictions.subject_id, seed=seed), []
    for attribute, group_of_row in groups.items():
        group_of_row = np.array(group_of_row, dtype=object)
        names = sorted(set(group_of_row), key=_place)
        parts = {name: predictions.rows(group_of_row == name) for name in names}
        hidden = _hidden(predictions, parts)
        scores = _scores(parts, hidden, resamples)
        reference = _reference(parts, scores)
        for name in names:
            gap = _gap(scores, name, reference)
            found.append(
                {"attribute": attribute, "group": name, **_counts(parts[name], name in hidden)}
                | {metric: scores[name][metric].json() for metric in METRICS}
                | {"gap": gap.json(), "reference": reference}
            )
    return found


def _reference(parts: Mapping[str, Predictions], scores: Mapping[str, Mapping[str, Score]]) -> str | None:
    """Return the group with the most rows among those that are scored and say who is in them."""
    named = [name for name in parts if name not in _VAGUE and scores[name]["auroc"].value is not None]
    return max(named, key=lambda name: len(parts[name]), default=None)


def _gap(scores: Mapping[str, Mapping[str, Score]], name: str, reference: str | None) -> Score:
    """Return a group's AUROC less the reference's."""
    if reference is None:
        return missing("no group to compare with")
    if name == reference:
        return missing("the others are compared with it")
    return combine([scores[name]["auroc"], scores[reference]["auroc"]], lambda pair: pair[0] - pair[1])


def _hidden(predictions: Predictions, parts: Mapping[str, Predictions]) -> set[str]:
    """Return the groups whose rows and positives are withheld; both, for each gives the other away.

    Patients decide, with the outcome and without: many rows can be those of few. Rows are what is shown and can be
    subtracted, so what is hidden together has room in them too.
    """
    if any(map(is_small, _patients(predictions))):
        return set(parts)
    positives = {name: int(part.positives[0]) for name, part in parts.items()}
    negatives = {name: len(part) - positives[name] for name, part in parts.items()}
    with_it, without = ({name: _patients(part)[side] for name, part in parts.items()} for side in (0, 1))
    return hidden_together(positives, negatives, with_it, without)


def _patients(part: Predictions) -> tuple[int, int]:
    """Return the patients with the outcome, and those without it, in some row."""
    return patients_of(part.truth[:, 0], part.subject_id)


def _may_be_scored(hidden: set[str], parts: Mapping[str, Predictions]) -> bool:
    """Whether hidden groups may have scores, each of which says that its group has enough patients of both kinds."""
    scored = [name for name in hidden if _has_enough(parts[name])]
    positives, negatives = (sum(_patients(parts[name])[side] for name in hidden) for side in (0, 1))
    room = SMALLEST_SHOWN - 1
    return positives >= room + LEAST_POSITIVES * len(scored) and negatives >= room + SMALLEST_SHOWN * len(
        scored
    )


def _has_enough(part: Predictions) -> bool:
    positives, negatives = _patients(part)
    return positives >= LEAST_POSITIVES and negatives >= SMALLEST_SHOWN


def _scores(
    parts: Mapping[str, Predictions], hidden: set[str], resamples: Resamples
) -> dict[str, dict[str, Score]]:
    is_allowed = _may_be_scored(hidden, parts)
    return {
        name: dict.fromkeys(METRICS, missing(BESIDE_FEW))
        if name in hidden and not is_allowed
        else score(part, resamples)
        if _has_enough(part)
        else dict.fromkeys(METRICS, missing(TOO_FEW))
        for name, part in parts.items()
    }


def _counts(part: Predictions, is_hidden: bool) -> dict[str, str]:
    rows, positives = f"{len(part):,}", f"{int(part.positives[0]):,}"
    return {"rows": WITHHELD, "positives": WITHHELD} if is_hidden else {"rows": rows, "positives": positives}


def _place(name: str) -> tuple[bool, int, str]:
    """Ages from young to old, the rest by name, the unknown last."""
    ages = [band for _, band in _AGES]
    return name in _VAGUE, ages.index(name) if name in ages else 0, name

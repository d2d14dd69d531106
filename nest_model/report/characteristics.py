"""The characteristics of a cohort, by split and by outcome: the table that papers print first.

Rows are index stays. A group is withheld in every column as soon as it has fewer than eleven stays or patients in one
split with one outcome, together with as many others as keep it from being derived; so every sum or difference of
counts that are shown is 0, or eleven and more. The subgroups' table withholds the same groups.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from nest_model.data.labels import Labels
from nest_model.data.predictions import classes_of
from nest_model.evaluation.subgroups import (
    GROUPED,
    NOT_KNOWN,
    attributes,
    cells_of,
    group_order,
    withheld_in_cells,
)
from nest_model.report.earlier_diagnoses import earlier_diagnoses
from schemas.cohort import Cohort
from schemas.cohort.times import Duration
from schemas.contract import read_table
from schemas.io.verify import is_written, verified
from schemas.layout import Layout
from schemas.suppress import SMALLEST_SHOWN, WITHHELD
from schemas.tables.events import ENCOUNTERS, SPLITS
from schemas.tables.labels import labels_schema

DAY_US = 24 * 3600 * 10**6
LEAST_FOR_QUARTILES = 4 * SMALLEST_SHOWN
"""Fewest patients of a column for quartiles: eleven or more lie beyond each."""
MOST_CLASSES = 5
SPLIT_TITLES = {"train": "Training", "val": "Validation", "test": "Test"}

Masks = Mapping[str, np.ndarray]  # title of a column -> bool [rows of the labels]
CharacteristicRow = dict[str, Any]  # name, group, and a text for each column


def characteristics(layout: Layout, cohort: str, label_counts: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the table of a cohort with a yes-or-no or class outcome: its `columns` and `rows`.

    None without labels, or where the page does not show how many there are.

    Args:
        label_counts: the counts of the labels as the page may show them. Splits are columns only if it shows them all,
            and so are outcomes.
    """
    if not all(map(is_written, (layout.labels(cohort), layout.subjects, layout.encounters))):
        return None
    labels = Labels.read(layout.labels(cohort))
    if labels.task.label_type not in ("bool", "class") or not _are_shown(label_counts, ["rows", "subjects"]):
        return None
    masks, cells = columns_of(labels, label_counts), cells_of(labels)
    numbers = numbers_of(layout, cohort, labels)
    groups = attributes(layout.subjects, layout.encounters, labels.subject_id, labels.encounter_id)
    rows = _sizes(labels, masks)
    rows += _quartiles(labels, masks, "Age, years", numbers["age"])
    for attribute in GROUPED:
        rows += _shares(labels, masks, cells, attribute, np.array(groups[attribute], dtype=object))
    rows += _quartiles(labels, masks, "Stays before", numbers["stays_before"])
    rows += _quartiles(labels, masks, "Length of the stay, days", numbers["length_days"])
    rows += _quartiles(labels, masks, "Follow-up after T, days", numbers["follow_up_days"])
    rows += _missing(layout, cohort, labels, masks, cells, numbers, groups["Age"])
    diagnoses = [
        {"name": "Diagnosis before T", "group": name, "cells": _texts(masks, has_code)}
        for name, has_code in earlier_diagnoses(layout, labels, cells)
    ]
    return {"columns": list(masks), "rows": rows + diagnoses}


def columns_of(labels: Labels, label_counts: Mapping[str, str]) -> Masks:
    """Return the columns that may be shown: all stays, then the splits, then the outcomes."""
    masks: dict[str, np.ndarray] = {"All": np.ones(len(labels), dtype=bool)}
    sizes = [f"{unit}_{split}" for unit in ("rows", "subjects") for split in SPLITS]
    if not _are_shown(label_counts, sizes):
        return masks
    masks |= {title: labels.split == split for split, title in SPLIT_TITLES.items()}
    truth = labels.truth(classes_of(labels.task))
    if labels.task.label_type == "bool":
        if _are_shown(label_counts, [f"positives_{split}" for split in SPLITS]):
            masks |= {"With outcome": truth[:, 0], "Without": ~truth[:, 0]}
        return masks
    visible_places = [
        place
        for place, name in enumerate(labels.task.classes)
        if truth[:, place].any() and _are_shown(label_counts, [f"class_{name}_{split}" for split in SPLITS])
    ]
    commonest = sorted(visible_places, key=lambda place: -truth[:, place].sum())[:MOST_CLASSES]
    masks |= {labels.task.classes[place]: truth[:, place] for place in commonest}
    others = np.asarray(~truth[:, commonest].any(axis=1))
    return masks | ({"Other classes": others} if commonest and others.any() else {})


def _are_shown(texts: Mapping[str, str], names: Sequence[str]) -> bool:
    return all(texts.get(name, "")[:1].isdigit() for name in names)


def numbers_of(layout: Layout, cohort: str, labels: Labels) -> dict[str, np.ndarray]:
    """Return age, stays before the index stay, its length and the follow-up of each row, f64 [rows], NaN if missing."""
    stays = read_table(layout.encounters, ENCOUNTERS)
    stays = stays.select(["subject_id", "encounter_id", "start", "end", "age_years"])
    stays = stays.sort_by(
        [("subject_id", "ascending"), ("start", "ascending"), ("encounter_id", "ascending")]
    )
    subject_id, encounter_id = (stays[name].to_numpy() for name in ("subject_id", "encounter_id"))
    is_first = np.r_[True, subject_id[1:] != subject_id[:-1]]
    place = np.arange(len(subject_id))
    before = place - np.maximum.accumulate(np.where(is_first, place, 0))
    order = np.argsort(encounter_id)
    row = order[np.searchsorted(encounter_id, labels.encounter_id, sorter=order)]
    start, end = (_float(stays[name].cast(pa.int64())) for name in ("start", "end"))
    table = read_table(layout.labels(cohort), labels_schema(labels.task.label_type))
    return {
        "age": _float(stays["age_years"])[row],
        "stays_before": before[row].astype(float),
        "length_days": (end - start)[row] / DAY_US,
        "follow_up_days": _float(table["follow_up_days"]),
    }


def _float(column: pa.ChunkedArray) -> np.ndarray:
    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy()  # null becomes NaN
    return values


def _sizes(labels: Labels, masks: Masks) -> list[CharacteristicRow]:
    """Return the stays of every column, and the patients of those that partition the patients."""
    stays = [f"{np.count_nonzero(mask):,}" for mask in masks.values()]
    patients = [
        f"{len(np.unique(labels.subject_id[mask])):,}" if title in ("All", *SPLIT_TITLES.values()) else "–"
        for title, mask in masks.items()
    ]
    return [
        {"name": "Index stays", "group": "", "cells": stays},
        {"name": "Patients", "group": "", "cells": patients},
    ]


def _quartiles(labels: Labels, masks: Masks, name: str, values: np.ndarray) -> list[CharacteristicRow]:
    """Return the median and quartiles of each column."""

    def text(mask: np.ndarray) -> str:
        inside = mask & np.isfinite(values)
        if len(np.unique(labels.subject_id[inside])) < LEAST_FOR_QUARTILES:
            return WITHHELD
        low, middle, high = np.percentile(values[inside], [25, 50, 75])
        digits = 0 if name.startswith(("Age", "Stays")) or middle >= 20 else 1
        return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"

    return [{"name": name, "group": "", "cells": [text(mask) for mask in masks.values()]}]


def _shares(
    labels: Labels, masks: Masks, cells: Sequence[np.ndarray], attribute: str, group_of_row: np.ndarray
) -> list[CharacteristicRow]:
    """Return the count and share of each group of an attribute."""
    withheld = withheld_in_cells(labels.subject_id, cells, group_of_row)
    return [
        {
            "name": attribute,
            "group": name,
            "cells": [WITHHELD] * len(masks) if name in withheld else _texts(masks, group_of_row == name),
        }
        for name in sorted(set(group_of_row), key=group_order)
    ]


def _texts(masks: Masks, has: np.ndarray) -> list[str]:
    return [
        f"{np.count_nonzero(mask & has):,} ({(mask & has).sum() / max(1, mask.sum()):.1%})"
        for mask in masks.values()
    ]


def _missing(
    layout: Layout,
    cohort: str,
    labels: Labels,
    masks: Masks,
    cells: Sequence[np.ndarray],
    numbers: Mapping[str, np.ndarray],
    age_bands: Sequence[str],
) -> list[CharacteristicRow]:
    """Return the stays without a value, and those without the outcome that were not followed for the whole window."""
    lacks = {
        "age": ~np.isfinite(numbers["age"]),
        "length of the stay": ~np.isfinite(numbers["length_days"]),
        "follow-up": ~np.isfinite(numbers["follow_up_days"]),
    }
    window = _window(layout, cohort)
    if window is not None and labels.task.label_type == "bool":  # an index with a class has its outcome
        length, longer_days = window
        days = length.microseconds / DAY_US + length.months * 30.4375
        is_short = (numbers["follow_up_days"] + longer_days < days) & ~labels.truth(("true",))[:, 0]
        lacks[f"without the outcome, followed for less than {length}"] = is_short
    rows = []
    for name, is_missing in lacks.items():
        # the subgroups' table counts the ages that are not known beside the other ages
        groups, group = (np.array(age_bands), NOT_KNOWN) if name == "age" else (is_missing, True)
        withheld = group in withheld_in_cells(labels.subject_id, cells, groups.astype(object))
        if is_missing.any():
            texts = [WITHHELD] * len(masks) if withheld else _texts(masks, is_missing)
            rows.append({"name": "Missing", "group": name, "cells": texts})
    return rows


def _window(layout: Layout, cohort: str) -> tuple[Duration, int] | None:
    """Return the length of the outcome's window, and the days it is known after the data end, as deaths may be.

    None if the window has no length in days or months.
    """
    path = layout.cohort(cohort) / "cohort.lock.yaml"
    if not is_written(path):
        return None
    spec = Cohort.of_lock(yaml.safe_load(verified(path).read_text()))
    within = getattr(spec.outcome, "within", None)
    return (within, spec.follow_up_days_after_data) if isinstance(within, Duration) else None

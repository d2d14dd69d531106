"""Describes a derived cohort: the task in the metadata of the labels, the card of the step, the lock."""

import hashlib
from pathlib import Path
from typing import Any, cast

import polars as pl

from pipelines.cohorts.codes import ResolvedCodes
from pipelines.cohorts.derive import CohortLabels
from pipelines.cohorts.number_outcomes import unit_of
from schemas.cards import Flow, StepCard
from schemas.cohort import Cohort, TimePoint
from schemas.io.hashing import file_sha256
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import SPLITS
from schemas.tables.labels import WITHOUT_CLASSES, Features, Task


def task_of(cohort: Cohort, labels: CohortLabels, rules: DataRules) -> Task:
    """Return what a model needs to know about a cohort."""
    rule = cohort.features
    return Task(
        cohort=cohort.cohort,
        about=cohort.about,
        label_type=labels.label_type,
        classes=labels.classes,
        features=Features(
            clock=rules.clock,
            drop_from_index=rule.drop_from_index,
            drop_types=rule.drop_types,
            **_since_fields(rule.since),
        ),
        predict_at=str(cohort.predict_at),
        predict_anchor=cast(Any, cohort.predict_at.anchor),
        predict_months=cohort.predict_at.offset.months,
        predict_offset_us=cohort.predict_at.offset.microseconds,
        cohort_sha256=cohort.sha256,
        **({"unit": unit_of(cohort.outcome), "scale": labels.scale} if labels.scale else {}),
        times_days=labels.times_days,
    )


def _since_fields(point: TimePoint | None) -> dict[str, Any]:
    """Return where features begin, as an offset before an anchor."""
    if point is None:
        return {}
    return {
        "since_us": -point.sign * point.offset.microseconds,
        "since_months": -point.sign * point.offset.months,
        "since_anchor": point.anchor,
    }


def card_of(cohort: Cohort, labels: CohortLabels, contract: str, warnings: list[str]) -> StepCard:
    """Return the card of the step: attrition as one flow, rows and labels per split."""
    first, last = labels.steps[0], labels.steps[-1]
    drop_counts = {step.step: step.dropped for step in labels.steps[1:]}
    flow = Flow(
        source_rows=first.index_rows,
        kept_rows=last.index_rows,
        dropped=drop_counts,
        noted=labels.lenient_counts,
    )
    return StepCard(
        step=f"{cohort.cohort}_labels",
        contract=contract,
        flows={"encounters": flow},
        counts=_counts(labels),
        hashes={"cohort": cohort.sha256},
        warnings=warnings,
    )


def _counts(labels: CohortLabels) -> dict[str, int]:
    """Return rows, patients and classes per split; for lists of classes only the number of classes."""
    rows = labels.rows
    counts = {"rows": rows.height, "subjects": rows["subject_id"].n_unique()}
    if labels.label_type == "list":
        counts["classes"] = len(labels.classes)
    for split in SPLITS:
        part = rows.filter(pl.col("split") == split)
        counts |= {f"rows_{split}": part.height, f"subjects_{split}": part["subject_id"].n_unique()}
        if labels.label_type == "bool":
            counts[f"positives_{split}"] = int(part["label"].sum())
        elif labels.label_type == "time":
            counts[f"positives_{split}"] = int(part["label"].struct.field("event").sum())
        elif labels.label_type == "class":
            class_counts = _per_class(part)
            counts |= {f"class_{name}_{split}": class_counts.get(name, 0) for name in labels.classes}
    return counts


def _per_class(rows: pl.DataFrame) -> dict[Any, int]:
    """Return the number of rows of every class, sorted by class."""
    label = rows["label"]
    classes = label.explode() if label.dtype == pl.List else label
    return dict(sorted(classes.drop_nulls().value_counts().iter_rows()))


def lock_of(
    cohort: Cohort,
    labels: CohortLabels,
    rules: DataRules,
    codes: ResolvedCodes,
    layout: Layout,
    kinds: tuple[str, ...],
) -> dict[str, Any]:
    """Return what was run, on which data, and the resolved code lists: enough to distinguish two runs.

    Args:
        cohort, labels, rules, codes: the cohort, its labels, the rules and the resolved code lists.
        layout: the layout of the data.
        kinds: the kinds of events that were read.
    """
    inner = {member.cohort: member.normalized() for member in cohort.family[1:]}
    return {
        "cohort": cohort.cohort,
        "spec": cohort.normalized(),
        **({"in_cohorts": inner} if inner else {}),
        "spec_sha256": cohort.sha256,
        "rules": {"clock": rules.clock, "fit_on": rules.fit_on},
        "data_sha256": _data_hashes(layout, kinds),
        "codes": codes,
        "label_type": labels.label_type,
        "classes": list(labels.classes),
        "counts": _counts(labels),
        "rows_per_class": {} if labels.label_type in WITHOUT_CLASSES else _per_class(labels.rows),
        "noted": labels.lenient_counts,
    }


def _data_hashes(layout: Layout, kinds: tuple[str, ...]) -> dict[str, str]:
    hashes = {"subjects": _sha256(layout.subjects), "encounters": _sha256(layout.encounters)}
    files = [file for kind in kinds for file in sorted(layout.events.glob(f"{kind}-*.parquet"))]
    if files:
        hashes["events"] = _sha256(*files)
    if "MED" in kinds and is_written(layout.drug_lookup):
        hashes["drug_lookup"] = _sha256(layout.drug_lookup)
    return hashes


def _sha256(*files: Path) -> str:
    """Return the SHA-256 of a file, or of the SHA-256s of several files in the given order."""
    digests = [file_sha256(path) for path in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()

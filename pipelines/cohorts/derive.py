"""Derives labels from the tables: one pass over the candidates of some patients; parts add up."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.cohorts.candidates import KEY, with_follow_up
from pipelines.cohorts.number_outcomes import fit_scale, number_labels
from pipelines.cohorts.outcomes import add_outcome_time, classes_of, window_end
from pipelines.cohorts.steps import Steps, index_steps
from pipelines.cohorts.tables import Tables
from pipelines.cohorts.time_outcomes import add_time_steps, fit_times, time_labels
from schemas.cohort import NUMBERS, ClassOf, Cohort, IndexDaysLeft, LabClass, LabelsOf, TimeTo, ValueOf
from schemas.icd10 import CHAPTERS
from schemas.rules import DataRules
from schemas.tables.attrition import AttritionStep
from schemas.tables.labels import LabelType, NumberScale

COLUMNS = (*KEY, "index_start", "predict_at", "label", "outcome_time", "follow_up_days", "split")


@dataclass(frozen=True)
class CohortLabels:
    """The labels of a cohort and the counts that go with them."""

    rows: pl.DataFrame  # COLUMNS, sorted by subject_id, index_start, index_encounter
    label_type: LabelType
    classes: tuple[str, ...]
    steps: list[AttritionStep]
    lenient_counts: dict[str, int]  # rows kept under clock "time" that a step would have dropped
    short_follow_up: int = 0  # rows without the outcome whose window reaches past the data
    windowless: int = 0  # rows whose window ends by the prediction
    scale: NumberScale | None = None  # of the numbers of the training rows, for a number
    times_days: tuple[float, ...] = ()  # the ends of the intervals, for a time


@dataclass(frozen=True)
class LabelsPart:
    """The contribution of some patients to a cohort."""

    rows: pl.DataFrame  # as in `CohortLabels`, but under `labels_of` with all classes, including rare ones
    class_rows: pl.DataFrame  # label, rows: counts of each class of `labels_of` among the training subjects
    steps: list[AttritionStep]
    lenient_counts: dict[str, int]
    short_follow_up: int
    windowless: int


def derive(cohort: Cohort, tables: Tables, rules: DataRules) -> CohortLabels:
    """Return the labels of a cohort, one row per index encounter."""
    return add_up(cohort, [derive_part(cohort, tables, rules)], rules)


def derive_part(cohort: Cohort, tables: Tables, rules: DataRules) -> LabelsPart:
    """Return the contribution of the patients of `tables` to a cohort.

    Under `rules.clock == "time"` (preset paper), `index_longer_than` and an outcome at or before the prediction drop
    no rows; the number of kept rows that they would have dropped is counted instead.
    """
    lenient = rules.clock == "time"
    steps = index_steps(cohort, tables, lenient=lenient)
    _add_outcome(steps, cohort.outcome, tables, lenient=lenient)
    rows = steps.rows.with_columns(index_start="start").collect()
    index_rows = with_follow_up(rows.filter(steps.passes_all))
    label_rows = _label(index_rows, cohort.outcome, tables)
    sorted_rows = label_rows.select(COLUMNS).sort("subject_id", "index_start", "index_encounter")
    class_rows = _class_rows(label_rows, rules)
    return LabelsPart(
        sorted_rows,
        class_rows,
        steps.count(rows),
        steps.count_lenient(index_rows),
        *_poor_windows(index_rows, cohort.follow_up_days_after_data),
    )


def add_up(cohort: Cohort, parts: Sequence[LabelsPart], rules: DataRules) -> CohortLabels:
    """Combine parts with disjoint patients into the labels of all, in the order of the parts.

    This also decides over all patients which classes of `labels_of` are common enough to be predicted, and fits the
    scale of a number and the intervals of a time.
    """
    rows = pl.concat([part.rows for part in parts], rechunk=True)  # chunks would change the bytes of the file
    label_type, classes = _classes(cohort.outcome, [part.class_rows for part in parts])
    if isinstance(cohort.outcome, LabelsOf):
        common = pl.element().filter(pl.element().is_in(classes))
        rows = rows.with_columns(pl.col("label").list.eval(common))
    lenient_counts = {
        name: sum(part.lenient_counts[name] for part in parts) for name in parts[0].lenient_counts
    }
    steps = [sum(step[1:], step[0]) for step in zip(*(part.steps for part in parts), strict=True)]
    short_follow_up, windowless = (
        sum(getattr(part, name) for part in parts) for name in ("short_follow_up", "windowless")
    )
    return CohortLabels(
        rows,
        label_type,
        classes,
        steps,
        lenient_counts,
        short_follow_up,
        windowless,
        fit_scale(rows, rules) if label_type == "number" else None,
        fit_times(rows, rules) if label_type == "time" else (),
    )


def _poor_windows(rows: pl.DataFrame, days_after_data: int) -> tuple[int, int]:
    """Count the rows without an outcome whose window exceeds the data, and the rows without a window.

    Args:
        days_after_data: for how long after the data end the outcome is known.
    """
    end, followed_until = pl.col("window_end"), pl.col("end_of_data").dt.offset_by(f"{days_after_data}d")
    short_follow_up = pl.col("outcome_time").is_null() & (end > followed_until)
    windowless = end <= pl.col("predict_at")
    return rows.select(short_follow_up.sum(), windowless.sum()).row(0)


def _add_outcome(steps: Steps, outcome: Any, tables: Tables, *, lenient: bool) -> None:
    """Add the time or class of the outcome, and a step that requires no earlier outcome, or a class."""
    steps.rows = add_outcome_time(steps.rows, outcome, tables).with_columns(window_end=window_end(outcome))
    if isinstance(outcome, ClassOf):
        classes = classes_of(outcome, tables).rename({"label": "result"})
        steps.rows = steps.rows.join(classes, on=KEY, how="left")
        steps.add_expr("its diagnosis has a class", pl.col("result").is_not_null())
    elif isinstance(outcome, LabClass | ValueOf):
        steps.add_expr(f"has a value of {outcome.lab} in the window", pl.col("result").is_not_null())
    elif isinstance(outcome, IndexDaysLeft):
        steps.add_expr("still in the stay at predict_at", pl.col("end") > pl.col("predict_at"))
    elif isinstance(outcome, TimeTo):
        add_time_steps(steps)
    elif not isinstance(outcome, LabelsOf):
        early = (pl.col("outcome_time") <= pl.col("predict_at")).fill_null(False)
        steps.add_expr("no outcome by predict_at", ~early, drops=not lenient)


def _label(rows: pl.DataFrame, outcome: Any, tables: Tables) -> pl.DataFrame:
    if isinstance(outcome, ClassOf | LabClass):
        return rows.with_columns(label="result")
    if isinstance(outcome, LabelsOf):
        classes = rows.lazy().select(KEY).join(classes_of(outcome, tables), on=KEY, how="inner")
        lists = classes.group_by(KEY).agg(pl.col("label").sort()).collect()
        no_classes = pl.lit([], dtype=pl.List(pl.String))
        return rows.join(lists, on=KEY, how="left").with_columns(pl.col("label").fill_null(no_classes))
    if isinstance(outcome, NUMBERS):
        return rows.with_columns(label=number_labels(rows, outcome))
    if isinstance(outcome, TimeTo):
        return rows.with_columns(label=time_labels(rows))
    return rows.with_columns(label=pl.col("outcome_time").is_not_null())


def _class_rows(label_rows: pl.DataFrame, rules: DataRules) -> pl.DataFrame:
    """Return label, rows: the count of each class among the training rows; empty unless labels are lists."""
    if not isinstance(label_rows.schema["label"], pl.List):
        return pl.DataFrame(schema={"label": pl.String, "rows": pl.Int64})
    training_rows = label_rows if rules.fit_on == "all" else label_rows.filter(pl.col("split") == "train")
    classes = training_rows.select(pl.col("label").explode()).drop_nulls()
    return classes.group_by("label").agg(rows=pl.len().cast(pl.Int64))


def _classes(outcome: Any, class_rows: Sequence[pl.DataFrame]) -> tuple[LabelType, tuple[str, ...]]:
    """Return the kind of label and its classes; under `labels_of` the classes with at least `min_index` rows."""
    if isinstance(outcome, ClassOf):
        return "class", CHAPTERS
    if isinstance(outcome, LabClass):
        return "class", outcome.names
    if isinstance(outcome, NUMBERS):
        return "number", ()
    if isinstance(outcome, TimeTo):
        return "time", ()
    if not isinstance(outcome, LabelsOf):
        return "bool", ("false", "true")
    rows = pl.concat(class_rows).group_by("label").agg(pl.col("rows").sum())
    return "list", tuple(rows.filter(pl.col("rows") >= outcome.min_index)["label"].sort())

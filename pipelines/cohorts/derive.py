"""From the tables to labels: one pass over candidates, one collect."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from pipelines.cohorts.candidates import KEY, candidates, with_follow_up
from pipelines.cohorts.chapters import CHAPTERS
from pipelines.cohorts.outcomes import add_outcome_time, classes_of, window_end
from pipelines.cohorts.steps import Steps, add_index_steps, add_requirements
from pipelines.cohorts.tables import Tables
from schemas.attrition import Step
from schemas.cohort import ClassOf, Cohort, LabelsOf
from schemas.labels import LabelType
from schemas.settings import DataRules

COLUMNS = (*KEY, "index_start", "predict_at", "label", "outcome_time", "follow_up_days", "split")

Labelled = tuple[pl.DataFrame, LabelType, tuple[str, ...]]


@dataclass(frozen=True)
class Labels:
    """A cohort's labels with the counts that go beside them."""

    rows: pl.DataFrame  # COLUMNS, sorted by subject_id, index_start, index_encounter
    label_type: LabelType
    classes: tuple[str, ...]
    steps: list[Step]
    noted: dict[str, int]  # rows kept under clock "time" that a step would have dropped
    unfollowed: int = 0  # rows without the outcome whose window reaches past the data
    windowless: int = 0  # rows whose window ends by the prediction


def derive(cohort: Cohort, tables: Tables, rules: DataRules) -> Labels:
    """Return the labels of a cohort, one row per index encounter.

    Under `rules.clock == "time"` (preset paper) `index_longer_than` and an outcome at or before the prediction drop
    nothing; how many of the rows that stay they would have dropped is noted.
    """
    lenient = rules.clock == "time"
    steps = Steps(candidates(tables.subjects, tables.encounters, cohort.predict_at, tables.end_of_data))
    add_index_steps(steps, cohort, tables)
    add_requirements(steps, cohort, tables, lenient=lenient)
    _add_outcome(steps, cohort.outcome, tables, lenient=lenient)
    rows = steps.rows.with_columns(index_start="start").collect()
    kept = with_follow_up(rows.filter(steps.passed))
    labelled, label_type, classes = _label(kept, cohort.outcome, tables, rules)
    sorted_rows = labelled.select(COLUMNS).sort("subject_id", "index_start", "index_encounter")
    steps_count, noted = steps.count(rows), steps.count_lenient(kept)
    return Labels(sorted_rows, label_type, classes, steps_count, noted, *_poor_windows(kept))


def _poor_windows(kept: pl.DataFrame) -> tuple[int, int]:
    """Count the rows that show no outcome though their window reaches past the data, and those without a window."""
    end = pl.col("window_end")
    unfollowed = pl.col("outcome_time").is_null() & (end > pl.col("end_of_data"))
    windowless = end <= pl.col("predict_at")
    return kept.select(unfollowed.sum(), windowless.sum()).row(0)


def _add_outcome(steps: Steps, outcome: Any, tables: Tables, *, lenient: bool) -> None:
    """Add the outcome's time or class, and the step it makes: none by the prediction, or a class at all."""
    steps.rows = add_outcome_time(steps.rows, outcome, tables).with_columns(window_end=window_end(outcome))
    if isinstance(outcome, ClassOf):
        found = classes_of(outcome, tables).rename({"label": "found"})
        steps.rows = steps.rows.join(found, on=KEY, how="left")
        steps.add_expr("its diagnosis has a class", pl.col("found").is_not_null())
    elif not isinstance(outcome, LabelsOf):
        early = (pl.col("outcome_time") <= pl.col("predict_at")).fill_null(False)
        steps.add_expr("no outcome by predict_at", ~early, drops=not lenient)


def _label(rows: pl.DataFrame, outcome: Any, tables: Tables, rules: DataRules) -> Labelled:
    if isinstance(outcome, ClassOf):
        return rows.with_columns(label="found"), "class", CHAPTERS
    if isinstance(outcome, LabelsOf):
        return _list_labels(rows, outcome, tables, rules)
    return rows.with_columns(label=pl.col("outcome_time").is_not_null()), "bool", ("false", "true")


def _list_labels(rows: pl.DataFrame, outcome: LabelsOf, tables: Tables, rules: DataRules) -> Labelled:
    """Give each row its classes, those that at least `min_index` rows of the fitted-on subjects have."""
    keys = rows.lazy().select(*KEY, "split")
    carried = keys.join(classes_of(outcome, tables), on=KEY, how="inner").collect()
    fitted_on = carried if rules.fit_on == "all" else carried.filter(pl.col("split") == "train")
    common = fitted_on.group_by("label").len().filter(pl.col("len") >= outcome.min_index)["label"].sort()
    lists = carried.filter(pl.col("label").is_in(common.implode())).group_by(KEY).agg(pl.col("label").sort())
    none = pl.lit([], dtype=pl.List(pl.String))
    labelled = rows.join(lists, on=KEY, how="left").with_columns(pl.col("label").fill_null(none))
    return labelled, "list", tuple(common)

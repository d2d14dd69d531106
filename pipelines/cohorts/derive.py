"""From the tables to labels: every step a boolean column over candidates, one pass, one collect."""

from dataclasses import dataclass, field
from typing import Any

import polars as pl

from pipelines.cohorts.attrition import count_steps
from pipelines.cohorts.candidates import KEY, candidates, follow_up_days, time_of
from pipelines.cohorts.chapters import CHAPTERS
from pipelines.cohorts.conditions import add_condition, in_stay, mark
from pipelines.cohorts.outcomes import add_outcome_time, classes_of
from pipelines.cohorts.tables import Tables
from schemas.attrition import Step
from schemas.cohort import ClassOf, Cohort, EncounterFilter, IndexLongerThan, Keep, LabelsOf, TimePoint
from schemas.labels import LabelType
from schemas.settings import DataRules

COLUMNS = (*KEY, "index_start", "predict_at", "label", "outcome_time", "follow_up_days", "split")


@dataclass(frozen=True)
class Labels:
    """A cohort's labels with the counts that go beside them."""

    rows: pl.DataFrame  # COLUMNS, sorted by subject_id, index_start, index_encounter
    label_type: LabelType
    classes: tuple[str, ...]
    steps: list[Step]
    noted: dict[str, int] = field(
        default_factory=dict
    )  # kept under clock = "time" though a requirement fails


class _Steps:
    """The steps so far: candidates with a boolean column each, and the names they go by."""

    def __init__(self, rows: pl.LazyFrame) -> None:
        self.rows = rows
        self.named: list[tuple[str, str]] = []

    @property
    def next_column(self) -> str:
        return f"step_{len(self.named)}"

    def add(self, name: str, rows: pl.LazyFrame) -> None:
        """Take over rows that carry the next step's column."""
        self.named.append((name, self.next_column))
        self.rows = rows

    def add_expr(self, name: str, holds: pl.Expr) -> None:
        self.add(name, self.rows.with_columns(holds.fill_null(False).alias(self.next_column)))

    @property
    def passed(self) -> pl.Expr:
        return pl.all_horizontal([pl.lit(True), *(pl.col(column) for _, column in self.named)])


def derive(cohort: Cohort, tables: Tables, rules: DataRules) -> Labels:
    """Return the labels of a cohort, one row per index encounter.

    Under `rules.clock == "time"` (preset paper) `index_longer_than` and an outcome at or before the
    prediction drop nothing; how many of the rows that stay they would have dropped is noted.
    """
    steps = _Steps(candidates(tables.subjects, tables.encounters, cohort.predict_at))
    _add_index_steps(steps, cohort, tables)
    lenient = rules.clock == "time"
    would_drop = {}
    for name, condition in cohort.requirements:
        column = steps.next_column
        flagged = add_condition(steps.rows, condition, tables, column)
        if lenient and isinstance(condition, IndexLongerThan):
            would_drop[name] = f"fails_{column}"
            fails = (~pl.col(column)).alias(f"fails_{column}")
            flagged = flagged.with_columns(fails, pl.lit(True).alias(column))
        steps.add(name, flagged)
    _add_outcome(steps, cohort, tables, would_drop, lenient=lenient)
    return _collect(steps, cohort, tables, rules, would_drop)


def _add_index_steps(steps: _Steps, cohort: Cohort, tables: Tables) -> None:
    """Filter, open stays, dates, age, then keep: in that order."""
    index = cohort.index
    if index.encounter != EncounterFilter():
        wanted = in_stay(tables.encounters_of(index.encounter))
        steps.add("matches the index filter", mark(steps.rows, wanted, steps.next_column))
    steps.add_expr("has an end after its start", pl.col("end").is_not_null())
    if index.from_ is not None:
        steps.add_expr(f"from {index.from_}", pl.col("start") >= pl.lit(index.from_).cast(pl.Datetime("us")))
    if index.to is not None:
        next_day = pl.lit(index.to).cast(pl.Datetime("us")).dt.offset_by("1d")
        steps.add_expr(f"to {index.to}", pl.col("start") < next_day)
    if index.age is not None:
        youngest, oldest = (time_of(TimePoint("birth", 1, age)) for age in index.age)
        aged = (pl.col("start") >= youngest) & (pl.col("start") < oldest)
        steps.add_expr(f"age {index.age[0]} to {index.age[1]}", aged)
    if index.keep.which != "every":
        steps.add(f"keep {index.keep}", _keep_one(steps, index.keep))


def _keep_one(steps: _Steps, keep: Keep) -> pl.LazyFrame:
    """Flag a subject's first candidate so far, or the one nearest to an age; the earlier of two as near."""
    near = pl.lit(0)
    if keep.age is not None:
        near = (pl.col("start") - time_of(TimePoint("birth", 1, keep.age))).abs()
    chosen = (
        steps.rows.filter(steps.passed)
        .with_columns(near=near)
        .filter(pl.col("near").is_not_null())
        .sort("near", "start", "index_encounter")
        .unique("subject_id", keep="first", maintain_order=True)
    )
    return mark(steps.rows, chosen, steps.next_column)


def _add_outcome(
    steps: _Steps, cohort: Cohort, tables: Tables, would_drop: dict[str, str], *, lenient: bool
) -> None:
    """Add the outcome's time or class, and the step it makes: none by the prediction, or a class at all."""
    rows = add_outcome_time(steps.rows, cohort.outcome, tables)
    column = steps.next_column
    if isinstance(cohort.outcome, LabelsOf):
        steps.rows = rows
    elif isinstance(cohort.outcome, ClassOf):
        rows = rows.join(classes_of(cohort.outcome, tables).rename({"label": "found"}), on=KEY, how="left")
        steps.add("its diagnosis has a class", rows.with_columns(pl.col("found").is_not_null().alias(column)))
    else:
        early = (pl.col("outcome_time") <= pl.col("predict_at")).fill_null(False)
        name = "no outcome by predict_at"
        if lenient:
            would_drop[name] = "fails_outcome"
        holds = pl.lit(True) if lenient else ~early
        steps.add(name, rows.with_columns(early.alias("fails_outcome"), holds.alias(column)))


def _collect(
    steps: _Steps, cohort: Cohort, tables: Tables, rules: DataRules, would_drop: dict[str, str]
) -> Labels:
    rows = steps.rows.with_columns(index_start="start", follow_up_days=follow_up_days()).collect()
    counted = count_steps(rows, "all encounters", steps.named)
    kept = rows.filter(steps.passed)
    noted = {name: int(kept[column].sum()) for name, column in would_drop.items()}
    labelled, label_type, classes = _label(kept, cohort.outcome, tables, rules)
    sorted_rows = labelled.select(COLUMNS).sort("subject_id", "index_start", "index_encounter")
    return Labels(sorted_rows, label_type, classes, counted, noted)


def _label(
    rows: pl.DataFrame, outcome: Any, tables: Tables, rules: DataRules
) -> tuple[pl.DataFrame, LabelType, tuple[str, ...]]:
    if isinstance(outcome, ClassOf):
        return rows.with_columns(label="found"), "class", CHAPTERS
    if isinstance(outcome, LabelsOf):
        return _list_labels(rows, outcome, tables, rules)
    return rows.with_columns(label=pl.col("outcome_time").is_not_null()), "bool", ("false", "true")


def _list_labels(
    rows: pl.DataFrame, outcome: LabelsOf, tables: Tables, rules: DataRules
) -> tuple[pl.DataFrame, LabelType, tuple[str, ...]]:
    """Give each row its classes, those that at least `min_index` rows of the fitted-on subjects have."""
    keys = rows.lazy().select(*KEY, "split")
    carried = keys.join(classes_of(outcome, tables), on=KEY, how="inner").collect()
    fitted_on = carried if rules.fit_on == "all" else carried.filter(pl.col("split") == "train")
    common = fitted_on.group_by("label").len().filter(pl.col("len") >= outcome.min_index)["label"].sort()
    lists = carried.filter(pl.col("label").is_in(common.implode())).group_by(KEY).agg(pl.col("label").sort())
    none = pl.lit([], dtype=pl.List(pl.String))
    labelled = rows.join(lists, on=KEY, how="left").with_columns(pl.col("label").fill_null(none))
    return labelled, "list", tuple(common)

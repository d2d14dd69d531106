"""Expectations on the labels of a cohort, above all the times of the leak guard."""

from schemas.expectations.suite import (
    Rule,
    Severity,
    Suite,
    SuiteTable,
    View,
    after,
    between,
    holds,
    not_null_as_in,
    one_of,
    unique,
)
from schemas.layout import Layout
from schemas.tables.events import ENCOUNTERS, SPLITS, SUBJECTS
from schemas.tables.labels import Task, labels_schema, read_task


def labels(layout: Layout, cohort: str) -> Suite:
    """Return the suite of labels/1 for one cohort, checked against subjects/1 and encounters/1.

    Under the clock `time` (preset `paper`), an index is kept even if its prediction comes after the stay or the
    outcome, so those rules are only WARN.

    Raises:
        ContractError: the labels are missing, or have no task in their metadata.
    """
    task = read_task(layout.labels(cohort))
    late_severity: Severity = "ERROR" if task.features.clock == "available_at" else "WARN"
    contract = labels_schema(task.label_type)
    rules = (
        *not_null_as_in(contract),
        unique("subject_id", "index_encounter"),
        one_of("split", SPLITS),
        after("predict_at", "index_start", or_equal=True),
        after("outcome_time", "predict_at", severity=late_severity),
        between("follow_up_days", 0, severity=late_severity),
        *_label_rules(task),
    )
    cross_table_rules = (
        holds("split_is_that_of_its_subject", "split = subject_split", "split"),
        holds("index_is_an_encounter", "start IS NOT NULL", "index_encounter", "subject_id"),
        holds("index_starts_with_its_encounter", "index_start = start", "index_start"),
        holds(
            "index_has_an_end", 'CASE WHEN start IS NOT NULL THEN "end" IS NOT NULL END', "index_encounter"
        ),
        *_within_the_stay(task, late_severity),
    )
    query = """
        SELECT l.split, l.index_start, l.predict_at, s.split AS subject_split, e.start, e.end
        FROM labels l LEFT JOIN subjects s USING (subject_id)
        LEFT JOIN encounters e ON l.subject_id = e.subject_id AND l.index_encounter = e.encounter_id"""
    tables = (
        SuiteTable("labels", layout.labels(cohort), contract),
        SuiteTable("subjects", layout.subjects, SUBJECTS),
        SuiteTable("encounters", layout.encounters, ENCOUNTERS),
    )
    views = (
        View("labels_rules", "FROM labels", rules),
        View("labels_in_stays", query, cross_table_rules),
        _splits(task),
    )
    return Suite(f"{cohort}_labels", tables, views, no_rows="WARN", discloses_rows=False)


def _within_the_stay(task: Task, severity: Severity) -> tuple[Rule, ...]:
    """Return the rule that the prediction is within the stay, unless the task predicts after `index.end` by design."""
    if task.predict_anchor == "index.end" and (task.predict_months or task.predict_offset_us):
        return ()
    return (holds("prediction_is_within_the_stay", 'predict_at <= "end"', "predict_at", severity=severity),)


def _label_rules(task: Task) -> tuple[Rule, ...]:
    if task.label_type == "class":
        return (one_of("label", task.classes),)
    if task.label_type == "list":
        classes = "[" + ", ".join("'" + name.replace("'", "''") + "'" for name in task.classes) + "]"
        return (
            holds("labels_are_classes_of_the_task", f"list_has_all({classes}, label)", "label"),
            holds("no_label_is_named_twice", "len(label) = len(list_distinct(label))", "label"),
        )
    if task.label_type == "number":
        return (holds("label_is_a_finite_number", "isfinite(label)", "label"),)
    if task.label_type == "time":
        days = "struct_extract(label, 'days')"
        return (holds("days_of_the_label_are_above_0", f"isfinite({days}) AND {days} > 0", "label"),)
    return ()


def _splits(task: Task) -> View:
    """Return a view with one row per split; each needs at least two classes, or one for a list of labels."""
    label, min_classes = {
        "list": ("unnest(label)", 1),
        "time": ("struct_extract(label, 'event')", 2),  # some seen, some censored
    }.get(task.label_type, ("label", 2))
    rule = holds(
        "split_has_classes_to_tell_apart", f"classes >= {min_classes}", "label", "split", severity="WARN"
    )
    query = f"""
        SELECT split, count(DISTINCT label) AS classes
        FROM (SELECT unnest({list(SPLITS)}) AS split) LEFT JOIN (SELECT split, {label} AS label FROM labels)
        USING (split) GROUP BY split"""
    return View("labels_by_split", query, (rule,), private=False)

"""The expectations of a cohort's labels, counted in plain polars, to compare with `schemas.expectations.labels`."""

from pathlib import Path

import polars as pl
import pyarrow as pa

from schemas.contract import read_table
from schemas.layout import Layout
from schemas.tables.events import ENCOUNTERS, SPLITS, SUBJECTS
from schemas.tables.labels import labels_schema, read_task


def _frame(path: Path, schema: pa.Schema) -> pl.DataFrame:
    return pl.DataFrame(read_table(path, schema))


def broken_rules(layout: Layout, cohort: str) -> dict[str, int]:
    """Return how many label rows break each expectation; empty where the labels are sound.

    Under the clock `time` a prediction may fall after the stay's end and its outcome.
    """
    path = layout.labels(cohort)
    task = read_task(path)
    stays = _frame(layout.encounters, ENCOUNTERS).select(
        "subject_id", "start", "end", index_encounter="encounter_id"
    )
    people = _frame(layout.subjects, SUBJECTS).select("subject_id", subject_split="split")
    rows = (
        _frame(path, labels_schema(task.label_type))
        .join(stays, on=["subject_id", "index_encounter"], how="left")
        .join(people, on="subject_id", how="left")
    )
    rules = {
        "index_is_an_encounter": pl.col("start").is_null(),
        "index_starts_with_its_encounter": pl.col("start") != pl.col("index_start"),
        "index_has_an_end": pl.col("start").is_not_null() & pl.col("end").is_null(),
        "predict_at_is_not_before_index_start": pl.col("predict_at") < pl.col("index_start"),
        "split_is_one_of_its_values": ~pl.col("split").is_in(SPLITS),
        "split_is_that_of_its_subject": pl.col("split") != pl.col("subject_split"),
        "subject_id_and_index_encounter_is_unique": pl.struct(
            "subject_id", "index_encounter"
        ).is_duplicated(),
    }
    if task.features.clock == "available_at":
        rules["outcome_time_is_after_predict_at"] = pl.col("outcome_time") <= pl.col("predict_at")
        if task.predict_anchor == "index.start" or not (task.predict_months or task.predict_offset_us):
            rules["prediction_is_within_the_stay"] = pl.col("predict_at") > pl.col("end")
    counts = {
        rule: int(rows.select(breaks_rule.fill_null(False).sum()).item())
        for rule, breaks_rule in rules.items()
    }
    return {rule: count for rule, count in counts.items() if count}

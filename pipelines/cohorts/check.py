"""The blocking check on labels: no row is predicted outside its stay, twice, or after its outcome."""

import polars as pl

from pipelines.cohorts.labels import read_frame
from schemas.contract import table_metadata
from schemas.errors import ContractError
from schemas.events import ENCOUNTERS, SUBJECTS
from schemas.labels import Task, labels_schema
from schemas.layout import Layout


def read_task(layout: Layout, name: str) -> Task:
    """Return what the labels of a cohort say of themselves."""
    path = layout.labels(name)
    if not path.exists():
        raise ContractError(f"labels/1: no file {path}; materialize the asset that writes it first.")
    return Task.model_validate_json(table_metadata(path)["task"])


def check_labels(layout: Layout, name: str) -> dict[str, int]:
    """Return how many label rows break each rule; all zero where the labels are sound.

    Under `features.clock == "time"` (preset paper) a prediction may fall after the stay's end and its
    outcome: those two rules are not looked at.
    """
    task = read_task(layout, name)
    labels = read_frame(layout.labels(name), labels_schema(task.label_type))
    encounters = read_frame(layout.encounters, ENCOUNTERS)
    subjects = read_frame(layout.subjects, SUBJECTS)
    stays = encounters.select("subject_id", "start", "end", index_encounter="encounter_id")
    rows = labels.join(stays, on=["subject_id", "index_encounter"], how="left").join(
        subjects.select("subject_id", subject_split="split"), on="subject_id", how="left"
    )
    rules = {
        "index is no stay of the patient": pl.col("start").ne_missing(pl.col("index_start")),
        "index has no end": pl.col("end").is_null(),
        "predicted before the stay": pl.col("predict_at") < pl.col("index_start"),
        "split is not the patient's": pl.col("split").ne_missing(pl.col("subject_split")),
        "index stands twice": pl.struct("subject_id", "index_encounter").is_duplicated(),
    }
    if task.features.clock == "available_at":
        rules["outcome at or before the prediction"] = pl.col("outcome_time") <= pl.col("predict_at")
        if task.predict_anchor == "index.start":
            rules["predicted after the stay"] = pl.col("predict_at") > pl.col("end")
    return {rule: int(rows.select(broken.fill_null(False).sum()).item()) for rule, broken in rules.items()}

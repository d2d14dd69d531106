"""Tests of the task of a label table: it is read back, and a file without a task raises an error."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.contract import write_table
from schemas.errors import ContractError
from schemas.tables.labels import Features, Task, labels_schema, read_task

TASK = Task(
    cohort="mimic_mortality",
    about="death in the stay",
    label_type="bool",
    classes=("false", "true"),
    features=Features(),
    predict_at="index.start + 24 hours",
    predict_anchor="index.start",
    predict_offset_us=24 * 3600 * 10**6,
    cohort_sha256="0" * 64,
)


def write_labels(path, task: str | None):
    schema = labels_schema("bool")
    metadata = {} if task is None else {"task": task}
    write_table(schema.empty_table(), path, schema, made_by="a test", metadata=metadata)
    return path


def test_read_task_returns_the_written_task(tmp_path):
    path = write_labels(tmp_path / "labels.parquet", TASK.model_dump_json())
    assert read_task(path) == TASK


def test_missing_labels_name_their_asset(tmp_path):
    with pytest.raises(ContractError, match=r"no file .*labels\.parquet; materialize"):
        read_task(tmp_path / "labels.parquet")


def test_labels_without_a_task_are_refused(tmp_path):
    with pytest.raises(ContractError, match="its metadata have no task; materialize"):
        read_task(write_labels(tmp_path / "labels.parquet", None))


@pytest.mark.parametrize("task_json", ["{", '{"cohort": "private text"}'])
def test_invalid_task_is_refused_without_quoting_a_value(tmp_path, task_json):
    path = write_labels(tmp_path / "labels.parquet", task_json)
    with pytest.raises(ContractError, match="materialize its asset again") as error:
        read_task(path)
    assert "private text" not in str(error.value)
    assert error.value.__cause__ is None


def test_truncated_file_is_refused(tmp_path):
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ContractError, match="not a complete Parquet file"):
        read_task(path)

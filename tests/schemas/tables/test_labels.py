"""The task of a label table: read in one place, and a file without one says what to do."""

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


def write_labels_of(path, task: str | None):
    schema = labels_schema("bool")
    metadata = {} if task is None else {"task": task}
    write_table(schema.empty_table(), path, schema, made_by="a test", metadata=metadata)
    return path


def test_the_task_written_into_labels_is_read_back(tmp_path):
    path = write_labels_of(tmp_path / "labels.parquet", TASK.model_dump_json())
    assert read_task(path) == TASK


def test_labels_that_are_not_there_ask_for_their_asset(tmp_path):
    with pytest.raises(ContractError, match=r"no file .*labels\.parquet; materialize"):
        read_task(tmp_path / "labels.parquet")


def test_labels_without_a_task_are_refused(tmp_path):
    with pytest.raises(ContractError, match="does not say which task it is of; materialize"):
        read_task(write_labels_of(tmp_path / "labels.parquet", None))


@pytest.mark.parametrize("written", ["{", '{"cohort": "private text"}'])
def test_a_task_that_cannot_be_read_is_refused_without_quoting_it(tmp_path, written):
    path = write_labels_of(tmp_path / "labels.parquet", written)
    with pytest.raises(ContractError, match="materialize its asset again") as caught:
        read_task(path)
    assert "private text" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_cut_file_is_refused(tmp_path):
    path = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(ContractError, match="no whole Parquet file"):
        read_task(path)

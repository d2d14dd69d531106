"""Labels show the numbers of their rows only where the attrition of their cohort does."""

import pyarrow.parquet as pq
import pytest

from nest_model.data.labels import PART_KEY, Labels
from schemas.contract import write_table
from schemas.suppress import WITHHELD, disclosing
from schemas.tables.labels import labels_schema, read_task
from tests.silent_faults.leaky_world import write_leaky_hospital
from tests.support.attrition import write_attrition


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cohort")
    write_leaky_hospital(folder, lambda stay: None)
    return folder


def read_beside_attrition(folder, dropped: int) -> Labels:
    """Read the labels beside an attrition that drops so many patients, each with one stay."""
    write_attrition(folder, len(Labels.read(folder / "labels.parquet")), dropped=dropped)
    return Labels.read(folder / "labels.parquet")


def shown_of(labels: Labels) -> list[str]:
    return [labels.shown_rows(*splits) for splits in ((), ("train",), ("val",), ("test",), ("train", "val"))]


def test_rows_are_shown_where_the_attrition_shows_them(folder):
    labels = read_beside_attrition(folder, dropped=11)
    sizes = [int((labels.split == split).sum()) for split in ("train", "val", "test")]
    assert shown_of(labels) == [str(n) for n in (sum(sizes), *sizes, sizes[0] + sizes[1])]


def test_no_rows_are_shown_where_few_patients_were_dropped(folder):
    labels = read_beside_attrition(folder, dropped=10)
    assert shown_of(labels) == [WITHHELD] * 5
    assert shown_of(labels.with_share(0.5, seed=1)) == [WITHHELD] * 5


def test_of_a_share_of_the_patients_the_test_rows_alone_are_shown(folder):
    """The rest of a split could be subtracted from its rows."""
    labels = read_beside_attrition(folder, dropped=11).with_share(0.5, seed=1)
    num_test = int((labels.split == "test").sum())
    assert shown_of(labels) == [WITHHELD, WITHHELD, WITHHELD, str(num_test), WITHHELD]


def test_no_rows_of_labels_that_are_part_of_a_cohort_are_shown(folder, tmp_path):
    table = pq.read_table(folder / "labels.parquet")
    schema = labels_schema("bool")
    metadata = {"task": read_task(folder / "labels.parquet").model_dump_json(), PART_KEY: "a draw"}
    write_table(
        table.select(schema.names), tmp_path / "part.parquet", schema, made_by="a test", metadata=metadata
    )
    assert shown_of(Labels.read(tmp_path / "part.parquet")) == [WITHHELD] * 5
    with disclosing(True):
        assert WITHHELD not in shown_of(Labels.read(tmp_path / "part.parquet"))


def test_rows_of_synthetic_patients_are_shown(folder):
    with disclosing(True):
        labels = read_beside_attrition(folder, dropped=10)
        assert WITHHELD not in shown_of(labels)

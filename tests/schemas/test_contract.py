"""Tests that tables are written and read under a contract, or refused without quoting a value."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import contract
from schemas.contract import (
    ContractError,
    conform,
    contract_name,
    read_table,
    table_metadata,
    write_table,
)
from schemas.contracts import CONTRACTS, descriptions
from schemas.errors import WriteError
from schemas.tables.columns import description_of
from schemas.tables.events import ENCOUNTERS, EVENTS, SUBJECTS
from schemas.tables.seqset import SEQSET
from schemas.tables.vocab import VOCAB

CANARY = "MRN-4711"
THINGS = pa.schema(
    [
        pa.field("thing_id", pa.int64(), nullable=False),
        pa.field("weight_kg", pa.float64()),
        pa.field("counts", pa.list_(pa.uint8())),
        pa.field("time", pa.timestamp("us")),
    ],
    metadata={"contract": "things/1"},
)
OTHERS = THINGS.with_metadata({"contract": "others/1"})


def things(**columns: object) -> pa.Table:
    sound = {"thing_id": [1, 2], "weight_kg": [0.5, None], "counts": [[1], []], "time": [None, None]}
    return pa.table(sound | columns)


def test_conform_returns_the_order_types_and_metadata_of_the_contract() -> None:
    table = things(more=[0, 0]).select(["more", "time", "counts", "weight_kg", "thing_id"])
    assert conform(table, THINGS, made_by="weigh").schema.equals(THINGS, check_metadata=True)


def test_missing_column_message_names_column_maker_and_existing_columns() -> None:
    with pytest.raises(
        ContractError, match=r"things/1: no column weight_kg, time in the output of weigh, which has"
    ):
        conform(things().drop_columns(["weight_kg", "time"]), THINGS, made_by="weigh")


def test_null_key_is_refused_with_the_number_of_rows() -> None:
    with pytest.raises(ContractError, match=r"things/1\.thing_id: 1 of 2 rows are null after weigh"):
        conform(things(thing_id=[None, 2]), THINGS, made_by="weigh")


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("thing_id", [CANARY, "2"]),
        ("weight_kg", [CANARY, None]),
        ("counts", [[4711], []]),
        ("time", [CANARY, None]),
        ("thing_id", [4711.5, 2.0]),
        ("thing_id", [{"a": CANARY}, None]),
        ("counts", [CANARY, None]),
    ],
)
def test_failed_cast_names_column_and_type_but_no_value(column: str, values: list[object]) -> None:
    with pytest.raises(ContractError, match=rf"things/1\.{column}: ") as error:
        conform(things(**{column: values}), THINGS, made_by="weigh")
    assert "4711" not in str(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None


@given(st.lists(st.text(min_size=1, alphabet="QWXZ0123456789"), min_size=2, max_size=2))
def test_conform_never_quotes_a_value(texts: list[str]) -> None:
    canaries = [f"\u2603{text}\u2603" for text in texts]
    for column in THINGS.names:
        with pytest.raises(ContractError) as error:
            conform(things(**{column: canaries}), THINGS, made_by="weigh")
        assert "\u2603" not in str(error.value)


def test_table_is_read_back_with_its_metadata(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "things.parquet"
    write_table(things(), path, THINGS, made_by="weigh", metadata={"note": "ä"})
    assert read_table(path, THINGS).equals(conform(things(), THINGS, made_by="weigh"))
    assert table_metadata(path) == {"contract": "things/1", "note": "ä"}


def test_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_table(things(), tmp_path / name, THINGS, made_by="weigh")
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()


def test_ascending_numbers_are_delta_encoded_and_repeated_ones_plain(tmp_path: Path) -> None:
    path, rows = tmp_path / "things.parquet", range(5000)
    rising = things(
        thing_id=[row // 100 for row in rows],
        weight_kg=[row / 8 for row in rows],
        counts=[[row % 200] for row in rows],
        time=[1_000_000 * row for row in rows],
    )
    write_table(rising, path, THINGS, made_by="weigh")
    group = pq.ParquetFile(path).metadata.row_group(0)
    columns = [group.column(place) for place in range(group.num_columns)]
    by_steps = {column.path_in_schema: "DELTA_BINARY_PACKED" in column.encodings for column in columns}
    assert by_steps == {"thing_id": False, "weight_kg": False, "counts.list.element": True, "time": True}
    # lz4 compresses repeated values and delta encoding ascending ones: far below eight bytes per value
    sizes = {column.path_in_schema: column.total_compressed_size / len(rows) for column in columns}
    assert sizes["thing_id"] < 0.5
    assert sizes["time"] < 0.5
    assert read_table(path, THINGS).equals(conform(rising, THINGS, made_by="weigh"))


def test_choice_of_encoding_copies_no_data() -> None:
    rows = 500_000
    table = pa.table(
        {"time": pa.array(range(rows), pa.timestamp("us")), "lists": pa.array([[row] for row in range(rows)])}
    )
    usual, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        repeats = {name: contract._repeats(contract._values(table[name])) for name in table.column_names}
    finally:
        pa.set_memory_pool(usual)
    assert repeats == {"time": False, "lists": False}
    assert pool.max_memory() < rows, "less than a byte a row"


def test_choice_of_encoding_samples_the_whole_column(tmp_path: Path) -> None:
    rows = range(50_000)
    ids = [0 if row < 1_500 else 1_000_000 * row for row in rows]
    rest = {"weight_kg": [1.0] * len(rows), "counts": [[1]] * len(rows), "time": [0] * len(rows)}
    write_table(things(thing_id=ids, **rest), tmp_path / "things.parquet", THINGS, made_by="weigh")
    of_ids = pq.ParquetFile(tmp_path / "things.parquet").metadata.row_group(0).column(0)
    assert "DELTA_BINARY_PACKED" in of_ids.encodings


@pytest.mark.parametrize(
    "column",
    [[], [None, None], [None, 5, 5, 5], [7], [None, *[3] * 2000, *range(2000), None]],
    ids=["no rows", "nulls", "repeats", "one", "repeats at first"],
)
def test_numbers_are_read_back_from_any_encoding(column: list[int | None], tmp_path: Path) -> None:
    lists = [None if value is None else [value % 256] * 2 for value in column]
    table = pa.table(
        {
            "thing_id": pa.array([value or 0 for value in column], pa.int64()),
            "weight_kg": pa.nulls(len(column), pa.float64()),
            "counts": pa.array(lists, pa.list_(pa.int64())),
            "time": pa.array(column, pa.timestamp("us")),
        }
    )
    write_table(table, tmp_path / "things.parquet", THINGS, made_by="weigh")
    assert read_table(tmp_path / "things.parquet", THINGS).equals(conform(table, THINGS, made_by="weigh"))


def test_write_table_leaves_the_earlier_file_when_conform_fails(tmp_path: Path) -> None:
    path = tmp_path / "things.parquet"
    write_table(things(), path, THINGS, made_by="weigh")
    earlier = path.read_bytes()
    with pytest.raises(ContractError):
        write_table(things(thing_id=[None, 2]), path, THINGS, made_by="weigh")
    assert path.read_bytes() == earlier


@pytest.mark.parametrize("step", ["write", "rename"])
def test_write_table_leaves_the_earlier_file_when_the_disk_is_full(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "things.parquet"
    write_table(things(), path, THINGS, made_by="weigh")
    earlier = path.read_bytes()

    def full(part: Path, *_: object, **__: object) -> None:
        if step == "write":
            part.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*((pq, "ParquetWriter", full) if step == "write" else (Path, "replace", full)))
    with pytest.raises(
        WriteError, match=r"things\.parquet: cannot be written \(No space left on device\)"
    ) as error:
        write_table(things(weight_kg=[9.0, 9.0]), path, THINGS, made_by="weigh")
    assert error.value.__suppress_context__
    assert path.read_bytes() == earlier
    assert list(tmp_path.iterdir()) == [path]


def test_write_table_raises_when_the_folder_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(WriteError, match="cannot be written"):
        write_table(things(), tmp_path / "file" / "things.parquet", THINGS, made_by="weigh")


def test_read_table_reads_a_folder_in_the_order_of_file_names(tmp_path: Path) -> None:
    for name, ids in (("b", [3, 4]), ("a", [1, 2])):
        write_table(things(thing_id=ids), tmp_path / f"{name}.parquet", THINGS, made_by="weigh")
    assert read_table(tmp_path, THINGS)["thing_id"].to_pylist() == [1, 2, 3, 4]


def test_read_table_refuses_a_foreign_contract_in_any_file(tmp_path: Path) -> None:
    write_table(things(), tmp_path / "a.parquet", THINGS, made_by="weigh")
    write_table(things(), tmp_path / "b.parquet", OTHERS, made_by="weigh")
    with pytest.raises(ContractError, match=r"b\.parquet: contract is others/1, expected things/1"):
        read_table(tmp_path, THINGS)


def test_read_table_refuses_a_file_without_a_contract(tmp_path: Path) -> None:
    pq.write_table(pa.table({"thing_id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ContractError, match="contract is none, expected things/1"):
        read_table(tmp_path, THINGS)


def test_read_table_refuses_a_file_without_a_column_of_the_contract(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"thing_id": [1]}).replace_schema_metadata(THINGS.metadata), tmp_path / "a.parquet"
    )
    with pytest.raises(ContractError, match="no column counts, time, weight_kg"):
        read_table(tmp_path / "a.parquet", THINGS)


@pytest.mark.parametrize("kept_bytes", [0, 3, 200])
def test_read_table_refuses_a_truncated_file(kept_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "things.parquet"
    write_table(things(), path, THINGS, made_by="weigh")
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(ContractError, match="not a complete Parquet file"):
        read_table(path, THINGS)


def test_missing_file_or_empty_folder_message_says_what_to_do(tmp_path: Path) -> None:
    for path in (tmp_path / "things.parquet", tmp_path):
        with pytest.raises(ContractError, match="materialize the asset that writes it first"):
            read_table(path, THINGS)


@pytest.mark.parametrize("name", CONTRACTS)
def test_every_column_of_a_contract_has_a_description(name: str) -> None:
    assert [field.name for field in CONTRACTS[name] if len(description_of(field)) < 5] == []


def test_descriptions_are_those_of_the_file_s_contract(tmp_path: Path) -> None:
    path = tmp_path / "subjects.parquet"
    write_table(SUBJECTS.empty_table(), path, SUBJECTS, made_by="the test")
    assert descriptions(pq.read_schema(path))["split"] == "train, val or test, of every task"
    assert descriptions(pa.schema([pa.field("split", pa.string())])) == {}


@pytest.mark.parametrize("schema", [SUBJECTS, ENCOUNTERS, EVENTS, SEQSET, VOCAB], ids=contract_name)
def test_descriptions_of_common_columns_fit_every_source(schema: pa.Schema):
    text = " ".join(descriptions(schema).values())
    for named_together in ("the patient or buyer", "the stay, visit or order"):
        text = text.replace(named_together, "")
    assert re.findall(r"hospital|patient|\bstay|admission|discharge|admitted", text) == []

"""`held_out` is read in every form, and an invalid one is refused without quoting its values."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nest_model.next_set.held_out import read_held_out
from schemas.errors import InputError


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_held_out_is_read_in_every_form(suffix: str, tmp_path: Path):
    table = pa.table(
        {"order_id": [3, 3], "product_id": [8, 9], "add_to_cart_order": [1, 2], "reordered": [0, 1]}
    )
    text = "order_id,product_id,add_to_cart_order,reordered\n3,8,1,0\n3,9,2,1\n"
    path = tmp_path / f"held_out.{suffix}"
    match suffix:
        case "csv":
            path.write_text(text)
        case "csv.gz":
            path.write_bytes(gzip.compress(text.encode()))
        case _:
            pq.write_table(table, path)
    order, product = read_held_out(tmp_path)
    assert (order.tolist(), product.tolist()) == ([3, 3], [8, 9])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("held_out.csv", b"order_id,product_id\n1,secret\n", "integer columns"),
        ("held_out.csv", b"order_id,product_id\n1,\n", "1 of 2 ids are missing"),
        ("held_out.csv", b"order_id\n1\n", "cannot be read"),
        ("held_out.csv", b"", "cannot be read"),
        (
            "held_out.csv.gz",
            gzip.compress(b"order_id,product_id\n1,2\n" * 500, mtime=0)[:40],
            "cannot be read",
        ),
        ("held_out.parquet", b"secret", "cannot be read"),
        ("other.csv", b"", "no such file"),
    ],
)
def test_an_invalid_held_out_raises_an_error_without_values(
    name: str, content: bytes, message: str, tmp_path: Path
):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match="held_out") as error:
        read_held_out(tmp_path)
    assert message in str(error.value)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None

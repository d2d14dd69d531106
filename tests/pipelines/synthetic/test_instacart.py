"""The synthetic Instacart has the form of the download, is reproducible, and contains learnable patterns."""

import hashlib
from pathlib import Path

import polars as pl
import pytest

from pipelines.synthetic.instacart import write_instacart
from pipelines.synthetic.instacart.__main__ import main
from schemas.errors import WriteError

USERS = 600


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("instacart")
    write_instacart(folder, users=USERS, seed=7)
    return folder


def table(folder: Path, name: str) -> pl.DataFrame:
    return pl.read_csv(folder / f"{name}.csv")


def lines(folder: Path) -> pl.DataFrame:
    """Return every product of every order, including held-out orders, with the columns of the order."""
    names = ("order_products__prior", "order_products__train", "held_out")
    return pl.concat(table(folder, name) for name in names).join(table(folder, "orders"), on="order_id")


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_tables_have_the_columns_of_the_download(raw: Path):
    heads = {path.stem: path.open().readline().strip() for path in raw.glob("[!.]*")}
    products = "order_id,product_id,add_to_cart_order,reordered"
    assert heads == {
        "orders": "order_id,user_id,eval_set,order_number,order_dow,order_hour_of_day,days_since_prior_order",
        "order_products__prior": products,
        "order_products__train": products,
        "held_out": products,
        "products": "product_id,product_name,aisle_id,department_id",
        "aisles": "aisle_id,aisle",
        "departments": "department_id,department",
    }
    first, second = (raw / "orders.csv").read_text().splitlines()[1:3]
    assert first.endswith(",")
    assert second.endswith(".0")


def test_every_order_has_products_without_duplicates(raw: Path):
    order_lines = lines(raw)
    assert order_lines["order_id"].n_unique() == table(raw, "orders").height
    assert not order_lines.select("order_id", "product_id").is_duplicated().any()
    assert set(order_lines["product_id"]) <= set(table(raw, "products")["product_id"])


def test_only_the_last_order_is_train_or_test_in_a_separate_file(raw: Path):
    orders = table(raw, "orders").sort("user_id", "order_number")
    assert (
        orders["order_number"] == orders.select(pl.int_range(pl.len()).over("user_id") + 1).to_series()
    ).all()
    is_last = orders["user_id"] != orders["user_id"].shift(-1).fill_null(0)
    assert ((orders["eval_set"] != "prior") == is_last).all()
    for name, eval_set in (("prior", "prior"), ("train", "train")):
        ids = table(raw, f"order_products__{name}")["order_id"]
        assert set(ids) == set(orders.filter(pl.col("eval_set") == eval_set)["order_id"])
    assert set(table(raw, "held_out")["order_id"]) == set(
        orders.filter(pl.col("eval_set") == "test")["order_id"]
    )


def test_reordered_flags_products_the_user_bought_before(raw: Path):
    order_lines = lines(raw).sort("user_id", "order_number")
    first = pl.col("order_number").min().over("user_id", "product_id")
    assert order_lines.select((pl.col("reordered") == (pl.col("order_number") > first)).all()).item()


def test_cart_positions_run_from_1_without_gaps(raw: Path):
    carts = lines(raw).group_by("order_id").agg(pl.len(), last=pl.col("add_to_cart_order").max())
    numbers = lines(raw).select("order_id", "add_to_cart_order")
    assert (carts["len"] == carts["last"]).all()
    assert not numbers.is_duplicated().any()


def test_synthetic_instacart_matches_real_order_sizes_and_reorder_rates(raw: Path):
    order_lines, orders = lines(raw), table(raw, "orders")
    assert 14 < orders.height / USERS < 19
    assert 9 < order_lines.height / orders.height < 12
    assert 0.45 < order_lines["reordered"].mean() < 0.70
    assert orders["days_since_prior_order"].max() == 30
    assert 0.30 < (orders["eval_set"] == "test").sum() / USERS < 0.43


def test_tastes_drift_so_the_recent_past_predicts_better(raw: Path):
    order_lines = lines(raw).select("user_id", "order_number", "product_id")
    long = order_lines.filter(pl.col("order_number").max().over("user_id") >= 40)

    def share_bought_again(gap: int) -> float:
        later = long.with_columns(order_number=pl.col("order_number") - gap)
        num_common = later.join(long, on=["user_id", "order_number", "product_id"], how="semi").height
        return num_common / later.filter(pl.col("order_number") > 0).height

    assert share_bought_again(1) > 1.5 * share_bought_again(30) > 0


def test_equal_seeds_give_equal_bytes_compressed_or_plain(tmp_path: Path):
    runs = [(tmp_path / "a", 7, True), (tmp_path / "b", 7, True), (tmp_path / "c", 8, True)]
    for folder, seed, is_compressed in runs:
        write_instacart(folder, users=40, seed=seed, gzip_files=is_compressed)
    first_run, repeat_run, other_seed = (hashes(folder) for folder, *_ in runs)
    assert first_run == repeat_run
    assert first_run["orders.csv.gz"] != other_seed["orders.csv.gz"]


def test_plain_files_replace_compressed_files(tmp_path: Path):
    write_instacart(tmp_path, users=10, seed=1, gzip_files=True)
    assert main(["--users", "10", "--seed", "1", "--out", str(tmp_path)]) == 0
    assert {path.suffix for path in tmp_path.glob("[!.]*")} == {".csv"}


@pytest.mark.parametrize("full", ["order_products__prior", "held_out"])
def test_full_disk_keeps_the_earlier_files_and_no_partial_file(tmp_path: Path, full: str):
    write_instacart(tmp_path, users=200, seed=1)
    bytes_before = hashes(tmp_path)
    (tmp_path / f".{full}.csv.part").symlink_to("/dev/full")
    with pytest.raises(WriteError, match=r"No space left on device.*the earlier files are untouched"):
        write_instacart(tmp_path, users=200, seed=2)
    assert hashes(tmp_path) == bytes_before


def test_leftovers_of_a_killed_run_are_removed_by_the_next_run(tmp_path: Path):
    write_instacart(tmp_path / "once", users=10, seed=1)
    (tmp_path / "again").mkdir()
    for leftover in (".orders.csv.part", ".orders.csv.gz.part"):
        (tmp_path / "again" / leftover).write_bytes(b"half a table")
    write_instacart(tmp_path / "again", users=10, seed=1)
    assert hashes(tmp_path / "again") == hashes(tmp_path / "once")


def test_folder_that_cannot_be_created_gives_a_single_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    assert main(["--users", "5", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith("error: ")

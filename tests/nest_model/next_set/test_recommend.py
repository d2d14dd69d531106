"""Lists for users nobody scores: the system that was scored, fitted again on the shop as it is."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from nest_model.__main__ import main
from schemas.contract import read_table
from schemas.tables.next_sets import RANKINGS
from tests.support.factories.shops import ShopFiles, Shopper, random_shoppers, write_shop

FAST = {
    "lightgbm": ["--option=trees=5", "--option=min_leaf=5"],
    "recanet": [
        "--option=epochs=1",
        "--option=item_size=8",
        "--option=user_size=8",
        "--option=batch_rows=500",
    ],
}
SYSTEMS = ("lightgbm", "decayed", "recanet")


def run(command: str, shop: ShopFiles, out: Path, *flags: str) -> int:
    paths = [f"--{name}={path}" for name, path in shop.paths.items()]
    return main([command, *paths, f"--out={out}", "--device=cpu", "--threads=1", *flags])


def lists_of(file: Path) -> dict[int, list[int]]:
    table = read_table(file, RANKINGS)
    assert set(table["seed"].to_pylist()) == {42}
    return dict(zip(table["subject_id"].to_pylist(), table["product_ids"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> ShopFiles:
    return write_shop(tmp_path_factory.mktemp("shop"), random_shoppers(3, users=60))


def score(shop: ShopFiles, out: Path, *flags: str) -> Path:
    # the hidden orders' questions are about whole visible histories, as recommendations are
    question = ("--target=held_out", f"--raw={shop.root}", "--query-time=expected")
    assert run("next-basket", shop, out, *question, "--points=2", "--seeds=42", *flags) == 0
    return out


@pytest.mark.parametrize("name", SYSTEMS)
def test_lists_are_those_of_the_scored_run(name: str, shop: ShopFiles, tmp_path: Path):
    fast = FAST.get(name, [])
    scored_run = score(shop, tmp_path / "scored", f"--system={name}", "--training-users=12", *fast)
    assert run("recommend", shop, tmp_path / "lists", f"--scored={scored_run}") == 0
    lists = lists_of(tmp_path / "lists" / "recommendations.parquet")
    scored_lists = lists_of(scored_run / "rankings.parquet")
    assert {*scored_lists} < {*lists}
    assert all(lists[user][: len(products[:10])] == products[:10] for user, products in scored_lists.items())
    # a sample of twelve users learns something else than all of them do
    everybody = score(shop, tmp_path / "all", f"--system={name}", "--training-users=0", *fast)
    if name in FAST:
        assert lists_of(everybody / "rankings.parquet") != scored_lists


def test_new_users_have_lists_of_the_shop_s_products(shop: ShopFiles, tmp_path: Path):
    scored_run = score(shop, tmp_path / "scored", "--system=decayed")
    shop_products = shop.read().learning_data.training.product_id.tolist()
    new = write_shop(
        tmp_path / "new",
        {900: Shopper("test", [[shop_products[0], 5], [shop_products[0]]]), 901: Shopper("test", [[5]])},
    )
    flags = [f"--scored={scored_run}", f"--users={new.paths['baskets']}", "--top=3"]
    assert run("recommend", shop, tmp_path / "lists", *flags) == 0
    lists = lists_of(tmp_path / "lists" / "recommendations.parquet")
    assert [*lists] == [900]  # the other bought nothing that the shop knows
    assert lists[900][0] == shop_products[0]
    assert len({*lists[900]}) == 3
    assert {*lists[900]} <= {*shop_products}


def test_shop_without_a_question_is_served(tmp_path: Path):
    shoppers = random_shoppers(3, users=40)
    short = {user: replace(each, baskets=each.baskets[:1], days=()) for user, each in shoppers.items()}
    shop = write_shop(
        tmp_path / "shop",
        {user: short[user] if each.split == "test" else each for user, each in shoppers.items()},
    )
    scored_run = score(shop, tmp_path / "scored", "--system=decayed")
    assert run("recommend", shop, tmp_path / "lists", f"--scored={scored_run}") == 0
    assert {*lists_of(tmp_path / "lists" / "recommendations.parquet")} == {*shoppers}
    assert {path.name for path in (tmp_path / "lists").iterdir()} <= {
        "recommendations.parquet", "metrics.jsonl", ".made_by_nest.json"
    }  # fmt: skip


def message_of(capfd: pytest.CaptureFixture) -> str:
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("error: ")]
    return line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; give the output folder of a finished next-basket run"),
        ({"auroc": 0.7}, "not written by this version of next-basket; run next-basket again"),
    ],
)
def test_folder_of_another_run_is_refused(
    content: dict | None, message: str, shop: ShopFiles, tmp_path: Path, capfd: pytest.CaptureFixture
):
    if content is not None:
        (tmp_path / "metrics.json").write_text(json.dumps(content))
    assert run("recommend", shop, tmp_path / "lists", f"--scored={tmp_path}") == 2
    assert message in message_of(capfd)
    assert not (tmp_path / "lists" / "recommendations.parquet").exists()


def test_another_backbone_than_the_scored_is_refused(
    shop: ShopFiles, tmp_path: Path, capfd: pytest.CaptureFixture
):
    scored_run = score(shop, tmp_path / "scored", "--system=decayed")
    card = json.loads((scored_run / "metrics.json").read_text())
    (scored_run / "metrics.json").write_text(
        json.dumps(card | {"system": "nest", "backbone_sha256": ["a", "b"]})
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "vocab.parquet").write_bytes(b"of another model")
    flags = [
        f"--scored={scored_run}",
        f"--pretrained={tmp_path / 'model'}",
        f"--vocab={tmp_path / 'vocab.parquet'}",
    ]
    assert run("recommend", shop, tmp_path / "lists", *flags) == 2
    assert "not the pretrained NEST, or not the vocabulary, that nest was scored with" in message_of(capfd)


@pytest.mark.parametrize("users", [{7: Shopper("test", [[5]])}, {7: Shopper("test", [[]])}])
def test_users_without_a_product_of_the_shop_are_refused(
    users: dict[int, Shopper], shop: ShopFiles, tmp_path: Path, capfd: pytest.CaptureFixture
):
    scored_run = score(shop, tmp_path / "scored", "--system=decayed")
    new = write_shop(tmp_path / "new", users)
    flags: Sequence[str] = [f"--scored={scored_run}", f"--users={new.paths['baskets']}"]
    assert run("recommend", shop, tmp_path / "lists", *flags) == 2
    assert "no basket holds a product of the shop" in message_of(capfd)


def test_list_of_no_product_is_refused(shop: ShopFiles, tmp_path: Path, capfd: pytest.CaptureFixture):
    with pytest.raises(SystemExit, match="2"):
        run("recommend", shop, tmp_path, f"--scored={tmp_path}", "--top=0")
    assert "argument --top: '0' is no whole number of 1 or more" in capfd.readouterr().err

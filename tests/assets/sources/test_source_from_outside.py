"""A source that a package of its own adds, as docs/sources.md shows it: nothing of NEST is changed for it."""

import os
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from schemas.layout import Layout
from tests.support.commands import ROOT, run

PAGE = (ROOT / "docs" / "sources.md").read_text()
CUSTOMERS, PRODUCTS = 120, 30


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's package as pip would install it, and the lines of a till."""
    folder = tmp_path_factory.mktemp("installed")
    code = dict(zip(("spec", "steps"), re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL), strict=True))
    (folder / "corner_shop").mkdir()
    (folder / "corner_shop" / "__init__.py").write_text("")
    for name, text in code.items():
        (folder / "corner_shop" / f"{name}.py").write_text(text)
    (folder / "corner_shop-1.0.dist-info").mkdir()
    (folder / "corner_shop-1.0.dist-info" / "METADATA").write_text("Name: corner-shop\nVersion: 1.0\n")
    entry_point = re.search(r'^\[project\.entry-points\."(.+)"\]\n(.+) = "(.+)"$', PAGE, re.MULTILINE)
    assert entry_point
    group, name, target = entry_point.groups()
    (folder / "corner_shop-1.0.dist-info" / "entry_points.txt").write_text(f"[{group}]\n{name} = {target}\n")
    return folder


def write_till(path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = {
        (customer, 7 * week, product)
        for customer in range(1, CUSTOMERS + 1)
        for week in range(3)
        for product in rng.integers(1, PRODUCTS, 5).tolist()
    }
    rows = "\n".join(",".join(map(str, line)) for line in sorted(lines))
    path.write_text(f"customer,day,product\n{rows}\n")


def materialize(package: Path, folder: Path, till: Path) -> str:
    """Materialize the source's assets up to its shards as a user does, and return its messages."""
    path = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    command = ("dagster", "job", "execute", "-j", "shop_etl")
    process = run(*command, folder=folder, PYTHONPATH=path, CORNER_SHOP_CSV=str(till))
    assert process.returncode == 0, process.output[-3_000:]
    return process.log


@pytest.mark.long
def test_source_of_a_package_is_materialized(package, tmp_path):
    write_till(tmp_path / "till.csv")
    materialize(package, tmp_path, tmp_path / "till.csv")
    layout = Layout(tmp_path / "data" / "shop")
    assert pq.read_table(layout.seqset / "shard-00000.parquet").num_rows == CUSTOMERS * 3
    assert pq.read_metadata(layout.subjects).num_rows == CUSTOMERS


@pytest.mark.long
def test_source_of_a_package_is_redone_where_its_code_changes(package, tmp_path):
    till = tmp_path / "till.csv"
    write_till(till)
    materialize(package, tmp_path, till)
    layout = Layout(tmp_path / "data" / "shop")
    assert materialize(package, tmp_path, till).count("unchanged: nothing to do") == 6
    steps = package / "corner_shop" / "steps.py"
    steps.write_text(steps.read_text().replace("hours=1)", "hours=2)"))
    materialize(package, tmp_path, till)  # code of the package is part of its steps' keys
    assert pq.read_table(layout.encounters)["end"][0].as_py().hour == 2
    assert pq.read_table(layout.seqset / "shard-00000.parquet").num_rows == CUSTOMERS * 3

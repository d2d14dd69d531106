import json

import pytest

from benchmarks.model import loader


@pytest.mark.long
def test_loader_memory_does_not_grow_with_the_shards(tmp_path):
    work, out = tmp_path / "work", tmp_path / "out"

    flags = ["--patients", "8000", "--seconds", "0.5", "--work", str(work), "--out", str(out)]
    assert loader.main(flags) == 0

    quarter, whole = json.loads((out / "loader.json").read_text())["sizes"]
    growth = whole["anonymous_bytes"] - quarter["anonymous_bytes"]
    assert whole["column_bytes"] > 4 * 25_000_000  # what an anonymous copy would take
    assert growth < 0.5 * (whole["column_bytes"] - quarter["column_bytes"])
    assert whole["packed_and_masked"]["tokens_per_s"] > 0
    assert "anonymous memory at its peak" in (out / "loader.md").read_text()
    assert not list(work.iterdir())

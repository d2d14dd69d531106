import json

import pytest

from benchmarks.model import loader


@pytest.mark.long
def test_memory_does_not_grow_with_the_shards_and_the_command_says_what_it_measured(tmp_path):
    work, out = tmp_path / "work", tmp_path / "out"

    flags = ["--patients", "8000", "--seconds", "0.5", "--work", str(work), "--out", str(out)]
    assert loader.main(flags) == 0

    quarter, whole = json.loads((out / "loader.json").read_text())["sizes"]
    grown = whole["anonymous_bytes"] - quarter["anonymous_bytes"]
    assert whole["column_bytes"] > 4 * 25_000_000  # what an anonymous copy would take
    assert grown < 0.5 * (whole["column_bytes"] - quarter["column_bytes"])
    assert whole["packed_and_masked"]["tokens_per_s"] > 0
    assert "anonymous memory at its peak" in (out / "loader.md").read_text()
    assert not list(work.iterdir())

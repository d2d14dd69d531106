"""The benchmark of systems that recommend next baskets."""

import json
from pathlib import Path

import pytest

from benchmarks.baskets import main
from pipelines.sources.instacart import baskets, steps


@pytest.mark.long
def test_benchmark_reports_sizes_and_cost_of_each_system_and_keeps_the_baskets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--users", "150", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    assert main([*options, "--systems", "p_topfreq", "tifuknn"]) == 0
    monkeypatch.setattr(steps, "inspect_raw", None)
    monkeypatch.setattr(baskets, "write_baskets", None)
    assert main([*options, "--systems", "p_topfreq", "tifuknn"]) == 0
    costs = json.loads((tmp_path / "out" / "baskets.json").read_text())["systems"]
    assert [cost["system"] for cost in costs] == ["p_topfreq", "tifuknn"]
    for cost in costs:
        assert 0 < cost["training_users"] + cost["test_users"] <= 150
        assert cost["process"]["peak_rss_mib"] > 0
        parts = cost["read_cpu_s"] + cost["fit_cpu_s"] + cost["rank_cpu_s"]
        assert 0 < parts <= cost["process"]["cpu_s"] + 0.1
    table = (tmp_path / "out" / "baskets.md").read_text()
    assert "| TIFUKNN |" in table


def test_unknown_system_stops_the_benchmark_before_anything_is_written(tmp_path: Path) -> None:
    options = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    assert main([*options, "--systems", "tifukn"]) == 2
    assert not list(tmp_path.iterdir())


def test_folder_with_other_results_is_refused_before_any_work(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "baskets.md").write_text("somebody's own table")
    with pytest.raises(SystemExit):
        main(["--work", str(tmp_path / "work"), "--out", str(out), "--systems", "tifuknn"])
    assert "argument --out" in (message := capsys.readouterr().err)
    assert "contains files that were not made here, such as baskets.md" in message
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert [path.name for path in out.iterdir()] == ["baskets.md"]

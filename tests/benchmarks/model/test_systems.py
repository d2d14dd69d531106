"""The benchmark of every system's step runs the product's own pretraining."""

import json

from benchmarks.model import systems


def test_each_stage_of_each_named_system_is_measured(tmp_path):
    names = ["nest", "gt_behrt"]
    flags = ["--model", "tiny", "--device", "cpu", "--patients", "60", "--steps", "1", "--systems", *names]

    code = systems.main([*flags, "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")])

    report = json.loads((tmp_path / "out" / "systems.json").read_text())
    assert code == 0
    assert [row["stage"] for row in report["rows"]] == ["mlm_msm", "nam", "mnp"]
    assert all(row["rows_per_second"] > 0 and row["parameters"] > 0 for row in report["rows"])
    assert not list((tmp_path / "work").glob("shards")), "the random shards are deleted"


def test_the_table_states_rates_as_shares_of_nests():
    rows = [
        {
            "system": name,
            "stage": "mlm",
            "parameters": 2_000_000,
            "rows_per_second": rate,
            "milliseconds_a_step": 10.0,
            "milliseconds_of_host_a_step": 2.0,
            "peak_mib": 512.0,
        }
        for name, rate in (("bert", 3_000.0), ("nest", 12_000.0))
    ]
    machine = {"device": "a GPU", "threads": None, "torch": "2.13.0", "load_1_min": 0.0}
    report = {"machine": machine, "model": "paper", "precision": "bf16-mixed", "steps": 3, "rows": rows}
    assert "| BERT | mlm | 2.0 | 3.0 | 0.25 | 10.0 | 2.0 | 0.50 |" in systems.as_markdown(report)

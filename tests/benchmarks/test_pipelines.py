import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import polars as pl
import pytest

from benchmarks.pipelines import extraction
from benchmarks.pipelines.__main__ import main
from benchmarks.pipelines.etl import COHORTS, LABELS, PLAIN
from benchmarks.pipelines.replicate import ID_STEP, replicate
from pipelines.synthetic.mimic.write import write_mimic
from schemas.cohort import read_folder
from tests.support.raw_tables import make_tables, write_tables


def test_replicated_rows_differ_in_the_ids_only(tmp_path):
    hosp, _ = write_tables(tmp_path, make_tables(1, patients=5))
    replicate(hosp, tmp_path / "twice", 2)
    for file in hosp.iterdir():
        once, twice = (
            pl.read_csv(folder / file.name, infer_schema=False) for folder in (hosp, tmp_path / "twice")
        )
        assert twice[: once.height].equals(once)
        ids = [name for name in ("subject_id", "hadm_id", "labevent_id") if name in once.columns]
        shifted_rows = once.with_columns(
            (pl.col(name).cast(pl.Int64) + ID_STEP).cast(pl.String) for name in ids
        )
        assert twice[once.height :].equals(shifted_rows)


@pytest.mark.long
def test_mimic_benchmark_reports_rows_seconds_and_memory_of_stages(tmp_path):
    raw = tmp_path / "raw"
    write_mimic(raw, tmp_path / "planted.parquet", patients=60, seed=1)
    folders = [
        "--mimic",
        str(raw / "hosp"),
        "--crosswalks",
        str(raw / "vocab"),
        "--work",
        str(tmp_path / "work"),
    ]
    assert main([*folders, "--times", "1", "2", "--out", str(tmp_path / "out")]) == 0
    once, twice = json.loads((tmp_path / "out" / "etl.json").read_text())["figures"]
    assert twice["source_rows"] == 2 * once["source_rows"] > 0
    assert all(stage["cpu_s"] > 0 and stage["peak_rss_mib"] > 50 for stage in twice["stages"][1:])
    stages = {stage["stage"]: stage for stage in twice["stages"]}
    folders_of_cohorts = (COHORTS, COHORTS / "examples")
    cohorts = [cohort for folder in folders_of_cohorts for cohort in read_folder(folder)[0]]
    mimic_cohorts = [cohort for cohort in cohorts if cohort.source == "mimic"]
    assert stages["seqset"]["rows"] > 0
    assert stages["seqset"]["written_bytes"] == twice["seqset_bytes"]
    assert stages["subjects"]["rows"] == 2 * once["stages"][1]["rows"]
    plain = stages[PLAIN]
    assert plain["rows"] > 0
    assert twice["plain_rows_per_cpu_s"] == pytest.approx(plain["rows"] / plain["cpu_s"], abs=1)
    chain = [cost for name, cost in stages.items() if name != PLAIN and not name.startswith(LABELS)]
    assert len(stages) - len(chain) == 1 + len(mimic_cohorts)
    assert twice["cpu_s"] == pytest.approx(sum(stage["cpu_s"] for stage in chain), abs=0.1)
    assert not list((tmp_path / "work").glob("out*"))
    assert "| demo ×2 |" in (tmp_path / "out" / "etl.md").read_text()


@pytest.mark.long
def test_instacart_benchmark_reports_every_stage(tmp_path):
    folders = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--name", "instacart"]
    assert main(["--instacart", "--users", "300", *folders]) == 0
    (figures,) = json.loads((tmp_path / "out" / "instacart.json").read_text())["figures"]
    assert figures["source_rows"] > 10_000
    assert figures["seqset_bytes"] > 0
    assert {"events", "seqset", "check seqset"} <= {stage["stage"] for stage in figures["stages"]}


@pytest.mark.long
def test_pcornet_benchmark_reports_every_stage_and_cohort(tmp_path):
    folders = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out"), "--name", "pcornet"]
    assert main(["--pcornet", "--children", "300", *folders]) == 0
    (figures,) = json.loads((tmp_path / "out" / "pcornet.json").read_text())["figures"]
    assert figures["source_rows"] > 10_000
    stages = {stage["stage"]: stage for stage in figures["stages"]}
    labels = [stage for name, stage in stages.items() if name.startswith("labels pcornet_")]
    assert len(labels) == 3
    assert stages["labels pcornet_autism"]["rows"] > 100
    read = sum(stages[name]["rows"] for name in ("subjects", "encounters", "events"))
    assert figures["source_rows"] == read
    tables = [
        path for path in (tmp_path / "work" / "pcornet_300").glob("*.parquet") if path.stem != "planted"
    ]
    assert stages["extracted"]["rows"] == sum(
        pl.scan_parquet(path).select(pl.len()).collect().item() for path in tables
    )
    assert stages["extracted"]["written_bytes"] > 0
    assert all(stage["written_bytes"] > 0 for stage in labels)
    label_seconds = sum(stage["cpu_s"] for stage in labels)
    assert label_seconds > 0
    assert figures["cpu_s"] == pytest.approx(
        sum(s["cpu_s"] for s in stages.values()) - label_seconds, abs=0.1
    )


def test_repeat_writes_the_requested_rows_with_unique_ids(tmp_path):
    path = tmp_path / "lab_result_cm.parquet"
    rows = pl.DataFrame({"LAB_RESULT_CM_ID": ["L1", "L2", "L3"], "LAB_LOINC": ["718-7", None, "4544-3"]})
    rows.write_parquet(path)
    assert extraction.repeat(path, 7) == 9
    copied_rows = pl.read_parquet(path)
    assert copied_rows["LAB_RESULT_CM_ID"].is_unique().all()
    assert copied_rows["LAB_LOINC"].to_list() == rows["LAB_LOINC"].to_list() * 3


@pytest.mark.long
def test_extraction_benchmark_reports_rows_seconds_and_memory(tmp_path):
    folders = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    assert extraction.main(["--rows", "50000", *folders]) == 0
    report = json.loads((tmp_path / "out" / "extraction.json").read_text())
    assert [stage["stage"] for stage in report["stages"]] == ["load", "extract"]
    assert report["rows"] >= 50_000
    assert (tmp_path / "out" / "extraction.md").read_text().count("MiB") == 2


def processes_with(mark: str) -> dict[int, str]:
    """Return the programs of the processes with a mark in their environment, which child processes inherit."""
    programs = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                programs[int(process.name)] = (process / "comm").read_text().strip()
        except OSError:  # it has ended
            continue
    return programs


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_terminated_extraction_benchmark_stops_the_server(tmp_path):
    mark = uuid.uuid4().hex
    arguments = ["--rows", "2000000", "--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    bench = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.pipelines.extraction", *arguments], env=os.environ | {"MARK": mark}
    )
    deadline = time.monotonic() + 240
    while "postgres" not in processes_with(mark).values():
        assert bench.poll() is None, "the benchmark ended before the signal"
        assert time.monotonic() < deadline
        time.sleep(0.1)
    bench.send_signal(signal.SIGTERM)
    assert bench.wait(timeout=120) == 128 + signal.SIGTERM
    assert processes_with(mark) == {}
    assert not list((tmp_path / "work").glob("*"))

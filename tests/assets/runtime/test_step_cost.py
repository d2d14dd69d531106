"""The cost of a step stands on its materialization, with that of the commands it ran."""

import json
import subprocess
import sys
from pathlib import Path

COMMAND = "import time; memory = b'x' * 2**30\nwhile time.process_time() < 1.5: pass"
"""Takes 1.5 seconds of a core and 1 GiB, every page of which is written."""

RUN_TWICE = """
import json, subprocess, sys
from pathlib import Path

import dagster as dg

from assets.runtime.step_cache import cached_step
from schemas.cards import StepCard
from schemas.layout import Layout

folder, command = Path(sys.argv[1]), sys.argv[2]
layout, output = Layout(folder / "mimic"), folder / "mimic" / "raw"

def make():
    subprocess.run([sys.executable, "-c", command], check=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text("made")
    return StepCard(step="any", contract="any/1")

@dg.asset(code_version="1")
def mimic_raw():
    card = cached_step(layout, [output], {}, make)
    return dg.MaterializeResult(data_version=dg.DataVersion(card.version), metadata={"own": 1})

for _ in range(2):
    materialization, = dg.materialize([mimic_raw]).asset_materializations_for_node("mimic_raw")
    print(json.dumps({name: entry.value for name, entry in materialization.metadata.items()}))
"""
"""Materializes an asset that runs a command, twice, and prints the metadata of both."""


def test_cost_of_a_step_includes_its_commands(tmp_path: Path):
    """In a fresh process, as in a job: the peak of this one may be that of an earlier test."""
    lines = subprocess.run(
        [sys.executable, "-c", RUN_TWICE, str(tmp_path), COMMAND], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    made, unchanged = map(json.loads, lines[-2:])
    assert 1.4 / 60 <= made["cpu_minutes"] <= 6 / 60
    assert 1 <= made["memory_peak_gib"] <= 2
    assert made["own"] == 1, "what the asset itself says is kept"
    assert "unchanged" in unchanged
    assert "cpu_minutes" not in unchanged

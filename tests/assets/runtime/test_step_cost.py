"""The cost of a step stands on its materialization, with that of the commands it ran."""

import subprocess
import sys
from pathlib import Path

import dagster as dg

from assets.runtime.step_cache import cached_step
from schemas.cards import StepCard
from schemas.layout import Layout

COMMAND = "import time; memory = b'x' * 2**30\nwhile time.process_time() < 1.5: pass"
"""Takes 1.5 seconds of a core and 1 GiB, every page of which is written."""


def test_cost_of_a_step_includes_its_commands(tmp_path: Path):
    layout, output = Layout(tmp_path / "mimic"), tmp_path / "mimic" / "raw"

    def make() -> StepCard:
        subprocess.run([sys.executable, "-c", COMMAND], check=True)
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("made")
        return StepCard(step="any", contract="any/1")

    @dg.asset(code_version="1")
    def mimic_raw() -> dg.MaterializeResult:
        card = cached_step(layout, [output], {}, make)
        return dg.MaterializeResult(data_version=dg.DataVersion(card.version), metadata={"own": 1})

    first, second = (
        dg.materialize([mimic_raw]).asset_materializations_for_node("mimic_raw")[0].metadata for _ in range(2)
    )
    minutes, memory_gib = (first[name].value for name in ("cpu_minutes", "memory_peak_gib"))
    assert isinstance(minutes, float)
    assert isinstance(memory_gib, float)
    assert 1.4 / 60 <= minutes <= 6 / 60
    assert 1 <= memory_gib <= 8
    assert first["own"].value == 1, "what the asset itself says is kept"
    assert "unchanged" in second
    assert "cpu_minutes" not in second

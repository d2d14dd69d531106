"""What a task's models look at, as they wrote it down when they were trained, and what the audit of it found."""

import json
from pathlib import Path
from typing import Any

from schemas.io.verify import is_written, verified
from schemas.layout import Layout
from schemas.tables.leak_audit import LeakAudit


def looks(layout: Layout, cohort: str) -> dict[str, Any]:
    """Return `attention` and `removals` of NEST and `importance` of LightGBM; of each only what there is."""
    found = {
        "attention": _metrics(layout, f"{cohort}_nest").get("attention"),
        "removals": _json(removals_of(layout, cohort)),
        "importance": _metrics(layout, f"{cohort}_lightgbm").get("importance"),
    }
    return {name: one for name, one in found.items() if one}


def leak_audit(layout: Layout, cohort: str) -> dict[str, Any] | None:
    """Return what the audit of a cohort's features found; None where there is none."""
    file = layout.leak_audit(cohort)
    return LeakAudit.read(file).model_dump() if is_written(file) else None


def fine_tuning_history(layout: Layout, cohort: str) -> list[dict[str, Any]]:
    """Return the epochs of a fine-tuned model; empty where there is none."""
    return _metrics(layout, f"{cohort}_nest").get("history", [])


def _metrics(layout: Layout, model: str) -> dict[str, Any]:
    return _json(layout.model(model) / "metrics.json")


def removals_of(layout: Layout, cohort: str) -> Path:
    """Return where it lies what a cohort's NEST loses without a part of its input; it may not have been asked."""
    return layout.model(f"{cohort}_yardsticks") / "removals.json"


def _json(path: Path) -> dict[str, Any]:
    return json.loads(verified(path).read_text()) if is_written(path) else {}

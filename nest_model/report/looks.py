"""Explanations of a task's models, as recorded when they were trained, and the leak audit of the cohort."""

import json
from pathlib import Path
from typing import Any

from nest_model.report.feature_words import importance_in_words
from nest_model.report.pretraining import recipe_beside_paper
from schemas.code_names import CodeNames
from schemas.io.verify import is_written, verified
from schemas.layout import Layout
from schemas.tables.leak_audit import LeakAudit


def looks(layout: Layout, cohort: str) -> dict[str, Any]:
    """Return `attention`, `removals` and `differences` of NEST and `importance` of LightGBM, where available.

    `differences` are those of its config and recipe from the paper's.
    """
    explanations = {
        "differences": recipe_beside_paper(layout.model(f"{cohort}_nest"), is_finetuned=True),
        "attention": _metrics(layout, f"{cohort}_nest").get("attention"),
        "removals": _json(removals_path(layout, cohort)),
        "importance": importance_in_words(
            _metrics(layout, f"{cohort}_lightgbm").get("importance", []), CodeNames.read(layout.code_names)
        ),
    }
    return {name: explanation for name, explanation in explanations.items() if explanation}


def leak_audit(layout: Layout, cohort: str) -> dict[str, Any] | None:
    """Return the leak audit of a cohort, its suspects named in words with the codes beside; None if there is none."""
    file = layout.leak_audit(cohort)
    if not is_written(file):
        return None
    audit: dict[str, Any] = LeakAudit.read(file).model_dump()
    names = CodeNames.read(layout.code_names)
    for part in ("suspects", "kinds"):
        audit[part] = [{**suspect, "in_words": names.in_text(suspect["name"])} for suspect in audit[part]]
    return audit


def fine_tuning_history(layout: Layout, cohort: str) -> list[dict[str, Any]]:
    """Return the epochs of a fine-tuned model; empty if there is no model."""
    history: list[dict[str, Any]] = _metrics(layout, f"{cohort}_nest").get("history", [])
    return history


def _metrics(layout: Layout, model: str) -> dict[str, Any]:
    return _json(layout.model(model) / "metrics.json")


def removals_path(layout: Layout, cohort: str) -> Path:
    """Return the path of a cohort's `removals.json`, which may not exist."""
    return layout.model(f"{cohort}_yardsticks") / "removals.json"


def _json(path: Path) -> dict[str, Any]:
    return json.loads(verified(path).read_text()) if is_written(path) else {}

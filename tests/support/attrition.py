"""Writes the attrition that lies beside a cohort's labels."""

from pathlib import Path

from schemas.tables.attrition import AttritionStep, attrition_csv


def write_attrition(folder: Path, rows: int, *, dropped: int) -> None:
    """Write an attrition that leaves so many stays after it dropped others, each of a patient of its own."""
    steps = [
        AttritionStep("all", rows + dropped, rows + dropped, 0),
        AttritionStep("alive", rows, rows, dropped),
    ]
    (folder / "attrition.csv").write_text(attrition_csv(steps))

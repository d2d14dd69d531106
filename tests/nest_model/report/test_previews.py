"""Previews of an asset: drawn from disclosable counts, and absent if all is withheld."""

import json
import struct

import pytest

from nest_model.report import previews
from schemas.cards import StepCard
from schemas.tables.attrition import AttritionStep, suppress_attrition
from tests.support.factories import predictions as made_up

WIDEST = 925  # pixels available for a picture in the UI


def width(png: bytes) -> int:
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">I", png[16:20])[0]


def events(**counts: int) -> StepCard:
    return StepCard(step="events", contract="events/1", counts={f"events_{k}": n for k, n in counts.items()})


def test_events_are_drawn_by_kind():
    (title,) = previews.event_previews(events(DX=400, LAB=900))
    assert title == "Events by kind"
    assert previews.event_previews(events()) == {}


def test_attrition_is_drawn_unless_all_rows_are_withheld():
    steps = suppress_attrition(
        [AttritionStep("all encounters", 400, 300, 0), AttritionStep("a day long", 300, 250, 100)]
    )
    assert list(previews.attrition_previews(steps)) == ["Cohort selection"]
    assert previews.attrition_previews(suppress_attrition([AttritionStep("all encounters", 4, 3, 0)])) == {}


@pytest.mark.long
def test_previews_fit_the_width_of_the_ui(tmp_path):
    from nest_model.report import write_report

    layout = made_up.write_layout(tmp_path / "mimic", subjects=400)
    write_report(layout.root, [*made_up.COHORTS], tmp_path / "out", "default")
    predictions = layout.report("mimic_mortality_nest") / "predictions.parquet"
    steps = suppress_attrition(
        [AttritionStep("all encounters", 400, 300, 0), AttritionStep("a day long", 300, 250, 100)]
    )
    pictures = (
        previews.report_previews(tmp_path / "out")
        | previews.prediction_previews(predictions, "nest")
        | previews.attrition_previews(steps)
        | previews.event_previews(events(DX=400, LAB=900))
    )
    assert len(pictures) == 5
    assert {title: width(png) for title, png in pictures.items() if width(png) > WIDEST} == {}


def test_training_previews_show_the_loss_and_its_parts(tmp_path):
    losses = {f"{split}_{part}": 1.5 for split in ("train", "val") for part in ("loss", "mlm", "msm")}

    def titles_of(*history: dict) -> list[str]:
        (tmp_path / "metrics.json").write_text(json.dumps({"history": history}))
        return list(previews.training_previews(tmp_path))

    assert previews.training_previews(tmp_path) == {}
    assert titles_of() == []
    assert titles_of({"epoch": 0, **losses}, {"epoch": 1, **losses}) == [
        "Training curve",
        "MLM",
        "MSM (true KL)",
    ]
    assert titles_of({"epoch": 0, "train_loss": 1.5, "val_average_precision": 0.5}) == ["Training curve"]
    assert titles_of({"epoch": 0, "val_average_precision": 0.5}) == []

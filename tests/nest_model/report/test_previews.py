"""The pictures beside an asset: drawn from what may be shown, and absent where nothing may."""

import json
import struct

import pytest

from nest_model.report import previews
from schemas.cards import StepCard
from schemas.tables.attrition import AttritionStep, suppress_attrition
from tests.support.factories import predictions as made_up

WIDEST = 925  # pixels there is room for where the UI opens a picture


def width(png: bytes) -> int:
    assert png.startswith(b"\x89PNG")
    return struct.unpack(">I", png[16:20])[0]


def events(**counts: int) -> StepCard:
    return StepCard(step="events", contract="events/1", counts={f"events_{k}": n for k, n in counts.items()})


def test_events_are_drawn_by_kind():
    (title,) = previews.of_events(events(DX=400, LAB=900))
    assert title == "Events by kind"
    assert previews.of_events(events()) == {}


def test_a_cohort_s_attrition_is_drawn_unless_all_of_it_is_withheld():
    steps = suppress_attrition(
        [AttritionStep("all encounters", 400, 300, 0), AttritionStep("a day long", 300, 250, 100)]
    )
    assert list(previews.of_attrition(steps)) == ["Who is in it"]
    assert previews.of_attrition(suppress_attrition([AttritionStep("all encounters", 4, 3, 0)])) == {}


@pytest.mark.long
def test_every_picture_fits_where_the_ui_opens_it(tmp_path):
    from nest_model.report import write_report

    layout = made_up.write_layout(tmp_path / "mimic", subjects=400)
    write_report(layout.root, [*made_up.COHORTS], tmp_path / "out", "default")
    predictions = layout.report("mimic_mortality_nest") / "predictions.parquet"
    steps = suppress_attrition(
        [AttritionStep("all encounters", 400, 300, 0), AttritionStep("a day long", 300, 250, 100)]
    )
    drawn = (
        previews.of_report(tmp_path / "out")
        | previews.of_predictions(predictions, "nest")
        | previews.of_attrition(steps)
        | previews.of_events(events(DX=400, LAB=900))
    )
    assert len(drawn) == 5
    assert {title: width(png) for title, png in drawn.items() if width(png) > WIDEST} == {}


def test_a_training_is_drawn_in_whole_and_by_the_parts_of_its_loss(tmp_path):
    losses = {f"{split}_{what}": 1.5 for split in ("train", "val") for what in ("loss", "mlm", "msm")}

    def drawn(*history: dict) -> list[str]:
        (tmp_path / "metrics.json").write_text(json.dumps({"history": history}))
        return list(previews.of_training(tmp_path))

    assert previews.of_training(tmp_path) == {}
    assert drawn() == []
    assert drawn({"epoch": 0, **losses}, {"epoch": 1, **losses}) == ["Training curve", "MLM", "MSM (true KL)"]
    assert drawn({"epoch": 0, "train_loss": 1.5, "val_average_precision": 0.5}) == ["Training curve"]
    assert drawn({"epoch": 0, "val_average_precision": 0.5}) == []

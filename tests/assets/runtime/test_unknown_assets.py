"""A command that names an unknown asset ends with one message, and with the faults of unreadable cohort files."""

import sys
from pathlib import Path

import dagster as dg
import pytest

from assets.cohorts import unreadable_cohort_asset
from assets.runtime.unknown_assets import show_unknown_assets_as_messages
from schemas.cohort import CohortError, parse_cohort


@pytest.fixture
def definitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # restored after the test
    file = tmp_path / "stroke.yaml"
    file.write_text("cohort: stroke\n")
    with pytest.raises(CohortError) as error:
        parse_cohort(file)
    return dg.Definitions(assets=[unreadable_cohort_asset("mimic", "stroke", error.value)])


def end_with(error: Exception, capsys: pytest.CaptureFixture[str]) -> str:
    sys.excepthook(type(error), error, error.__traceback__)
    return capsys.readouterr().err


def test_unknown_asset_of_an_unreadable_cohort_is_explained_by_its_faults(
    definitions: dg.Definitions, capsys: pytest.CaptureFixture[str]
):
    show_unknown_assets_as_messages(definitions)
    with pytest.raises(dg.DagsterInvalidSubsetError) as unknown:
        dg.AssetSelection.assets("stroke_labels").resolve(definitions.get_repository_def().asset_graph)
    first, *others = end_with(unknown.value, capsys).splitlines()

    assert first.startswith("error: ")
    assert "['stroke_labels'] were selected" in first
    assert any("stroke.yaml:1: key 'index' is missing" in line for line in others)


def test_any_other_error_keeps_its_traceback(definitions: dg.Definitions, capsys: pytest.CaptureFixture[str]):
    show_unknown_assets_as_messages(definitions)
    with pytest.raises(ValueError, match="thing") as error:
        raise ValueError("no such thing")
    text = end_with(error.value, capsys)
    assert text.startswith("Traceback (most recent call last)")
    assert text.endswith("ValueError: no such thing\n")

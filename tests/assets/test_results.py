"""The last lines of a run: where the results are, and which cohort files have faults."""

from pathlib import Path

import pytest

from assets import results
from assets.results import cohorts_to_mend, command, written_to
from schemas.cohort import CANNOT_ANSWER
from schemas.settings import Settings


@pytest.mark.parametrize(
    ("assets", "places"),
    [
        ({"mimic_nest": "mimic", "mimic_report": "mimic"}, "/d/mimic/reports/mimic/report.html"),
        ({"meds_seqset": "meds", "meds_report": "meds"}, "/d/meds/reports/meds/report.html"),
        ({"stroke_nest": "mimic", "stroke_report": "mimic"}, "/d/mimic/reports/stroke/report.html"),
        (
            {"mimic_report": "mimic", "stroke_report": "mimic", "asthma_report": "pcornet"},
            "/d/pcornet/reports/asthma/report.html, /d/mimic/reports/mimic/report.html",
        ),
        (
            {"instacart_nest": "instacart", "instacart_next_basket": "instacart"},
            "/d/instacart/reports/instacart_next_basket/last_visible/report.html",
        ),
        ({"mimic_events": "mimic", "mimic_meds": "mimic"}, "/d/mimic/meds"),
        ({"mimic_seqset": "mimic", "mimic_mortality_labels": "mimic"}, "/d/mimic"),
        ({"meds_seqset": "meds", "instacart_seqset": "instacart"}, "/d/instacart, /d/meds"),
    ],
)
def test_last_line_of_a_run_names_the_paths_of_the_results(assets: dict[str, str], places: str):
    assert written_to(Settings(data_dir="/d"), assets) == f"done; see {places}"


def test_last_line_names_the_url_of_a_store_and_no_download():
    store = Settings(data_dir="s3://hospital/nest")
    assert written_to(store, {"meds_seqset": "meds"}) == "done; see s3://hospital/nest/meds"
    assert written_to(store, {"mimic_demo_files": "downloads"}) is None


def test_results_name_cohort_files_with_faults(tmp_path):
    (tmp_path / "mine.yaml").write_text("cohort: mine\nsource: mimic\nabout: [")
    (tmp_path / "theirs.yaml").write_text("cohort: theirs\nsource: pcornet\nabout: [")
    fault = f"{CANNOT_ANSWER}: typed.yaml:3: every encounter's type is empty in these data"
    metrics = {"tasks": {"typed": {"warnings": [fault, "the validation split has no rows"]}, "good": {}}}
    unread, unanswerable_fault = cohorts_to_mend("mimic", metrics, tmp_path)
    assert unread.startswith(f"{tmp_path / 'mine.yaml'}:")
    assert unanswerable_fault == fault
    assert cohorts_to_mend("meds", {"tasks": {}}, tmp_path) == []


def test_suggested_command_names_a_data_folder_outside_the_checkout(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    assert command(Settings(data_dir=str(tmp_path / "data")), "make ui") == "make ui"
    other_folder = tmp_path / "a folder"
    assert (
        command(Settings(data_dir=str(other_folder)), "make ui") == f"NEST_DATA_DIR='{other_folder}' make ui"
    )


@pytest.mark.parametrize(("arguments", "code"), [(["--help"], 0), ([], 2)])
def test_results_command_shows_its_usage(arguments, code, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["results", *arguments])
    assert results.main() == code
    assert "usage: python -m assets.results mimic | meds | pcornet" in "".join(capsys.readouterr())

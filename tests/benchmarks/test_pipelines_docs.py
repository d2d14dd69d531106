"""What docs/ shows of the data work is what was measured."""

import json

import pytest

from benchmarks.pipelines import etl, extraction
from benchmarks.pipelines.measure import Cost, Machine
from tests.support.commands import ROOT

pytestmark = pytest.mark.docs

FOLDER = ROOT / "docs" / "benchmarks"


def test_the_table_of_the_data_work_is_of_its_figures_and_the_page_shows_them():
    report = json.loads((FOLDER / "etl.json").read_text())
    words = Machine(**report["machine"]).words
    assert (FOLDER / "etl.md").read_text() == f"{words}\n\n{etl.markdown_report(report['figures'])}\n"
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for one in report["figures"]:
        figures = (
            f"{one['source_rows']:,}",
            f"{one['raw_bytes'] / 1e6:,.0f} MB",
            f"{one['cpu_s']:,.1f}",
            f"{one['wall_s']:,.1f}",
            f"{one['peak_rss_mib']:,.0f} MiB",
        )
        assert " | ".join(figures) in page
        assert f"{one['source_rows_per_cpu_s']:,}" in page
    for stage in report["figures"][-1]["stages"]:
        if stage["stage"].startswith(etl.LABELS):
            name, peak = stage["stage"].removeprefix(etl.LABELS), f"{stage['peak_rss_mib']:,.0f} MiB"
            assert f"| {name} | {stage['rows']:,} | {stage['cpu_s']:,.1f} | {peak} |" in page


def test_the_table_of_the_children_is_of_its_figures_and_the_page_shows_them():
    report = json.loads((FOLDER / "pcornet.json").read_text())
    words = Machine(**report["machine"]).words
    table = etl.markdown_report(report["figures"])
    assert (FOLDER / "pcornet.md").read_text() == f"{words}\n\n{table}\n"
    page = (ROOT / "docs" / "pcornet.md").read_text()
    assert "\n".join(table.splitlines()[:3]) in page
    for stage in report["figures"][0]["stages"]:
        if stage["stage"].startswith(etl.LABELS):
            assert f"| {stage['stage'].removeprefix(etl.LABELS)} | {stage['rows']:,} |" in page


def test_the_table_of_the_extraction_is_of_its_figures_and_the_page_shows_them():
    report = json.loads((FOLDER / "extraction.json").read_text())
    words = Machine(**report["machine"]).words
    shown = extraction.markdown_report(report["rows"], [Cost(**stage) for stage in report["stages"]])
    assert (FOLDER / "extraction.md").read_text() == f"{words}\n\n{shown}\n"
    page = (ROOT / "docs" / "extraction.md").read_text()
    assert shown in page.replace("**", "")

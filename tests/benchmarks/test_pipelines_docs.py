"""Tables of the data pipelines in docs/ equal those made from the JSON files."""

import json

import pytest

from benchmarks.pipelines import etl, extraction
from benchmarks.pipelines.measure import Cost, Machine
from tests.support.commands import ROOT

pytestmark = pytest.mark.docs

FOLDER = ROOT / "docs" / "benchmarks"


def test_etl_table_and_page_match_the_json():
    report = json.loads((FOLDER / "etl.json").read_text())
    words = Machine(**report["machine"]).words
    assert (FOLDER / "etl.md").read_text() == f"{words}\n\n{etl.markdown_report(report['figures'])}\n"
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for entry in report["figures"]:
        figures = (
            f"{entry['source_rows']:,}",
            f"{entry['raw_bytes'] / 1e6:,.0f} MB",
            f"{entry['cpu_s']:,.1f}",
            f"{entry['wall_s']:,.1f}",
            f"{entry['peak_rss_mib']:,.0f} MiB",
        )
        assert " | ".join(figures) in page
        assert f"{entry['source_rows_per_cpu_s']:,}" in page
    for stage in report["figures"][-1]["stages"]:
        if stage["stage"].startswith(etl.LABELS):
            name, peak = stage["stage"].removeprefix(etl.LABELS), f"{stage['peak_rss_mib']:,.0f} MiB"
            assert f"| {name} | {stage['rows']:,} | {stage['cpu_s']:,.1f} | {peak} |" in page


def test_pcornet_table_and_page_match_the_json():
    report = json.loads((FOLDER / "pcornet.json").read_text())
    words = Machine(**report["machine"]).words
    table = etl.markdown_report(report["figures"])
    assert (FOLDER / "pcornet.md").read_text() == f"{words}\n\n{table}\n"
    page = (ROOT / "docs" / "pcornet.md").read_text()
    assert "\n".join(table.splitlines()[:3]) in page
    for stage in report["figures"][0]["stages"]:
        if stage["stage"].startswith(etl.LABELS):
            assert f"| {stage['stage'].removeprefix(etl.LABELS)} | {stage['rows']:,} |" in page


def test_extraction_table_and_page_match_the_json():
    report = json.loads((FOLDER / "extraction.json").read_text())
    words = Machine(**report["machine"]).words
    table = extraction.markdown_report(report["rows"], [Cost(**stage) for stage in report["stages"]])
    assert (FOLDER / "extraction.md").read_text() == f"{words}\n\n{table}\n"
    page = (ROOT / "docs" / "extraction.md").read_text()
    assert table in page.replace("**", "")

"""Tables in docs/ equal those that the code makes from the JSON files."""

import json

import pytest

from benchmarks.model import loader, systems, tables
from benchmarks.model.closed_form import flop_per_token, parameters
from benchmarks.model.models import MODELS
from benchmarks.model.sizes import Sizes
from benchmarks.model.step.table import as_markdown
from benchmarks.simulation.presentation import table
from tests.support.commands import ROOT

pytestmark = pytest.mark.docs


def test_benchmarks_page_shows_the_table_by_formula():
    sizes = Sizes()
    figures = {
        name: {"flop_per_token": flop_per_token(name, sizes), "parameters": parameters(name, sizes)}
        for name in MODELS
    }
    assert tables.by_formula(figures) in (ROOT / "docs" / "benchmarks.md").read_text()


def test_step_table_matches_the_json():
    folder = ROOT / "docs" / "benchmarks"
    report = json.loads((folder / "model.json").read_text())
    assert as_markdown(report) == (folder / "model.md").read_text()
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    for size in report["sizes"].values():
        form = size["forms"]["pruned_last_layer"]
        ratios = (form[f"times_as_fast_as_{slow}"] for slow in ("literal", "competent"))
        assert "| **{:.0f}** | **{:.1f}** |".format(*ratios) in page


def test_benchmarks_page_shows_the_loader_table():
    folder = ROOT / "docs" / "benchmarks"
    report = json.loads((folder / "loader.json").read_text())
    assert loader.as_markdown(report) == (folder / "loader.md").read_text()
    small, large = ((size["packed"], size["packed_and_masked"]) for size in report["sizes"])
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    rates = [[f"{way[number]['tokens_per_s'] / 1e6:.1f}" for way in (small, large)] for number in (0, 1)]
    assert "| packed, M tokens per second | {} | **{}** |".format(*rates[0]) in page
    assert "| packed, masked and cut, M tokens per second | {} | {} |".format(*rates[1]) in page


def test_simulation_table_matches_the_json():
    folder = ROOT / "docs"
    markdown = table(json.loads((folder / "benchmarks" / "simulation.json").read_text())["rows"])

    assert markdown == (folder / "benchmarks" / "simulation.md").read_text()
    assert markdown.strip() in (folder / "simulation.md").read_text()


@pytest.mark.parametrize("name", ["table1", "table1_h200"])
def test_benchmarks_page_shows_the_measured_table_1(name):
    folder = ROOT / "docs" / "benchmarks"
    report, text = json.loads((folder / f"{name}.json").read_text()), (folder / f"{name}.md").read_text()
    assert tables.as_markdown(report) == text
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    introduction, _, protocol_tables = text.strip().split("\n\n", 2)
    assert introduction in page
    assert protocol_tables.count("\n\n") == 2 * len(report["protocols"]) - 1
    assert protocol_tables in page


def test_benchmarks_page_shows_the_table_of_every_systems_step():
    folder = ROOT / "docs" / "benchmarks"
    report, text = (
        json.loads((folder / "systems_h200.json").read_text()),
        (folder / "systems_h200.md").read_text(),
    )
    assert systems.as_markdown(report) == text
    assert text.strip().split("\n\n", 1)[1] in (ROOT / "docs" / "benchmarks.md").read_text()


def test_benchmarks_page_shows_the_scaling_table():
    folder = ROOT / "docs" / "benchmarks"
    report, text = json.loads((folder / "scaling.json").read_text()), (folder / "scaling.md").read_text()
    assert tables.over_length(report) == text
    assert text.strip() in (ROOT / "docs" / "benchmarks.md").read_text()

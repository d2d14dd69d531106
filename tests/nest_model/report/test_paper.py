"""The paper's results beside ours: equal to the paper's digits, with a note that the data differ."""

import re

import pytest

from nest_model.report import write_report
from nest_model.report.paper import LABELS, PAPER, paper_comparison
from tests.support.commands import ROOT
from tests.support.factories import predictions as made_up

TEX = ROOT.parent / "shared" / "paper" / "nest.tex"
TITLE = "The paper's pediatric cohorts"


@pytest.mark.skipif(not TEX.exists(), reason="the paper is not beside the repository")
def test_paper_scores_equal_the_digits_in_the_paper():
    text = TEX.read_text()
    table = text[text.index("tab:private-ehr-ds}") :]
    table = table[table.index(r"\midrule") : table.index(r"\end{tabular}")]
    rows = [re.findall(r"\d+\.\d+", line) for line in table.splitlines() if line.strip().startswith("&")]
    assert len(rows) == len(LABELS)
    percentages = [
        [f"{100 * value:.1f}" for task in PAPER.values() for value in task.scores[model]] for model in LABELS
    ]
    assert percentages == rows
    for task in PAPER.values():
        assert f"{task.test_rows:,}" in text
        assert rf"{100 * task.prevalence:.{2 if task.prevalence < 0.1 else 1}f}\%" in text


def test_paper_comparison_has_the_paper_cohorts_only():
    ours = {"auroc": {"value": 0.7}, "average_precision": {"value": 0.2}}
    tasks = {
        "mimic_mortality": {"title": "Mortality", "models": {"nest": ours}},
        "pcornet_autism": {"title": "Autism", "models": {"nest": ours}},
    }
    rows = paper_comparison(tasks)
    assert [row["task"] for row in rows] == ["Autism", "", "", "", ""]
    assert {row["model"]: row["ours"] for row in rows} == dict.fromkeys(LABELS.values()) | {"NEST": ours}
    assert rows[-1]["auroc"] == 0.742


@pytest.mark.parametrize(("source", "is_shown"), [("pcornet", True), ("mimic", False)])
def test_page_shows_paper_scores_with_a_note_on_other_data(source, is_shown, tmp_path):
    cohort = f"{source}_autism"
    layout = made_up.write_layout(tmp_path / source, subjects=30, cohorts={cohort: "bool"})
    write_report(layout.root, [cohort], tmp_path / "out", "default")
    page = (tmp_path / "out" / "report.html").read_text()
    assert (TITLE in page, "They are from other data" in page, "0.742" in page) == (is_shown,) * 3

import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from nest_model import figures

RNG = np.random.default_rng(0)
TRUTH = RNG.random(200) < 0.3
CURVE = (TRUTH, np.clip(TRUTH * 0.3 + RNG.random(200) * 0.7, 0, 1))
POINTS = {"expected": [0.1, 0.5], "observed": [0.2, 0.4]}
SCORE = {"value": 0.8, "low": 0.7, "high": 0.9}
NO_INTERVAL = {"value": 0.8, "low": None, "high": None}
NO_SCORE = {"value": None, "low": None, "high": None}

DRAWN = {
    "roc": lambda: figures.roc({"nest": CURVE, "lightgbm": CURVE, "best": CURVE}),
    "precision_recall": lambda: figures.precision_recall({"nest": CURVE}),
    "reliability": lambda: figures.reliability({"nest": POINTS, "lightgbm": POINTS}),
    "decision_curve": lambda: figures.decision_curve(
        np.array([0.1, 0.2, 0.3]), {"nest": np.array([0.2, 0.1, 0.0])}, np.array([0.2, 0.0, -0.3])
    ),
    "importance": lambda: figures.importance([("index LAB:1_Q9", 0.3), ("history DX:I10", 0.1)]),
    "attention_by_kind": lambda: figures.attention_by_kind({"[CLS]": [0.1, -0.1], "DX": [0.0, 0.2]}),
    "attention_by_recency": lambda: figures.attention_by_recency({"0": [0.3, 0.1], "1": [-0.2, 0.0]}),
    "results_overview": lambda: figures.results_overview(
        [
            {"task": "Mortality", "nest": {"auroc": SCORE}, "best": {"auroc": NO_INTERVAL}},
            {"task": "Long stay", "lightgbm": {"auroc": SCORE}},
        ],
        panels={"auroc": "AUROC"},
        chance={"auroc": 0.5},
    ),
    "forest": lambda: figures.forest(
        [
            {
                "attribute": "Sex",
                "group": "F",
                "rows": "40",
                "scores": {"nest": SCORE, "lightgbm": NO_INTERVAL},
            },
            {"attribute": "Sex", "group": "M", "rows": "< 11", "scores": {"nest": NO_SCORE}},
        ],
        {"nest": SCORE, "lightgbm": SCORE},
        metric="AUROC",
    ),
    "training_curve": lambda: figures.training_curve(
        {"training": [(1, 3.0), (2, 2.0)], "validation": [(1, 3.0)]}, title="MLM", y="Loss"
    ),
    "histogram": lambda: figures.histogram([("1", 30), ("2", None)], title="Sets", x="Sets", y="Patients"),
    "attrition": lambda: figures.attrition([("all", 300, "300"), ("alive", None, "withheld")]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_a_png_and_an_svg_a_page_can_hold_and_the_same_figure_is_the_same_bytes(name):
    first, again = DRAWN[name](), DRAWN[name]()
    picture = figures.png(first)
    assert picture.startswith(b"\x89PNG")
    assert picture == figures.png(again)
    drawing = figures.svg(first, alt='what "is" seen & where')
    assert drawing == figures.svg(again, alt='what "is" seen & where')
    root = ET.fromstring(drawing)
    assert root.get("aria-label") == 'what "is" seen & where'
    assert root.get("role") == "img"
    assert "http://www.w3.org/2000/svg" in root.tag
    assert figures.INK not in drawing  # ink follows the page


def test_a_group_too_small_is_said_and_a_withheld_bar_is_marked():
    assert "too few to show" in figures.svg(DRAWN["forest"](), alt="x")
    assert "hidden" in figures.svg(DRAWN["histogram"](), alt="x")


def test_a_style_does_not_leak_into_other_peoples_figures():
    import matplotlib

    before = dict(matplotlib.rcParams)
    figures.png(DRAWN["roc"]())
    assert dict(matplotlib.rcParams) == before


def test_pyplot_is_never_loaded():
    code = (
        "import sys; from nest_model import figures; "
        "figures.png(figures.histogram([('1', 2)], title='', x='', y='')); "
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("largest", [0.011, 0.03, 0.2, 0.9])
def test_gain_axis_has_ticks_that_differ(largest: float):
    figure = figures.importance([(f"token {rank}", largest / rank) for rank in range(1, 11)])
    figure.draw_without_rendering()
    (axes,) = figure.axes
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert len(set(labels)) == len(labels) > 2

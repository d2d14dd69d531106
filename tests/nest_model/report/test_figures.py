import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
import pytest

from nest_model.report import figures
from nest_model.report.page import ATTENTION_OF

RNG = np.random.default_rng(0)
TRUTH = RNG.random(200) < 0.3
CURVE = (TRUTH, np.clip(TRUTH * 0.3 + RNG.random(200) * 0.7, 0, 1))
POINTS = {"expected": [0.1, 0.5], "observed": [0.2, 0.4]}
SCORE = {"value": 0.8, "low": 0.7, "high": 0.9}
NO_INTERVAL = {"value": 0.8, "low": None, "high": None}
NO_SCORE = {"value": None, "low": None, "high": None}

FIGURES = {
    "roc": lambda: figures.roc({"nest": CURVE, "lightgbm": CURVE, "best": CURVE}),
    "precision_recall": lambda: figures.precision_recall({"nest": CURVE}),
    "reliability": lambda: figures.reliability({"nest": POINTS, "lightgbm": POINTS}),
    "number_calibration": lambda: figures.number_calibration({"nest": POINTS}, unit="days"),
    "mean_survival": lambda: figures.mean_survival(
        {"nest": POINTS | {"days": range(1, 1 + len(POINTS["expected"]))}}
    ),
    "decision_curve": lambda: figures.decision_curve(
        np.array([0.1, 0.2, 0.3]), {"nest": np.array([0.2, 0.1, 0.0])}, np.array([0.2, 0.0, -0.3])
    ),
    "importance": lambda: figures.importance([("index LAB:1_Q9", 0.3), ("history DX:I10", 0.1)]),
    "attention_by_kind": lambda: figures.attention_by_kind(
        {"NEST": {"[CLS]": [0.1, -0.1], "DX": [0.0, 0.2]}}
    ),
    "attention_by_recency": lambda: figures.attention_by_recency(
        {"NEST": {"0": [0.3, 0.1], "1": [-0.2, 0.0]}}
    ),
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
EVERYDAY = {"roc", "precision_recall", "reliability"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in EVERYDAY else pytest.mark.long) for name in FIGURES]
)
def test_a_figure_gives_the_same_png_and_page_svg_each_time(name):
    first, second = FIGURES[name](), FIGURES[name]()
    picture = figures.png(first)
    assert picture.startswith(b"\x89PNG")
    assert picture == figures.png(second)
    drawing = figures.svg(first, alt='what "is" seen & where')
    coordinates = re.findall(r' (?:d|x|y)="([^"]*)"', drawing)
    assert len(coordinates) > 5
    assert not re.search(r"\.\d\d", " ".join(coordinates)), "digits tell what a height is a fraction of"
    assert drawing == figures.svg(second, alt='what "is" seen & where')
    root = ET.fromstring(drawing)
    assert root.get("aria-label") == 'what "is" seen & where'
    assert root.get("role") == "img"
    assert "http://www.w3.org/2000/svg" in root.tag
    assert figures.INK not in drawing  # ink follows the page


def test_small_groups_and_withheld_bars_are_marked():
    assert "too few to show" in figures.svg(FIGURES["forest"](), alt="x")
    assert "hidden" in figures.svg(FIGURES["histogram"](), alt="x")


def test_figure_style_does_not_change_global_settings():
    import matplotlib

    settings = dict(matplotlib.rcParams)
    figures.png(FIGURES["roc"]())
    assert dict(matplotlib.rcParams) == settings


def test_pyplot_is_never_loaded():
    code = (
        "import sys; from nest_model.report import figures; "
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


MODELS = ("nest", "probe", "lightgbm", "logistic", "best")
KINDS = ("[CLS]", "AGE", "DX", "PR", "LAB", "RX", "MED", "TIME", "ADM")
RISKS = np.clip(TRUTH * 0.1 + RNG.random(200) * 0.02, 0, 1)


def in_panels(values):
    return dict.fromkeys(ATTENTION_OF.values(), values)


LONG = "Readmission within 30 days to another hospital"
AWKWARD = {
    "roc": lambda: figures.roc(dict.fromkeys(MODELS, CURVE)),
    "precision_recall": lambda: figures.precision_recall({"nest": (TRUTH, RISKS), "best": CURVE}),
    "reliability": lambda: figures.reliability({"nest": {"expected": [0.001, 0.004], "observed": [0, 0.003]}}),
    "number_calibration": lambda: figures.number_calibration(
        {name: {"expected": [-1234.5, 0.001, 99_000.0], "observed": [-1.0, 0.002, 1e5]} for name in MODELS},
        unit="millimoles per litre of serum",
    ),
    "mean_survival": lambda: figures.mean_survival(
        {name: {"days": [0.02, 1, 3_700], "expected": [1, 0.9, 0.8], "observed": [1, 0.5, 0.1]} for name in MODELS}
    ),
    "decision_curve": lambda: figures.decision_curve(
        np.arange(1, 100) / 100,
        dict.fromkeys(MODELS, np.full(99, 1e-4)),
        np.linspace(1e-4, -40, 99),
    ),
    "importance": lambda: figures.importance([(f"history DX:I1{k} of {LONG}", 0.003 / k) for k in range(1, 13)]),
    "attention_by_kind": lambda: figures.attention_by_kind(
        in_panels({kind: [-0.004, 0.99] * 6 for kind in KINDS})
    ),
    "attention_by_kind_of_six_layers": lambda: figures.attention_by_kind(
        in_panels({kind: [-0.004, 0.99] * 3 for kind in KINDS})
    ),
    "attention_by_kind_of_one_kind": lambda: figures.attention_by_kind(in_panels({"[CLS]": [0.0, 0.0]})),
    "attention_by_recency": lambda: figures.attention_by_recency(
        in_panels({str(back): [0.0004 * back + layer / 1e4 for layer in range(12)] for back in range(8)})
    ),
    "attention_by_recency_of_two_sets": lambda: figures.attention_by_recency(
        in_panels({"0": [0.9, 0.1], "1": [-0.9, -0.1]})
    ),
    "results_overview": lambda: figures.results_overview(
        [
            {"task": f"{LONG}, {words}", **{model: {"auroc": score, "ap": score} for model in MODELS}}
            for words, score in {"all labels": SCORE, "the 50 commonest": NO_SCORE}.items()
        ],
        panels={"auroc": "AUROC, 95 % interval", "ap": "AP, 95 % interval"},
        chance={"auroc": 0.5},
    ),
    "results_overview_stacked": lambda: figures.results_overview(
        [{"task": LONG, **{model: {"auroc": SCORE, "ap": SCORE} for model in MODELS}}],
        panels={"auroc": "AUROC, 95 % interval", "ap": "AP, 95 % interval"},
        chance={"auroc": 0.5},
        is_vertical=True,
    ),
    "forest": lambda: figures.forest(
        [
            {"attribute": attribute, "group": f"{attribute} {k}", "rows": f"{1_234_567 * k:,}", "scores": scores}
            for attribute in ("Sex", "Insurance")
            for k, scores in enumerate(({"nest": SCORE, "lightgbm": SCORE}, {"nest": NO_SCORE}), start=1)
        ],
        {"nest": SCORE, "lightgbm": SCORE},
        metric="AUROC, 95 % interval",
    ),
    "training_curve": lambda: figures.training_curve(
        {name: [(epoch, 7.0001 + epoch / 1e6) for epoch in range(1, 201)] for name in ("training", "validation")},
        title="MSM (true KL)",
        y="Loss, nats",
    ),
    "training_curve_of_guesses": lambda: figures.training_curve(
        {name: [(1, 2.5), (2, 2.49), (3, 2.48)] for name in ("validation, at [CLS]", "validation, at [MASK]")},
        title="Set prediction",
        y="NDCG@10",
        levels={"constant guess": 2.4876, "mixture with own sets": 2.4146},
    ),
    "training_curve_of_one_epoch": lambda: figures.training_curve({"training": [(1, 3.0)]}, title="MLM", y="Loss"),
    "histogram": lambda: figures.histogram(
        [(f"{2**k:,}", None if k in (3, 4, 5, 11) else 10**7 // (k + 1)) for k in range(12)],
        title="Tokens per set",
        x="Tokens, each bar up to the next",
        y="Sets",
    ),
    "histogram_of_kinds": lambda: figures.histogram(
        [(kind.lower(), None) for kind in ("admission", "diagnosis", "drug", "laboratory", "procedure", "death")],
        title="Events by kind",
        x="kind",
        y="events",
    ),
    "attrition": lambda: figures.attrition(
        [(LONG, 3_000_000, "3,000,000  (− 2,999,000)"), ("died", 10_000, "10,000"), ("left", None, "withheld")]
    ),
}  # fmt: skip


def test_every_kind_of_figure_is_drawn_here():
    names = {
        name
        for name, draw in vars(figures).items()
        if callable(draw) and getattr(draw, "__wrapped__", None) and draw.__module__ == figures.__name__
    }
    assert names == FIGURES.keys() == {name.partition("_of_")[0].removesuffix("_stacked") for name in AWKWARD}


def words_of(axes):
    """Return the visible texts of axes: titles, labels, ticks within the limits, annotations, legend."""
    ticks = [label for axis in (axes.xaxis, axes.yaxis) for label in ticks_of(axis)]
    legend = axes.get_legend().get_texts() if axes.get_legend() else []
    titles = [axes.title, axes._left_title, axes._right_title, axes.xaxis.label, axes.yaxis.label]
    texts = [*titles, *ticks, *axes.texts, *legend]
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


def ticks_of(axis):
    low, high = sorted(axis.get_view_interval())
    ticks = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [tick.label1 for tick in ticks if tick.label1.get_visible() and tick.label1.get_text()]


@pytest.mark.parametrize(
    "draw", [*FIGURES.values(), *AWKWARD.values()], ids=[*FIGURES, *(f"awkward {name}" for name in AWKWARD)]
)
def test_figure_ticks_differ_and_texts_do_not_overlap_or_overflow(draw):
    figure = draw()
    with matplotlib.rc_context(figures.STYLE):
        figure.draw_without_rendering()
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label.get_text() for label in ticks_of(axis)]
            assert len(set(labels)) == len(labels), labels
    legends = [text for legend in figure.legends for text in legend.get_texts()]
    words = [*legends, *figure.texts] + [text for axes in figure.axes for text in words_of(axes)]
    boxes = [(text.get_text(), text.get_window_extent().padded(-0.5)) for text in words]
    page = figure.bbox.padded(2)
    for place, (text, box) in enumerate(boxes):
        assert page.x0 <= box.x0 <= box.x1 <= page.x1, f"{text} leaves the figure"
        assert page.y0 <= box.y0 <= box.y1 <= page.y1, f"{text} leaves the figure"
        for other_text, other_box in boxes[place + 1 :]:
            assert not box.overlaps(other_box), f"{text} lies on {other_text}"


def test_dots_of_one_task_do_not_lie_among_those_of_another():
    rows = [{"task": task, **{model: {"auroc": SCORE} for model in MODELS}} for task in ("One", "Two")]
    (axes,) = figures.results_overview(rows, panels={"auroc": "AUROC"}, chance={}).axes
    heights = sorted(float(line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1)
    assert len(heights) == len(rows) * len(MODELS)
    gaps = np.diff(heights)
    assert gaps[len(MODELS) - 1] > 1.1 * np.delete(gaps, len(MODELS) - 1).max()


def test_epoch_tick_is_an_integer_with_a_single_epoch():
    (axes,) = AWKWARD["training_curve_of_one_epoch"]().axes
    axes.figure.draw_without_rendering()
    assert [label.get_text() for label in ticks_of(axes.xaxis)] == ["1"]

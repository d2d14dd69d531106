"""The TRIPOD+AI checklist of a cohort, filled in from the run where the run knows the answer.

Items by number as in Collins et al., TRIPOD+AI statement, BMJ 2024;385:e078378 (CC BY 4.0), worded shortly here.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nest_model.report.tripod_answers import Answer, answers
from schemas.layout import Layout


class Item(NamedTuple):
    """One of the 27 items of the checklist."""

    section: str
    topic: str
    asks: str


ITEMS = (
    Item(
        "Title and abstract",
        "Title",
        "that a prediction model is developed or evaluated, its population and outcome",
    ),
    Item("Title and abstract", "Abstract", "a structured summary, see TRIPOD+AI for Abstracts"),
    Item(
        "Introduction",
        "Background",
        "the care context, earlier models, intended users, known health inequalities",
    ),
    Item("Introduction", "Objectives", "what is developed or evaluated"),
    Item("Methods", "Data", "the sources of the data for development and evaluation, and their dates"),
    Item("Methods", "Participants", "the setting, eligibility, and treatments received"),
    Item(
        "Methods",
        "Data preparation",
        "cleaning and quality checks, and whether they were alike for all groups",
    ),
    Item("Methods", "Outcome", "what is predicted, over which time, and how it was assessed"),
    Item(
        "Methods",
        "Predictors",
        "which, how they were chosen before modelling, how and when they were measured",
    ),
    Item("Methods", "Sample size", "how it was arrived at, for development and for evaluation"),
    Item("Methods", "Missing data", "how they were handled"),
    Item(
        "Methods",
        "Analytical methods",
        "the model, its tuning, the measures of performance and heterogeneity",
    ),
    Item("Methods", "Class imbalance", "whether and how it was handled, and any recalibration after it"),
    Item("Methods", "Fairness", "what was done to examine or improve it"),
    Item("Methods", "Model output", "what the model returns, and how any threshold was set"),
    Item("Methods", "Training versus evaluation", "how the data of development and of evaluation differ"),
    Item("Methods", "Ethical approval", "the board that approved the study, and consent"),
    Item(
        "Open science",
        "Open science",
        "funding, interests, protocol, registration, availability of data and code",
    ),
    Item(
        "Patient and public involvement", "Involvement", "of patients and the public, or that there was none"
    ),
    Item(
        "Results", "Participants", "their flow and characteristics, overall and by group, with missing values"
    ),
    Item("Results", "Model development", "participants and outcome events in each analysis"),
    Item("Results", "Model specification", "the full model, so that others can use it"),
    Item("Results", "Model performance", "its measures with intervals, also in key subgroups and over time"),
    Item("Results", "Model updating", "any, such as recalibration, and the performance after it"),
    Item("Discussion", "Interpretation", "of the main results, with regard to fairness and earlier studies"),
    Item("Discussion", "Limitations", "such as samples that do not represent, overfitting, missing data"),
    Item("Discussion", "Usability", "what users need, how poor input is handled, and next steps"),
)

FOR_THE_AUTHORS = "For the authors."


def tripod_ai(layout: Layout, cohort: str, metrics: Mapping[str, Any]) -> str:
    """Return the checklist as Markdown.

    Args:
        metrics: the content of the cohort's `metrics.json`, whose small counts are withheld.
    """
    by_number = answers(layout, cohort, metrics)
    title = metrics["tasks"][cohort]["title"]
    lines = [
        f"# TRIPOD+AI: {title}",
        "",
        f"{len(by_number)} of the {len(ITEMS)} items of the TRIPOD+AI checklist (Collins et al., BMJ 2024;385:e078378) "
        "are answered from this run, in whole or in part, each with where the answer comes from. Check them, and "
        "write what is left.",
    ]
    section = ""
    for number, item in enumerate(ITEMS, start=1):
        if item.section != section:
            section = item.section
            lines += ["", f"## {section}"]
        lines += ["", f"**{number}. {item.topic}** ({item.asks})", "", *_as_lines(by_number.get(number))]
    return "\n".join(lines) + "\n"


def _as_lines(answer: Answer | None) -> list[str]:
    if answer is None:
        return [FOR_THE_AUTHORS]
    rest = ["", f"For the authors: {answer.left}."] if answer.left else []
    return [*(f"- {sentence}" for sentence in answer.sentences), "", f"From: {answer.source}.", *rest]

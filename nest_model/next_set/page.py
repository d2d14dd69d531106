"""The page on next-basket systems: who recommends best, by how much, how surely, and at what cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup
from matplotlib.figure import Figure

from nest_model.next_set import pictures, published
from nest_model.next_set.compare import BEST_NEST, WINNER, YARDSTICK
from nest_model.report import figures
from nest_model.report.page import pretraining_variables, template
from nest_model.report.table import interval

TARGETS = {
    "last_visible": "the last basket whose products are known",
    "held_out": "the basket that is withheld from every system",
}
IN_GROUPS = 6
"""Lines in a figure by group of users: more cannot be told apart."""


def has_scores(metrics: Mapping[str, Any]) -> bool:
    """Return whether there are enough users for scores to be disclosed."""
    return all(row["scores"]["ndcg"]["value"] is not None for row in metrics["rows"])


def sentences(metrics: Mapping[str, Any]) -> list[str]:
    """Return what a reader should know first: the winner, and before it what NEST adds, unless that is sure."""
    if not has_scores(metrics):
        return ["Every score is withheld: there are under eleven test users."]
    rows = {row["name"]: row for row in metrics["rows"]}
    systems = {name: row for name, row in rows.items() if not row["is_control"]}
    winner, nest = _winner(metrics, systems), _what_nest_adds(metrics, rows)
    return [winner, *nest] if _surely_adds(metrics) else [*nest, winner]


def _what_nest_adds(metrics: Mapping[str, Any], rows: Mapping[str, Any]) -> list[str]:
    """Return how much the best form of NEST adds to the features it is given and to trees on them, and how surely."""
    best = rows.get(metrics["chosen_on_validation"][BEST_NEST] or "")
    if best is None or not metrics["best_nest_less"]:
        return []
    differences = metrics["best_nest_less"].values()
    lead = "It is not sure that NEST adds anything"
    if _surely_adds(metrics):
        lead = "NEST adds something"
    elif all(less["high"] < 0 for less in differences):
        lead = "NEST surely adds nothing"
    form = (
        "its best form" if metrics["chosen_on_validation"][WINNER] else "the form of it that is named first"
    )
    parts = [
        f"less {rows[name]['title']}'s is {interval(less, with_sign=True)}"
        for name, less in metrics["best_nest_less"].items()
    ]
    return [f"{lead}: the NDCG@10 of {form}, {best['title']}, {' and '.join(parts)}."]


def _surely_adds(metrics: Mapping[str, Any]) -> bool:
    """Return whether the best form of NEST surely beats the features it is given and trees on them."""
    return all(less["low"] > 0 for less in metrics["best_nest_less"].values())


def _winner(metrics: Mapping[str, Any], rows: Mapping[str, Any]) -> str:
    """Return which system recommends best: the one the validation users chose, or, where none were, the test users."""
    own_lists = [
        row for row in rows.values() if not row["is_filled"]
    ]  # filling a list can only raise its score
    highest = max(own_lists, key=lambda row: row["scores"]["ndcg"]["value"])
    choice = rows.get(metrics["chosen_on_validation"][WINNER] or "")
    best = choice or highest
    ndcg, recall = (interval(best["scores"][metric]) for metric in ("ndcg", "recall"))
    who = "the validation users' choice" if choice else "chosen after the fact, by the users it is scored on"
    words = [f"{best['title']} recommends best ({who}): NDCG@10 {ndcg}, Recall@10 {recall}."]
    if highest["name"] != best["name"]:
        value = highest["scores"]["ndcg"]["value"]
        words.append(
            f"On the test users {highest['title']} is higher ({value:.3f}), which nobody could know before."
        )
    yardstick = rows.get(metrics["chosen_on_validation"][YARDSTICK] or "")
    if yardstick is None:
        return " ".join(words)
    if best["name"] == yardstick["name"]:
        return " ".join([*words, "That is the yardstick: nothing tried here was chosen over counting."])
    less = best["less_yardstick"]["ndcg"]
    difference = interval(less, with_sign=True)
    if choice is None:
        surely = "" if less["low"] > 0 else ", which is within chance"
        words.append(f"Less the yardstick, {yardstick['title']}, that is {difference}{surely}.")
    else:
        surely = (
            "surely better"
            if less["low"] > 0
            else "surely worse"
            if less["high"] < 0
            else "not surely better"
        )
        words.append(f"It is {surely} than the yardstick, {yardstick['title']}: NDCG@10 {difference}.")
    return " ".join(words)


def overview(metrics: Mapping[str, Any]) -> Figure:
    """Draw every row's recall and NDCG with intervals."""
    return pictures.scores(metrics["rows"], yardstick=metrics["chosen_on_validation"][YARDSTICK])


def all_pictures(metrics: Mapping[str, Any]) -> dict[str, Figure]:
    """Return the figures of the page by name; none where the scores are withheld."""
    if not has_scores(metrics):
        return {}
    figures_by_name = {"scores": overview(metrics), "parts": pictures.parts(metrics["rows"])}
    titles = _in_groups(metrics)
    for name, title, x in (
        ("history", "By length of the history", "Baskets in the history"),
        ("repeats", "By how much is bought again", "Share of the basket that was bought before"),
    ):
        if len(metrics["groups"].get(name, [])) > 1:
            figures_by_name[name] = pictures.groups(metrics["groups"][name], titles, title=title, x=x)
    return figures_by_name


def _in_groups(metrics: Mapping[str, Any]) -> dict[str, str]:
    """Return the rows to draw by group: the yardstick, the best NEST, and the best others."""
    choices = [name for name in metrics["chosen_on_validation"].values() if name]
    rows_by_ndcg = sorted(
        (row for row in metrics["rows"] if not row["is_control"]),
        key=lambda row: -row["scores"]["ndcg"]["value"],
    )
    names = list(dict.fromkeys([*choices, "g_topfreq", *(row["name"] for row in rows_by_ndcg)]))[:IN_GROUPS]
    return {row["name"]: row["title"] for row in metrics["rows"] if row["name"] in names}


ALT = {
    "scores": "Recall and NDCG of every system with intervals; the numbers are in the table",
    "parts": "Recall of every system, split into products bought before and new ones",
    "history": "Recall of some systems by the number of baskets in the history",
    "repeats": "Recall of some systems by the share of the basket that was bought before",
}


def render(metrics: Mapping[str, Any]) -> str:
    """Return the page as one self-contained file."""
    drawings = {
        name: Markup(figures.svg(figure, alt=ALT[name])) for name, figure in all_pictures(metrics).items()
    }
    return template("page.html.j2", "nest_model.next_set", three=three, flags=flags).render(
        metrics=metrics,
        **pretraining_variables(metrics["pretraining"], people="users"),
        sentences=sentences(metrics),
        pictures=drawings,
        targets=TARGETS,
        yardstick=metrics["chosen_on_validation"][YARDSTICK],
        systems=yardstick_first(metrics),
        controls=[row for row in metrics["rows"] if row["is_control"]],
        paper=published.PAPER,
        not_comparable=published.NOT_COMPARABLE,
        scores_here={row["name"]: row["scores"] for row in metrics["rows"]},
    )


def yardstick_first(metrics: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rows that are no controls, the yardstick before all others."""
    yardstick = metrics["chosen_on_validation"][YARDSTICK]
    return sorted(
        (row for row in metrics["rows"] if not row["is_control"]), key=lambda row: row["name"] != yardstick
    )


def three(value: float | None) -> str:
    """Format a score."""
    return "–" if value is None else f"{value:.3f}"


def flags(row: Mapping[str, Any]) -> str:
    """Return what a reader must know to compare a row."""
    words = {
        "transductive": "learns from the test users' own baskets",
        "ranks_only_repeats": "repeats only",
        "modified": "modified",
        "uses_query_time": "reads the query day",
    }
    names = [text for trait, text in words.items() if row["traits"][trait]]
    if row["saw_labels"]:
        names.append("its encoder saw labels")
    if row["is_sample"] and row["reads_backbone"]:
        names.append("its NEST was pretrained on all users")
    if row["is_filled"]:
        names = [name for name in names if name != "repeats only"] + ["filled with G-TopFreq"]
    return ", ".join(names) or "–"


def text_table(metrics: Mapping[str, Any]) -> str:
    """Return the results as text for a terminal."""
    yardstick = metrics["chosen_on_validation"][YARDSTICK]
    lines: list[tuple[str, ...]] = [
        ("System", "Recall@10", "NDCG@10", "NDCG@10 less yardstick's", "CPU seconds")
    ]
    controls = [row for row in metrics["rows"] if row["is_control"]]
    for row in [*yardstick_first(metrics), *controls]:
        less = row.get("less_yardstick")
        difference = interval(less["ndcg"], with_sign=True) if less else "–"
        title = f"{row['title']} (yardstick)" if row["name"] == yardstick else row["title"]
        scores = (interval(row["scores"][metric]) for metric in ("recall", "ndcg"))
        lines.append((title, *scores, difference, f"{row['cpu_seconds']:,.0f}"))
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    rows = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([*sentences(metrics), "", *rows])


def markdown_rows(
    metrics: Mapping[str, Any], columns: Sequence[str] = ("recall", "ndcg")
) -> list[dict[str, str]]:
    """Return the results as rows of a table for the UI."""
    table = []
    for row in metrics["rows"]:
        less = row.get("less_yardstick")
        scores = {pictures.PANELS[metric]: interval(row["scores"][metric]) for metric in columns}
        difference = interval(less["ndcg"], with_sign=True) if less else "–"
        table.append({"": row["title"], **scores, "NDCG@10 less the yardstick's": difference})
    return table

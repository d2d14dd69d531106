"""The menu: what is written at encounters of each reason, from the CSV files of this folder.

Shares refer to encounters of the reason (and to children with the trait, between two ages). Codes are real; the shares
are rough, chosen for a record of usual size, and represent no population.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.synthetic.catalog import Bools, Floats, Ints
from pipelines.synthetic.pcornet.children import Children
from pipelines.synthetic.pcornet.visits import MONTH, REASON, Visits
from schemas.io.paths import scan_csv

FOLDER = Path(__file__).parent
CONDITION_SHARE = {"CHRONIC": 0.95, "STAY": 0.9, "ED": 0.4, "SICK": 0.3, "WELL": 0.3}


@dataclass(frozen=True)
class CodeDraws:
    """Rows of one kind: the encounter of each, and its line in a table of the menu."""

    visit: Ints
    line: Ints


@cache
def table(name: str) -> pl.DataFrame:
    """Read one file of the menu once, with numeric columns as numbers."""
    numbers = {"share", "from_month", "to_month", "month", "mean", "sd", "decimals", "factor", "weight"}
    read = scan_csv(FOLDER / f"{name}.csv", infer_schema=False).collect()
    return read.with_columns(pl.col(column).cast(pl.Float64) for column in read.columns if column in numbers)


@cache
def codes(kind: str) -> pl.DataFrame:
    """Return the lines of one kind; for diagnoses, followed by one line per chronic condition."""
    lines = table("menu").filter(kind=kind)
    if kind != "DX":
        return lines
    condition_codes = table("conditions").select("code10", "code9", type10=pl.lit("10"), type9=pl.lit("09"))
    return pl.concat([lines, condition_codes], how="diagonal")


def draw_codes(kind: str, children: Children, visits: Visits, rng: np.random.Generator) -> CodeDraws:
    """Draw the codes of one kind at every encounter, sorted by encounter."""
    months = visits.start / 1440 / MONTH
    visit_parts: list[Ints] = []
    line_parts: list[Ints] = []
    for number, line in enumerate(table("menu").filter(kind=kind).iter_rows(named=True)):
        draws = _draw_line(line, children, visits, months, rng)
        visit_parts.append(draws)
        line_parts.append(np.full(len(draws), number))
    if kind == "DX":
        conditions = _conditions(children, visits, rng)
        visit_parts.append(conditions)
        condition_lines = (
            table("menu").filter(kind=kind).height + children.condition[visits.child[conditions]]
        )
        line_parts.append(condition_lines)
    visit, lines = np.concatenate(visit_parts), np.concatenate(line_parts)
    order = np.lexsort((lines, visit))
    return CodeDraws(visit[order], lines[order])


def _draw_line(
    line: dict[str, Any],
    children: Children,
    visits: Visits,
    months: Floats,
    rng: np.random.Generator,
) -> Ints:
    candidates = visits.of(line["reason"])
    is_drawn: Bools = rng.random(len(candidates)) < line["share"]
    candidates = candidates[is_drawn]
    first, last = line["from_month"], line["to_month"]
    if first is not None:
        candidates = candidates[(months[candidates] >= first) & (months[candidates] < last)]
    if line["trait"] is not None:
        candidates = candidates[children.traits[line["trait"]][visits.child[candidates]]]
    return candidates


def _conditions(children: Children, visits: Visits, rng: np.random.Generator) -> Ints:
    share = np.zeros(len(REASON))
    for reason, value in CONDITION_SHARE.items():
        share[REASON[reason]] = value
    has_condition = children.traits["complex"][visits.child] & (
        rng.random(visits.count) < share[visits.reason]
    )
    return np.flatnonzero(has_condition)


def draw_panels(visits: Visits, rng: np.random.Generator) -> CodeDraws:
    """Draw laboratory rows: all items of the ordered panels, repeated every other day in long stays."""
    months = visits.start / 1440 / MONTH
    visit_parts: list[Ints] = []
    line_parts: list[Ints] = []
    labs = table("labs")
    for line in table("panels").iter_rows(named=True):
        candidates = visits.of(line["reason"])
        candidates = candidates[rng.random(len(candidates)) < line["share"]]
        if line["from_month"] is not None:
            candidate_months = months[candidates]
            candidates = candidates[
                (candidate_months >= line["from_month"]) & (candidate_months < line["to_month"])
            ]
        days = (visits.end - visits.start)[candidates] // 1440
        draws = np.repeat(candidates, np.clip(days // 2, 1, 6))
        items = np.flatnonzero((labs["panel"] == line["panel"]).to_numpy())
        visit_parts.append(np.repeat(draws, len(items)))
        line_parts.append(np.tile(items, len(draws)))
    visit, lines = np.concatenate(visit_parts), np.concatenate(line_parts)
    order = np.argsort(visit, kind="stable")
    return CodeDraws(visit[order], lines[order])


def draw_vaccines(visits: Visits, rng: np.random.Generator) -> CodeDraws:
    """Draw vaccines: each line at the well-child visit (or birth) closest to its month of age."""
    months = visits.start / 1440 / MONTH
    well = np.union1d(visits.of("WELL"), visits.of("BIRTH"))
    visit_parts: list[Ints] = []
    line_parts: list[Ints] = []
    for number, line in enumerate(table("vaccines").iter_rows(named=True)):
        slack = max(0.4, 0.12 * line["month"])
        candidates = well[np.abs(months[well] - line["month"] - 0.3) <= slack]
        # the first such visit of a child
        candidates = candidates[np.diff(visits.child[candidates], prepend=-1) != 0]
        candidates = candidates[rng.random(len(candidates)) < line["share"]]
        visit_parts.append(candidates)
        line_parts.append(np.full(len(candidates), number))
    visit, lines = np.concatenate(visit_parts), np.concatenate(line_parts)
    order = np.lexsort((lines, visit))
    return CodeDraws(visit[order], lines[order])

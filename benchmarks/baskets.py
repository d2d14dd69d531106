"""`python -m benchmarks.baskets`: the cost of recommending the next baskets of a synthetic Instacart."""

import argparse
import logging
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from pydantic import BaseModel, ConfigDict

from benchmarks.pipelines.etl import write_synthetic
from benchmarks.pipelines.measure import Cost, Machine, measure_stage
from benchmarks.results_folder import add_out
from nest_model.next_set.questions import read_shop
from nest_model.next_set.ranking import LISTED
from nest_model.next_set.system import Tools, load_system
from nest_model.training.telemetry import NullTelemetry
from pipelines.sources.instacart import steps
from pipelines.sources.instacart.baskets import write_baskets
from pipelines.sources.instacart.tables import InstacartSource
from schemas.errors import NestError
from schemas.io.outputs import empty_folder, write_json, write_text
from schemas.layout import Layout
from schemas.settings import Settings

FULL_USERS = 206_209
SYSTEMS = ("g_topfreq", "p_topfreq", "gp_topfreq", "blend", "tifuknn")
PRELOAD = ["benchmarks.baskets", "nest_model.next_set.tifuknn", "scipy.sparse", "sklearn.model_selection"]

log = logging.getLogger("nest")


class SystemCost(BaseModel):
    """What one system cost: CPU seconds of each part, and the whole process, reading included."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    system: str
    training_users: int
    test_users: int
    products: int
    lines: int
    read_cpu_s: float
    fit_cpu_s: float
    rank_cpu_s: float
    process: Cost


def main(arguments: list[str] | None = None) -> int:
    """Measure the systems, print the table, and write it and the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baskets", description=__doc__)
    parser.add_argument(
        "--users", type=int, default=FULL_USERS, help="number of users (default: Instacart's)"
    )
    parser.add_argument(
        "--systems", nargs="+", default=list(SYSTEMS), help="names of the systems, at their defaults"
    )
    parser.add_argument("--work", type=Path, required=True, help="scratch folder, where inputs are kept")
    add_out(parser, "folder of the table and the JSON")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    machine = Machine.this()
    try:
        for name in options.systems:
            load_system(name)
        layout = prepare(options.work, options.users)
        costs = [cost_of(name, layout) for name in options.systems]
    except NestError as error:
        log.error("error: %s", error)
        return 2
    report = {"machine": machine.model_dump(), "systems": [cost.model_dump() for cost in costs]}
    write_json(options.out / "baskets.json", report)
    table = markdown_report(costs)
    write_text(options.out / "baskets.md", f"{machine.words}\n\n{table}\n")
    log.info(table)
    return 0


def prepare(work: Path, users: int) -> Layout:
    """Write the baskets of a synthetic Instacart unless an earlier measurement did, and return where they are."""
    raw, layout = work / f"instacart_{users}", Layout(work / f"baskets_{users}" / "instacart")
    write_synthetic(raw, "pipelines.synthetic.instacart", "--users", str(users))
    complete = layout.root.parent / "complete.json"
    if complete.is_file():  # written last
        return layout
    empty_folder(layout.root.parent)
    layout.root.mkdir()
    source = InstacartSource(raw)
    steps.inspect_raw(source, layout)
    steps.extract_subjects(source, layout, subjects_per_bucket=Settings().subjects_per_bucket)
    steps.extract_encounters(source, layout)
    steps.extract_events(source, layout)
    card = write_baskets(layout)
    shutil.rmtree(layout.events)
    write_json(complete, {"counts": dict(card.counts)})
    return layout


def cost_of(name: str, layout: Layout) -> SystemCost:
    """Fit one system and rank for every test user, in a process of its own."""
    figures, cost = measure_stage(name, recommend, name, layout.baskets, layout.subjects, preload=PRELOAD)
    log.info("%s: %.1f CPU s, %.0f MiB", name, cost.cpu_s, cost.peak_rss_mib)
    return SystemCost(system=name, process=cost, **figures)


def recommend(name: str, baskets: Path, subjects: Path) -> dict[str, float]:
    """Read the shop, fit the system, rank for the test users, and return the sizes and the CPU seconds."""
    times = [time.process_time()]
    shop = read_shop(baskets=baskets, subjects=subjects, target="last_visible")
    times.append(time.process_time())
    system = load_system(name)
    with tempfile.TemporaryDirectory() as scratch:
        tools = Tools(NullTelemetry(), _no_device, Path(scratch))
        recommender = system(system.Options(), tools).fit(shop.learning_data, shop.validation, 0)
        times.append(time.process_time())
        recommender.rank(shop.test.histories, LISTED)
        times.append(time.process_time())
    read, fit, rank = (round(later - earlier, 2) for earlier, later in pairwise(times))
    training = shop.learning_data.training
    return {
        "training_users": len(training),
        "test_users": len(shop.test),
        "products": training.products,
        "lines": len(training.items),
        "read_cpu_s": read,
        "fit_cpu_s": fit,
        "rank_cpu_s": rank,
    }


def markdown_report(costs: list[SystemCost]) -> str:
    """Return the table of the costs, and the sizes above it."""
    first = costs[0]
    rows = [
        f"| {load_system(cost.system).title} | {cost.read_cpu_s:.1f} | {cost.fit_cpu_s:.1f} | {cost.rank_cpu_s:.1f} | "
        f"{cost.process.cpu_s:.1f} | {cost.process.wall_s:.1f} | {cost.process.peak_rss_mib:,.0f} |"
        for cost in costs
    ]
    return "\n".join(
        [
            f"{first.training_users:,} training users, {first.test_users:,} test users, {first.products:,} products, "
            f"{first.lines:,} training lines.",
            "",
            "| system | read, CPU s | fit, CPU s | rank, CPU s | all, CPU s | all, s | peak MiB |",
            "|---|--:|--:|--:|--:|--:|--:|",
            *rows,
        ]
    )


def _no_device() -> NoReturn:
    raise NestError("this benchmark measures systems that count; choose one that trains nothing on a device.")


if __name__ == "__main__":
    sys.exit(main())

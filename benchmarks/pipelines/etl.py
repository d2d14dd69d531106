"""Measures the way from raw files to checked shards, stage by stage: rows, seconds, memory, bytes."""

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.pipelines.measure import Cost, measure_stage
from benchmarks.pipelines.yardstick import plain
from pipelines.cohorts import write_labels
from pipelines.corpus import build as corpus
from pipelines.reading.code_names import find_dictionaries, write_code_names
from pipelines.sources.instacart import corpus as instacart_corpus
from pipelines.sources.instacart import steps as instacart
from pipelines.sources.instacart.tables import InstacartSource
from pipelines.sources.mimic import steps as mimic
from pipelines.sources.mimic.tables import TABLE_OF_KIND
from pipelines.sources.pcornet import corpus as pcornet_corpus
from pipelines.sources.pcornet import steps as pcornet
from pipelines.sources.pcornet.databases.dump import DuckDBFile
from pipelines.sources.pcornet.databases.extract import extract
from pipelines.sources.pcornet.extracted import PcornetSource
from pipelines.sources.pcornet.ids import SYNTHETIC_SALT
from schemas.cards import StepCard, files_of
from schemas.cohort import read_folder
from schemas.errors import NestError
from schemas.expectations import BASKET_SUITES, PCORNET_SUITES, TABLE_SUITES, Suite
from schemas.io.outputs import write_text
from schemas.layout import Layout
from schemas.rules import PRESETS, DataRules
from schemas.settings import Settings

PRELOAD = [
    "pipelines.sources.mimic.steps",
    "pipelines.sources.instacart.steps",
    "pipelines.sources.pcornet.steps",
    "pipelines.cohorts",
    "benchmarks.pipelines.measure",
    "schemas.expectations.validation",
]
COHORTS = Path(__file__).parents[2] / "assets" / "cohorts"
PLAIN = "plain labs, by polars"
"""The reference stage, which is not part of the chain but compared with it."""
EXTRACTED = "extracted"
"""The stage that extracts rows from a database; the stages after it read them again."""
LABELS = "labels "
"""The prefix of the stages after the chain, each of which writes the labels of one cohort."""

log = logging.getLogger("nest")

Work = dict[str, tuple[Callable[..., Any], *tuple[Any, ...]]]
"""By stage, in order: its function and arguments."""


def mimic_stages(hosp: Path, crosswalks: Path, layout: Layout) -> Work:
    """Return the stages from MIMIC-IV's files to checked shards."""
    source, rules = mimic.find_source(hosp, crosswalks), PRESETS["default"]
    return {
        "raw": (mimic.inspect_raw, source, layout),
        "subjects": (mimic.extract_subjects, source, layout, rules),
        "encounters": (mimic.extract_encounters, source, layout),
        "events": (mimic.extract_events, source, layout, rules),
        "drug_lookup": (mimic.fit_drug_lookup, source, layout, rules),
        "vocab": (corpus.fit_vocab, layout, rules),
        "seqset": (partial(corpus.write_seqset, tables=TABLE_OF_KIND), layout, rules),
        "subject_years": (mimic.extract_subject_years, source, layout),
        "code_names": (write_code_names, layout, find_dictionaries([hosp, crosswalks])),
        **_checks(TABLE_SUITES, layout),
        **_labels("mimic", layout, rules),
        PLAIN: (plain, source.path("labevents"), layout.cards, layout.root / "plain.parquet"),
    }


def instacart_stages(folder: Path, layout: Layout) -> Work:
    """Return the stages from Instacart's files to checked shards."""
    source, rules = InstacartSource(folder), PRESETS["default"]
    subjects = partial(instacart.extract_subjects, subjects_per_bucket=Settings().subjects_per_bucket)
    return {
        "raw": (instacart.inspect_raw, source, layout),
        "subjects": (subjects, source, layout),
        "encounters": (instacart.extract_encounters, source, layout),
        "events": (instacart.extract_events, source, layout),
        "vocab": (instacart_corpus.fit_vocab, layout, rules),
        "seqset": (instacart_corpus.write_seqset, layout, rules),
        **_checks(BASKET_SUITES, layout),
    }


def pcornet_stages(database: Path, crosswalks: Path | None, layout: Layout) -> Work:
    """Return the stages from a CDM in a DuckDB database to checked shards."""
    source, rules = PcornetSource(layout.extracted, crosswalks, SYNTHETIC_SALT), PRESETS["default"]
    subjects = partial(pcornet.extract_subjects, subjects_per_bucket=Settings().subjects_per_bucket)
    return {
        EXTRACTED: (extract, DuckDBFile(database), layout.extracted),
        "raw": (pcornet.inspect_raw, source, layout),
        "subjects": (subjects, source, layout, rules),
        "encounters": (pcornet.extract_encounters, source, layout),
        "events": (pcornet.extract_events, source, layout),
        "vocab": (pcornet_corpus.fit_vocab, layout, rules),
        "seqset": (pcornet_corpus.write_seqset, layout, rules),
        "code_names": (write_code_names, layout, find_dictionaries([crosswalks] if crosswalks else [])),
        **_checks(PCORNET_SUITES, layout),
        **_labels("pcornet", layout, rules),
    }


def _labels(source: str, layout: Layout, rules: DataRules) -> Work:
    """Return a stage for each cohort of the source that is shipped, the examples too."""
    return {
        f"{LABELS}{cohort.cohort}": (write_labels, cohort, layout, rules)
        for folder in (COHORTS, COHORTS / "examples")
        for cohort in read_folder(folder)[0]
        if cohort.source == source
    }


def _checks(suites: Mapping[str, Callable[[Layout], Suite]], layout: Layout) -> Work:
    checks: Work = {f"check {table}": (check, suite(layout)) for table, suite in suites.items()}
    return {
        **checks,
        "hash outputs": (hash_outputs, layout),
    }  # the hashes by which a step finds that nothing changed


class Stage(Cost):
    """The cost of one stage, the rows it read (for labels: wrote) and the bytes it wrote."""

    rows: int
    written_bytes: int


def run(work: Work, layout: Layout) -> list[Stage]:
    """Run every stage in a process of its own and return what each cost."""
    costs = []
    for stage, (function, *arguments) in work.items():
        result, cost = measure_stage(stage, function, *arguments, preload=PRELOAD)
        is_labels = stage.startswith(LABELS)
        output = getattr(layout, stage, None) if stage != "raw" else None
        if is_labels:
            output = layout.cohort(stage.removeprefix(LABELS))
        costs.append(
            Stage(
                **cost.model_dump(),
                rows=result.counts["rows"] if is_labels else _rows_read(stage, result),
                written_bytes=size_of(output) if output else 0,
            )
        )
        log.info("%-20s%9.1f CPU s%9.1f s%8.0f MiB", stage, cost.cpu_s, cost.wall_s, cost.peak_rss_mib)
    return costs


def _rows_read(stage: str, result: Any) -> int:
    if stage == EXTRACTED:
        return sum(line.rows for line in result.values())
    return sum(flow.source_rows for flow in result.flows.values()) if isinstance(result, StepCard) else 0


def hash_outputs(layout: Layout) -> None:
    """Hash all outputs of the steps, as each asset does after its step."""
    tables = (
        layout.subjects,
        layout.encounters,
        layout.events,
        layout.drug_lookup,
        layout.vocab,
        layout.seqset,
    )
    files_of([table for table in tables if table.exists()], layout.root)


def check(suite: Suite) -> None:
    """Run the checks of a table.

    Raises:
        NestError: a check of severity ERROR fails.
    """
    from schemas.expectations.validation import validate

    outcome = validate(suite)
    if not outcome.passed("ERROR"):
        raise NestError(outcome.message("ERROR"))


def summary(name: str, costs: list[Stage], layout: Layout, raw_bytes: int) -> dict[str, Any]:
    """Return the figures of one input."""
    chain = [cost for cost in costs if cost.stage != PLAIN and not cost.stage.startswith(LABELS)]
    cpu = sum(cost.cpu_s for cost in chain)
    # the rows of seqset are events, not source rows, and extracted rows are counted when they are read again
    rows = sum(cost.rows for cost in chain if cost.stage not in (EXTRACTED, "seqset"))
    plain_rates = [round(cost.rows / cost.cpu_s) for cost in costs if cost.stage == PLAIN]
    return {
        "input": name,
        "source_rows": rows,
        "raw_bytes": raw_bytes,
        "events_bytes": size_of(layout.events),
        "seqset_bytes": size_of(layout.seqset),
        "cpu_s": round(cpu, 1),
        "wall_s": round(sum(cost.wall_s for cost in chain), 1),
        "peak_rss_mib": max(cost.peak_rss_mib for cost in chain),
        "source_rows_per_cpu_s": round(rows / cpu),
        "plain_rows_per_cpu_s": plain_rates[0] if plain_rates else None,
        "costliest": max(chain, key=lambda cost: cost.cpu_s).stage,
        "stages": [cost.model_dump() for cost in costs],
    }


def size_of(folder: Path) -> int:
    """Return the bytes of a file, or of the files in a folder."""
    files = folder.iterdir() if folder.is_dir() else [folder]
    return sum(file.stat().st_size for file in files if file.is_file())


def markdown_report(figures: list[dict[str, Any]]) -> str:
    """Return the figures as Markdown: a line for each input, and for each of its stages."""
    head = "| input | source rows | raw | CPU s | wall s | peak RSS | rows per CPU s | of plain labs | costliest |"
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|---|"]
    for entry in figures:
        rate, plain_rate = entry["source_rows_per_cpu_s"], entry["plain_rows_per_cpu_s"]
        share = f"{rate / plain_rate:.2f} of {plain_rate:,}" if plain_rate else "–"
        lines.append(
            f"| {entry['input']} | {entry['source_rows']:,} | {entry['raw_bytes'] / 1e6:,.0f} MB "
            f"| {entry['cpu_s']:,.1f} | {entry['wall_s']:,.1f} | {entry['peak_rss_mib']:,.0f} MiB | {rate:,} "
            f"| {share} | {entry['costliest']} |"
        )
    by_name = [{stage["stage"]: stage for stage in entry["stages"]} for entry in figures]
    names = list(dict.fromkeys(name for stages in by_name for name in stages))
    for words, cell in _CELLS.items():
        lines += ["", f"| {words} | {' | '.join(entry['input'] for entry in figures)} |"]
        lines.append("|---" + "|--:" * len(figures) + "|")
        for name in names:
            cells = (cell(stages[name]) if name in stages else "–" for stages in by_name)
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


_CELLS: dict[str, Callable[[dict[str, Any]], str]] = {
    "CPU s, wall s (peak MiB)": lambda stage: (
        f"{stage['cpu_s']:,.1f}, {stage['wall_s']:,.1f} ({stage['peak_rss_mib']:,.0f})"
    ),
    "rows read, or labelled (MB written)": lambda stage: (
        f"{stage['rows']:,} ({stage['written_bytes'] / 1e6:,.1f})"
    ),
}


def write_synthetic(raw: Path, *arguments: str) -> None:
    """Write a synthetic source by its command unless it exists, and log the cost."""
    if (raw / "cost.json").is_file():  # written last, so the source is complete
        return
    command = [sys.executable, "-m", *arguments, "--out", str(raw)]
    _, cost = measure_stage("generate", partial(subprocess.run, check=True), command, preload=PRELOAD)
    write_text(raw / "cost.json", cost.model_dump_json() + "\n")
    log.info(
        "generated in %.1f CPU s, %.1f s, %.0f MiB a process", cost.cpu_s, cost.wall_s, cost.peak_rss_mib
    )

"""What a run ends with: where to look; by `python -m assets.results mimic` the results table and how to see more."""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from assets.cohort_files import COHORT_FILES
from schemas.cards import COHORT_STEPS
from schemas.cohort import CANNOT_ANSWER, read_folder, source_of_bad_file
from schemas.errors import NestError
from schemas.io.urls import redact_url
from schemas.io.verify import verified
from schemas.layout import Layout
from schemas.settings import ELSEWHERE, Settings
from schemas.sources import cohort_sources, sources


def tabulated() -> tuple[str, ...]:
    """Return the sources that have a table of results."""
    return (*cohort_sources(), "instacart")


def results(source: str) -> str:
    """Return the results of the last report of a source, as text for a terminal.

    Raises:
        NestError: there is no report yet.
    """
    from nest_model.report import results_table  # matplotlib: only where it is asked for

    settings = Settings()
    if source == "instacart":
        return _next_basket_results(settings)
    if source not in cohort_sources():
        raise NestError(f"{source}: has no results table; {', '.join(tabulated())} have.")
    layout = _layout(settings.data_folder / source, settings)
    folder = layout.report(source)
    data = redact_url(settings.store_url or str(settings.data_folder))
    if not (folder / "metrics.json").exists():
        raise NestError(
            f"{folder / 'metrics.json'}: no results yet; run `.venv/bin/dagster job execute -j {source}_full`."
        )
    metrics = json.loads(verified(folder / "metrics.json").read_text())
    seed = (metrics["pretraining"] or {}).get("seed", settings.seed)
    seeds_per_task = [count for task in metrics["tasks"].values() for count in task.get("seeds", {}).values()]
    to_mend = cohorts_to_mend(source, metrics)
    return "\n".join(
        [
            results_table(metrics),
            "",
            f"Preset:      {metrics['preset']}, seed {seed}"
            + (f"; tasks with {max(seeds_per_task)} seeds" if seeds_per_task else ""),
            f"Data:        {data}",
            *([f"Experiment:  {settings.experiment}"] if settings.experiment else []),
            f"Report:      {folder / 'report.html'}",
            f"In the UI:   {_ui_command(settings, source)}, then http://127.0.0.1:3000",
            *_secrets(settings, source),
            *_other_experiments(layout, settings, f"{next(iter(metrics['tasks']), source)}_nest"),
            *(["", "Cohort files to mend, from which nothing was made:", *to_mend] if to_mend else []),
        ]
    )


def _next_basket_results(settings: Settings) -> str:
    from nest_model.next_set.page import text_table  # matplotlib: only where it is asked for

    folder = _layout(settings.data_folder / "instacart", settings).next_basket_report(
        settings.instacart_question
    )
    if not (folder / "metrics.json").exists():
        raise NestError(
            f"{folder / 'metrics.json'}: no results yet; run `.venv/bin/dagster job execute -j instacart_full`."
        )
    metrics = json.loads(verified(folder / "metrics.json").read_text())
    places = [
        f"Data:    {redact_url(settings.store_url or str(settings.data_folder))}",
        f"Report:  {folder / 'report.html'}",
        f"In the UI: {_ui_command(settings, 'instacart')}, then http://127.0.0.1:3000",
    ]
    return "\n".join([text_table(metrics), "", *places])


def cohorts_to_mend(source: str, metrics: Mapping[str, Any], folder: Path = COHORT_FILES) -> list[str]:
    """Return the faults of the cohort files for a source that cannot be read, and of those its data cannot answer."""
    used_names = {f"{name}_{suffix}" for name in sources() for suffix in COHORT_STEPS}
    _, unread = read_folder(folder, used_names, tuple(cohort_sources()))
    lines = [
        str(error)
        for error in unread.values()
        if source_of_bad_file(error, tuple(cohort_sources())) == source
    ]
    for task in metrics["tasks"].values():
        lines += [warning for warning in task.get("warnings", []) if warning.startswith(CANNOT_ANSWER)]
    return lines


def _ui_command(settings: Settings, source: str) -> str:
    """Return the command that starts the UI on this data folder, with how the source's raw tables are read."""
    inputs = [
        f"{variable}={shlex.quote(str(value))}"
        for variable, value in _inputs(settings, source).items()
        if not isinstance(value, SecretStr)
    ]
    return command(settings, " ".join([*inputs, "make ui"]))


def _secrets(settings: Settings, source: str) -> list[str]:
    """Return a line on the secrets that the UI's command leaves out; none where the run had none."""
    inputs = _inputs(settings, source)
    names = [name for name, value in inputs.items() if isinstance(value, SecretStr)]
    if isinstance(inputs.get("NEST_PCORNET_DATABASE"), str):  # a server, not the path of a file
        names += [name for name in ELSEWHERE if name in os.environ]
    return [f"             with {', '.join(names)} set as in the run"] if names else []


def _inputs(settings: Settings, source: str) -> dict[str, Any]:
    """Return, by the name of its variable, each setting of the source's input that is not the default."""
    values = {name: getattr(settings, name) for name in sources()[source].input_settings}
    return {
        f"NEST_{name.upper()}": value
        for name, value in values.items()
        if value != Settings.model_fields[name].default
    }


def command(settings: Settings, line: str) -> str:
    """Return a command with this data folder and experiment set, so that it uses their run history."""
    data = redact_url(settings.store_url or str(settings.data_folder))
    default = Path(os.environ.get("DAGSTER_HOME", "")).resolve() / "data"
    line = f"NEST_EXPERIMENT={settings.experiment} {line}" if settings.experiment else line
    return line if data == str(default) else f"NEST_DATA_DIR={shlex.quote(data)} {line}"


def written_to(settings: Settings, assets: Mapping[str, str]) -> str | None:
    """Return where to look after a run: the pages and datasets it made, or else the folder of each source.

    Args:
        settings: where the data folder is; an object store is named by its address.
        assets: the source of each asset that was made.

    Returns:
        One line, or None where all that was made says itself how it is used: what was fetched.
    """
    data = redact_url(settings.store_url or str(settings.data_folder))
    ends = _pages(assets, settings) | {
        "instacart_next_basket": _layout(Path("instacart"), settings).next_basket_report(
            settings.instacart_question
        )
        / "report.html",
        "mimic_meds": Layout(Path("mimic")).meds,
        **{
            f"{source}_evidence_page": _layout(Path(source), settings).report(f"{source}_evidence")
            / "report.html"
            for source in cohort_sources()
        },
    }
    folders = {Path(source) for source in assets.values() if source in sources()}
    places = [ends[asset] for asset in sorted(assets) if asset in ends] or sorted(folders)
    return f"done; see {', '.join(f'{data}/{place}' for place in places)}" if places else None


def _layout(folder: Path, settings: Settings) -> Layout:
    """Return the layout of the models and pages of a source: its own, or the named experiment's."""
    return Layout(folder).experiment(settings.experiment) if settings.experiment else Layout(folder)


def _other_experiments(layout: Layout, settings: Settings, model: str) -> list[str]:
    """Return lines on how a source's experiments are compared with what is shown; none if there are no others."""
    others = [name for name in layout.experiments if name != settings.experiment]
    if not others:
        return []
    folders = (layout.model(model), layout.of_source.experiment(others[0]).model(model))
    model_folders = " ".join(shlex.quote(str(folder)) for folder in folders)
    return [
        "",
        f"Experiments: {', '.join(others)}. To compare two models:",
        f"             .venv/bin/python -m nest_model compare {model_folders}",
    ]


def _pages(assets: Mapping[str, str], settings: Settings) -> dict[str, Path]:
    """Return the pages of these reports; those of cohorts only where the report over all of them was not made."""
    reports = {asset: source for asset, source in assets.items() if asset.endswith("_report")}
    return {
        asset: _layout(Path(source), settings).report(asset.removesuffix("_report")) / "report.html"
        for asset, source in reports.items()
        if asset == f"{source}_report" or f"{source}_report" not in reports
    }


def main() -> int:
    """Print the results of the source named on the command line; 2 where there are none."""
    usage = f"usage: python -m assets.results {' | '.join(tabulated())}\n"
    if sys.argv[1:] in (["-h"], ["--help"]):
        sys.stdout.write(usage)
        return 0
    if len(sys.argv) != 2:
        sys.stderr.write(usage)
        return 2
    try:
        sys.stdout.write(results(sys.argv[1]) + "\n")
    except NestError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

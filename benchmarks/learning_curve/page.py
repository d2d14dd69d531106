"""The Markdown page of the learning curve, which also lists the runs that are missing."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.learning_curve.curve import SEED_OF_CHOICES
from benchmarks.learning_curve.names import name_in_curve
from benchmarks.pretraining_scores import GUESSES, guess_cells, model_cells
from nest_model.report.table import LABELS, interval

_ORDER = ("best", "lightgbm", "logistic", "without_pretraining", "probe", "nest")
ABOUT = """# The learning curve

Made by `make bench-learning`, by the code and on the machines named below, as
[learning.md](../learning.md#the-learning-curve) says. Synthetic MIMIC of so many patients, about seven in ten
of them to train on; each seed draws other patients, pretrains and fine-tunes. The generator is one for all seeds:
its codes and risks are the same. From 1,000 patients on, the patients of a seed are among those of its larger
sizes, in the same splits. Every choice is made on validation patients; test patients are scored when all is
trained. Mean test AUROC of mortality, long stay and readmission, the mean over the seeds; 95 % intervals of
resampled patients, the same draws for every model of a seed. ± is the standard deviation over the seeds, of
patients and training together.
"""

PRETRAINING = """On validation patients, the mean over the seeds, beside the [two
guesses](../training.md#is-anything-learnt): MLM in nats, lists of a set's tokens as NDCG@10. Bold: no better than
the constant guess.
"""


def page(report: Mapping[str, Any], figure: str) -> str:
    """Return the page; `figure` is the file name of the figure in the same folder."""
    rows = {row["size"]: row for row in report["rows"]}
    parts = [ABOUT, f"{_settings(report)}\n", f"![The learning curve]({figure})\n"]
    parts += [_models(report, rows), "## NEST less LightGBM\n", _differences(report, rows)]
    parts += ["## What pretraining and fine-tuning are worth\n", _worth(report, rows)]
    parts += ["## What the pretraining learns\n", PRETRAINING, _pretraining(rows)]
    parts += ["## Task by task\n", _tasks(report, rows), "## Seed by seed\n", _by_seed(report, rows)]
    parts += ["## Runs\n", _runs(report, rows)]
    return "\n".join(parts)


def _settings(report: Mapping[str, Any]) -> str:
    settings = ", ".join(f"`{name}={value}`" for name, value in report["settings"].items())
    codes = _names_with_sizes({row["size"]: [f"`{row['code'][:16]}`"] for row in report["rows"]})
    return f"Settings: {settings}. Recipe and code: {codes or '–'}."


def _models(report: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> str:
    models = [model for model in _ORDER if model in report["models"]]
    cells = {
        size: [interval(row["models"][model]) for model in models] if (row := rows.get(size)) else None
        for size in report["sizes"]
    }
    return _table(_names(models, rows), cells)


def _differences(report: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> str:
    models = [
        model for model in ("nest", "probe", "without_pretraining", "logistic") if model in report["models"]
    ]
    heads = [f"{name} − LightGBM" for name in _names(models, rows)]
    heads[1:1] = [f"… without seed {SEED_OF_CHOICES}"]
    cells: dict[int, Sequence[str] | None] = {}
    for size in report["sizes"]:
        if (row := rows.get(size)) is None:
            cells[size] = None
            continue
        nest, *others = [interval(row["less_lightgbm"][model], with_sign=True) for model in models]
        other_seeds = interval(row["nest_less_lightgbm_other_seeds"], with_sign=True)
        cells[size] = [nest, other_seeds, *others, _percent(row["gap_closed"])]
    table = _table([*heads, "share of the gap to the planted risk NEST closes"], cells)
    return f"{table}\nThe recipe was chosen on validation patients of seed {SEED_OF_CHOICES}.\n"


def _worth(report: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> str:
    others = ("without_pretraining", "probe")
    cells: dict[int, Sequence[str] | None] = {}
    for size in report["sizes"]:
        row = rows.get(size)
        cells[size] = row and [interval(row["nest_less"][model], with_sign=True) for model in others]
    table = _table([f"{LABELS['nest']} − {name}" for name in _names(others, rows)], cells)
    has_intervals = all(
        row["nest_less"][model]["low"] is not None for row in rows.values() for model in others
    )
    note = (
        ""
        if has_intervals
        else "\nMeans without an interval are of runs whose resampled scores were not kept.\n"
    )
    factors = {size: row["fresh_rate_factor"] for size, row in rows.items()}
    words = {size: ["searched" if factor is None else f"{factor:g}"] for size, factor in factors.items()}
    rates = f"How many times NEST's learning rate NEST without pretraining has: {_names_with_sizes(words) or '–'}.\n"
    return f"{table}\n{rates}{note}"


def _pretraining(rows: Mapping[int, Mapping[str, Any]]) -> str:
    cells = {
        size: {LABELS["nest"]: model_cells(scores)}
        | {words: guess_cells(scores, guess) for guess, words in GUESSES.items()}
        for size, row in rows.items()
        if (scores := row["pretraining"])
    }
    if not cells:
        return "The scores of these runs' pretrainings were not kept.\n"
    heads = next(iter(next(iter(cells.values())).values()))
    lines = _heads(["", *heads])
    for size, cells_of_size in cells.items():
        lines += [_line(f"{size:,}", [words, *row.values()]) for words, row in cells_of_size.items()]
    return "\n".join(lines) + "\n"


def _names(models: Sequence[str], rows: Mapping[int, Mapping[str, Any]]) -> list[str]:
    return [name_in_curve(model, list(rows.values())) for model in models]


def _percent(score: Mapping[str, float | None]) -> str:
    """Return a share as `23 % (4 to 41)`."""
    value, low, high = (
        None if (share := score[part]) is None else f"{100 * share:.0f}".replace("-", "−")
        for part in ("value", "low", "high")
    )
    return "–" if value is None else f"{value} %" if low is None else f"{value} % ({low} to {high})"


def _tasks(report: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> str:
    models = [model for model in _ORDER if model in report["models"]]
    lines = _heads(["task", *_names(models, rows)])
    for size, row in rows.items():
        for title, scores in row["tasks"].items():
            lines.append(_line(f"{size:,}", [title, *(interval(scores[model]) for model in models)]))
    return "\n".join(lines) + "\n"


def _by_seed(report: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> str:
    models = [model for model in _ORDER if model in report["models"]]
    lines = _heads(["seed", *_names(models, rows), "NEST − LightGBM"])
    for size, row in rows.items():
        for scores in row["by_seed"]:
            cells = [interval(scores["models"][model]) for model in models]
            difference = interval(scores["less_lightgbm"]["nest"], with_sign=True)
            lines.append(_line(f"{size:,}", [str(scores["seed"]), *cells, difference]))
    return "\n".join(lines) + "\n"


def _runs(report: Mapping[str, Any], rows: Mapping[int, Mapping[str, Any]]) -> str:
    heads = [
        "seeds with scores",
        "not run",
        "test patients, all seeds",
        "with the outcome",
        "seconds a run (load before)",
    ]
    cells = {}
    for size in report["sizes"]:
        row = rows.get(size)
        seeds = row["seeds"] if row else []
        unlearnable_seeds = [point["seed"] for point in report["not_learnable"] if point["size"] == size]
        missing_seeds = [seed for seed in report["seeds"] if seed not in (*seeds, *unlearnable_seeds)]
        cells[size] = [
            _join(seeds),
            _join([*missing_seeds, *(f"{seed} (too few patients)" for seed in unlearnable_seeds)]),
            f"{row['test_patients']:,}" if row else "–",
            " / ".join(f"{count:,}" for count in row["positives"].values()) if row else "–",
            _join([_seconds(run) for run in row["runs"]]) if row else "–",
        ]
    note = (
        "\nWith the outcome: rows of mortality / long stay / readmission. Seconds: of runs that were not interrupted, "
        "also where another run or other work shared the machine; the load is that before the run, or before the "
        "first of those that one command made."
    )
    machines = _names_with_sizes({row["size"]: row["machines"] for row in report["rows"]})
    return _table(heads, cells) + f"{note}{f' Made on {machines}.' if machines else ''}\n"


def _seconds(run: Mapping[str, float | None]) -> str:
    return f"{run['seconds']:,.0f}{'' if (load := run['load']) is None else f' ({load:.1f})'}"


def _names_with_sizes(names: Mapping[int, Sequence[str]]) -> str:
    """Return each name with the sizes it belongs to: `A (500, 1,000 patients); B (2,000 patients)`; one alone as `A`.

    Args:
        names: by size.
    """
    sizes: dict[str, list[str]] = {}
    for size, names_of_size in names.items():
        for name in names_of_size:
            sizes.setdefault(name, []).append(f"{size:,}")
    if len(sizes) == 1:
        return next(iter(sizes))
    return "; ".join(f"{name} ({', '.join(group)} patients)" for name, group in sizes.items())


def _join(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values)) or "–"


def _table(heads: Sequence[str], cells: Mapping[int, Sequence[str] | None]) -> str:
    """Return a table with a line for each size; None in place of cells marks a size that was not run."""
    lines = _heads(heads)
    for size, row_cells in cells.items():
        lines.append(_line(f"{size:,}", row_cells or ["not run", *[""] * (len(heads) - 1)]))
    return "\n".join(lines) + "\n"


def _heads(heads: Sequence[str]) -> list[str]:
    return [_line("patients", heads), "|--:" * (len(heads) + 1) + "|"]


def _line(first: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([first, *cells])} |"

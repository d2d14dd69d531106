"""Reports of Table 1 and of the context's length as Markdown."""

from collections.abc import Mapping
from typing import Any

from benchmarks.model.models import MODELS
from benchmarks.model.results import measured_on


def as_markdown(report: Mapping[str, Any]) -> str:
    """Return where and what was measured, the figures by formula, then a table for each protocol."""
    parts = [_where(report), by_formula(report["models"])]
    parts += [_measured(name, protocol) for name, protocol in report["protocols"].items()]
    return "\n\n".join(parts) + "\n"


def over_length(report: Mapping[str, Any]) -> str:
    """Return where and what was measured, then K tokens / s of each model at each length; – where there was no room."""
    lengths = sorted({point["length"] for point in report["points"]})
    rates = {(point["model"], point["length"]): point["median_tokens_per_s"] for point in report["points"]}
    lines = [
        f"{measured_on(report['machine'])} Protocol {report['protocol']['name']}: {report['protocol']['words']}.",
        "",
        f"| K tokens / s | {' | '.join(f'{length:,} rows' for length in lengths)} |",
        f"|---|{'--:|' * len(lengths)}",
    ]
    for model in dict.fromkeys(model for model, _ in rates):
        own = [rates[model, length] for length in lengths]
        cells = ["–" if rate is None else f"{rate / 1e3:,.2f}" for rate in own]
        lines.append(f"| {MODELS[model].label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _where(report: Mapping[str, Any]) -> str:
    sizes = report["sizes"]
    return (
        f"{measured_on(report['machine'])}\n"
        f"{sizes['subjects']} subjects of {sizes['sets']} sets of {sizes['set_rows']} rows, vocabulary "
        f"{sizes['vocab_size']:,}, d = {sizes['d_model']}, d_ff = {sizes['d_ff']}, {sizes['heads']} heads, "
        f"{sizes['layers']} layers; {report['batches']} batches × {len(report['seeds'])} seeds."
    )


def by_formula(models: Mapping[str, Mapping[str, float]]) -> str:
    """Return what is true on any machine: FLOP a token and parameters."""
    lines = ["| model | attention | GFLOP / token | parameters (M) |", "|---|---|--:|--:|"]
    for name, figures in models.items():
        entry, gflop, millions = MODELS[name], figures["flop_per_token"] / 1e9, figures["parameters"] / 1e6
        lines.append(f"| {entry.label} | O({entry.complexity}) | {gflop:.4f} | {millions:.2f} |")
    return "\n".join(lines)


def _measured(name: str, protocol: Mapping[str, Any]) -> str:
    lines = [
        f"**{name}**: {protocol['words']}",
        "",
        "| model | K tokens / s (median ± pooled SD) | peak memory (GiB) | NEST is × as fast | p |",
        "|---|--:|--:|--:|--:|",
    ]
    for model, figures in protocol["models"].items():
        rate, spread = figures["median_tokens_per_s"] / 1e3, figures["pooled_sd"] / 1e3
        peak = f"{figures['peak_bytes'] / 2**30:.2f}"
        ratio, p = figures.get("nest_times_as_fast"), figures.get("paired_t_test_p")
        compared = f"{'' if ratio is None else f'{ratio:.2f}'} | {'' if p is None else _p(p)}"
        lines.append(f"| {MODELS[model].label} | {rate:,.2f} ± {spread:,.2f} | {peak} | {compared} |")
    return "\n".join(lines)


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"

"""The reports of Table 1 and of the scaling benchmark as Markdown."""

from collections.abc import Mapping
from typing import Any

from benchmarks.model.models import MODELS
from benchmarks.model.results import describe_machine


def as_markdown(report: Mapping[str, Any]) -> str:
    """Return the machine and sizes, the figures by formula, then a table for each protocol."""
    parts = [_introduction(report), by_formula(report["models"])]
    parts += [_protocol_table(name, protocol) for name, protocol in report["protocols"].items()]
    return "\n\n".join(parts) + "\n"


def over_length(report: Mapping[str, Any]) -> str:
    """Return the machine and protocol, then K tokens / s of each model at each length; – where memory was too small."""
    lengths = sorted({point["length"] for point in report["points"]})
    rates = {(point["model"], point["length"]): point["median_tokens_per_s"] for point in report["points"]}
    lines = [
        f"{describe_machine(report['machine'])} Protocol {report['protocol']['name']}: {report['protocol']['words']}.",
        "",
        f"| K tokens / s | {' | '.join(f'{length:,} rows' for length in lengths)} |",
        f"|---|{'--:|' * len(lengths)}",
    ]
    for model in dict.fromkeys(model for model, _ in rates):
        model_rates = [rates[model, length] for length in lengths]
        cells = ["–" if rate is None else f"{rate / 1e3:,.2f}" for rate in model_rates]
        lines.append(f"| {MODELS[model].label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _introduction(report: Mapping[str, Any]) -> str:
    sizes = report["sizes"]
    return (
        f"{describe_machine(report['machine'])}\n"
        f"{sizes['subjects']} subjects of {sizes['sets']} sets of {sizes['set_rows']} rows, vocabulary "
        f"{sizes['vocab_size']:,}, d = {sizes['d_model']}, d_ff = {sizes['d_ff']}, {sizes['heads']} heads, "
        f"{sizes['layers']} layers; {report['batches']} batches × {len(report['seeds'])} seeds."
    )


def by_formula(models: Mapping[str, Mapping[str, float]]) -> str:
    """Return a table of the figures that hold on any machine: FLOP per token and parameters."""
    lines = ["| model | attention | GFLOP / token | parameters (M) |", "|---|---|--:|--:|"]
    for name, figures in models.items():
        entry, gflop, millions = MODELS[name], figures["flop_per_token"] / 1e9, figures["parameters"] / 1e6
        lines.append(f"| {entry.label} | O({entry.complexity}) | {gflop:.4f} | {millions:.2f} |")
    return "\n".join(lines)


def _protocol_table(name: str, protocol: Mapping[str, Any]) -> str:
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
        comparison = f"{'' if ratio is None else f'{ratio:.2f}'} | {'' if p is None else _p(p)}"
        lines.append(f"| {MODELS[model].label} | {rate:,.2f} ± {spread:,.2f} | {peak} | {comparison} |")
    return "\n".join(lines)


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"

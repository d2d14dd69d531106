"""The report on the forms of a step as Markdown."""

from collections.abc import Mapping
from typing import Any

from benchmarks.model.results import describe_machine


def as_markdown(report: Mapping[str, Any]) -> str:
    """Return the machine, then a table for each size."""
    introduction = (
        f"{describe_machine(report['machine'])} Forward and backward of {report['patients']} patients (padded: of a "
        f"micro-batch), median of {report['rounds']} rounds in which every form had its turn."
    )
    return (
        "\n\n".join([introduction, *(_of_size(name, size) for name, size in report["sizes"].items())]) + "\n"
    )


def _of_size(name: str, size: Mapping[str, Any]) -> str:
    lines = [
        f"**{name}**",
        "",
        "| form | rows a patient | rows with logits | ms a patient | × literal | × competent | peak memory (MiB) |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for form in size["forms"].values():
        ratios = (form.get(f"times_as_fast_as_{slow}") for slow in ("literal", "competent"))
        times = " | ".join("" if ratio is None else f"{ratio:.1f}" for ratio in ratios)
        lines.append(
            f"| {form['words']} | {form['rows_per_patient']:,.0f} | {form['head_rows_per_patient']:,.0f} | "
            f"{form['median_milliseconds_per_patient']:,.1f} | {times} | {form['peak_bytes'] / 2**20:,.0f} |"
        )
    return "\n".join(lines)

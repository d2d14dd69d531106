"""Markdown tables for the UI and for model cards."""

import re
from collections.abc import Mapping, Sequence


def without_front_matter(text: str) -> str:
    """Return a README without the YAML at its top, which only a hub of models reads."""
    parts = text.split("---\n", 2)
    return parts[2].lstrip() if len(parts) == 3 and not parts[0] else text


def escape_markdown(text: str) -> str:
    """Return lines as Markdown, one below the other, with their own marks shown; a single line fits a table's cell."""
    return re.sub(r"([\\<*_`|\[\]])", r"\\\1", text).replace("\n", "\n\n")


def markdown_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Return rows of text, which all have the same keys, as a Markdown table."""
    lines = [f"| {' | '.join(row.values())} |" for row in rows]
    return "\n".join([f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|", *lines]) if rows else "–"

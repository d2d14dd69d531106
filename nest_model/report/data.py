"""The data card: rows read, rows dropped and why, tokens, and the patients of each split."""

import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pydantic import ValidationError

from nest_model.report.histograms import histograms
from schemas.cards import Flow, StepCard, are_synthetic
from schemas.contract import read_table, table_metadata
from schemas.errors import ContractError
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.rules import PRESETS, DataRules
from schemas.sources import sources
from schemas.suppress import suppress_count, suppress_parts, suppress_share, suppress_small
from schemas.tables.attrition import read_attrition
from schemas.tables.events import KINDS, SPLITS, SUBJECTS
from schemas.tables.splits import suppress_splits

STEPS = (
    "raw",
    "subjects",
    "encounters",
    "events",
    "drug_lookup",
    "vocab",
    "seqset",
    "subject_years",
    "code_names",
)
EXTRACTED = ("subjects", "encounters", "events")
PACKAGES = ("nest", "torch", "lightgbm", "scikit-learn", "numpy", "pyarrow", "polars", "duckdb", "dagster")


def data_card(layout: Layout) -> dict[str, Any]:
    """Return suppressed counts of the corpus; parts whose card is missing are left out and listed."""
    cards = {step: card for step in STEPS if (card := _card(layout, step))}
    spec = sources().get(layout.source)
    expected = STEPS if spec is None else ("raw", *spec.tables)
    content: dict[str, Any] = {"missing": [step for step in expected if step not in cards]}
    flows = {name: flow for step in EXTRACTED if step in cards for name, flow in cards[step].flows.items()}
    if flows:
        content["sources"] = {name: shown_flow(flow) for name, flow in flows.items()}
    if "seqset" in cards:
        content |= _corpus(cards["seqset"])
        content["flows"] = {
            name: shown_flow(_token_flow(flows.values(), flow))
            for name, flow in cards["seqset"].flows.items()
        }
    if "vocab" in cards:
        content["vocabulary"] = {name: f"{count:,}" for name, count in cards["vocab"].counts.items()}
        content["top_lab_share"] = cards["vocab"].shares.get("lab_rows_in_top_items")
    content["warnings"] = {step: card.warnings for step, card in cards.items() if card.warnings}
    content["notes"] = {step: card.notes for step, card in cards.items() if card.notes}
    if is_written(layout.subjects):
        content["splits"] = splits(layout)
    return content


def _title(source: str) -> str:
    spec = sources().get(source)
    return source if spec is None else spec.title


def _card(layout: Layout, step: str) -> StepCard | None:
    try:
        return StepCard.read(layout.of_source.cards, step)
    except ContractError:
        return None


def _corpus(card: StepCard) -> dict[str, Any]:
    counts = card.counts
    kinds = [kind for kind in KINDS if counts.get(f"tokens_{kind}")]
    tokens, unk, backed_off = (
        {kind: counts.get(f"{prefix}_{kind}", 0) for kind in kinds}
        for prefix in ("tokens", "unk_tokens", "backed_off_tokens")
    )
    tokens_shown = suppress_parts(tokens)
    return {
        "corpus": {
            name: suppress_small(counts[name]) for name in ("subjects", "sets", "tokens") if name in counts
        },
        "empty_sets": suppress_count(counts.get("empty_sets", 0), counts.get("sets")),
        "kinds": {
            kind: {
                "tokens": tokens_shown[kind],
                "distinct": f"{counts.get(f'distinct_tokens_{kind}', 0):,}",  # counts codes, not patients
                "unk": _share_of(kind, unk, tokens),
                "backed_off": _share_of(kind, backed_off, tokens),
            }
            for kind in kinds
        },
        "unk": suppress_share(counts.get("unk_tokens", 0), counts.get("tokens", 0)),
        "backed_off": suppress_share(counts.get("backed_off_tokens", 0), counts.get("tokens", 0)),
        "bins": histograms(counts),
    }


def _share_of(kind: str, parts: Mapping[str, int], totals: Mapping[str, int]) -> str:
    """Return one kind's share, or a dash where it would disclose a small count."""
    is_hidden = suppress_parts(parts)[kind] != f"{parts[kind]:,}"
    return "–" if is_hidden else suppress_share(parts[kind], totals[kind])


def _token_flow(source_flows: Iterable[Flow], flow: Flow) -> Flow:
    """Return a kind's flow from events to tokens, without the drops of its source tables.

    Those drops are shown per table; their sum over two tables could disclose a small count of one.
    """
    source_reasons = {
        reason for source_flow in source_flows for reason, rows in source_flow.dropped.items() if rows
    }
    drops = {reason: rows for reason, rows in flow.dropped.items() if reason not in source_reasons}
    return Flow(source_rows=flow.kept_rows + sum(drops.values()), kept_rows=flow.kept_rows, dropped=drops)


def shown_flow(flow: Flow) -> dict[str, Any]:
    """Return source rows, kept rows, drops and notes by reason, suppressed so that no small count can be derived."""
    parts = suppress_parts({"kept": flow.kept_rows, **flow.dropped})
    return {
        "source_rows": suppress_small(flow.source_rows),
        "kept_rows": parts.pop("kept"),
        "dropped": {reason: rows for reason, rows in parts.items() if rows != "0"},
        "noted": {
            reason: suppress_count(rows, flow.kept_rows) for reason, rows in flow.disclosable_notes.items()
        },
    }


def splits(layout: Layout, cohort: str | None = None) -> dict[str, Any]:
    """Return the patients per split of the tasks and of the pretraining, and the overlaps of the two.

    Args:
        cohort: the one on whose page they stand; None: that of the source.
    """
    subjects, card = read_table(layout.subjects, SUBJECTS), cohort and _card(layout, f"{cohort}_labels")
    if not card or not cohort:
        return suppress_splits(subjects).model_dump()
    by_split = {name: card.counts.get(f"subjects_{name}", 0) for name in SPLITS}
    file = layout.cohort(cohort) / "attrition.csv"
    steps = read_attrition(file) if is_written(file) else []
    return suppress_splits(subjects, by_split, [step.patients for step in steps]).model_dump()


def run_card(layout: Layout, preset: str) -> dict[str, Any]:
    """Return what reproducing the run needs: rules, hashes of inputs and vocabulary, and versions."""
    hashes: dict[str, str] = {}
    for step in ("raw", "vocab", "seqset"):
        card = _card(layout, step)
        if card:
            hashes |= {f"{step}: {name}": value[:16] for name, value in card.hashes.items()}
    preset_rules = PRESETS.get(preset)
    data_rules = rules_used(layout)
    rules = data_rules or preset_rules
    differing = [
        name
        for name in DataRules.model_fields
        if data_rules and getattr(data_rules, name) != getattr(preset_rules, name, None)
    ]
    spec = sources().get(layout.source)
    has_lookup = spec is None or "drug_lookup" in spec.tables
    return {
        "preset": preset,
        "rules": rules.model_dump(mode="json", exclude=None if has_lookup else {"med_link"}) if rules else {},
        "fitted": ["vocabulary", "laboratory cuts", *(["drug lookup"] if has_lookup else [])],
        "rules_of": "vocabulary" if data_rules else "preset",
        "other_than_preset": differing,
        "corpus": _title(layout.source),
        "synthetic": is_synthetic(layout),
        "withholds": not are_synthetic(layout.of_source.cards),
        "hashes": hashes,
        "versions": {"Python": platform.python_version(), **_versions()},
    }


def is_synthetic(layout: Layout) -> bool:
    """Return whether the patients are synthetic: NEST wrote the input itself instead of reading a user's files."""
    raw = _card(layout, "raw")
    return is_written(layout.planted) or (raw is not None and layout.raw.name in raw.outputs)


def rules_used(layout: Layout) -> DataRules | None:
    """Return the rules the vocabulary was built with; None if it is missing or does not record them."""
    if not is_written(layout.vocab):
        return None
    try:
        return DataRules.model_validate_json(table_metadata(layout.vocab).get("rules", ""))
    except ValidationError:
        return None


def _versions() -> dict[str, str]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions

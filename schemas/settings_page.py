"""The page docs/settings.md, rendered from `Settings`: `python -m schemas.settings_page > docs/settings.md`."""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from schemas.markdown import markdown_table
from schemas.settings import Settings


@dataclass(frozen=True)
class Topic:
    """A section of the page: its heading, where more is said, and the fields it shows."""

    heading: str
    more: str
    fields: tuple[str, ...]


TOPICS = (
    Topic(
        "Where data is written",
        "Object stores, memory and more machines: [scale.md](scale.md).",
        ("data_dir", "scratch_dir", "subjects_per_bucket", "dask_scheduler"),
    ),
    Topic(
        "MIMIC-IV and the crosswalks",
        "Where to get both: [data.md](data.md).",
        ("mimic_dir", "vocab_dir", "new_mimic_dir", "mimic_demo_url", "gem_url", "gsn_atc_url"),
    ),
    Topic(
        "PCORnet",
        "More in [pcornet.md](pcornet.md), and for databases in [extraction.md](extraction.md).",
        (
            "pcornet_dir",
            "pcornet_database",
            "db_allow_plaintext",
            "pcornet_birth_dates",
            "pcornet_unlinked",
            "site_salt",
        ),
    ),
    Topic(
        "MEDS",
        "What a set is in a MEDS dataset: [meds.md](meds.md).",
        ("meds_dir", "meds_encounter_column", "meds_gap_hours"),
    ),
    Topic(
        "Instacart",
        "More in [instacart.md](instacart.md) and [next_baskets.md](next_baskets.md).",
        (
            "instacart_dir",
            "instacart_target",
            "instacart_protocol",
            "instacart_query_time",
            "instacart_points",
        ),
    ),
    Topic("Data rules", "What was known when: [clock.md](clock.md).", ("preset", "med_link")),
    Topic(
        "Models",
        "Options, seeds and comparison models: [training.md](training.md). The paper's NEST in one setting: "
        "[learning.md](learning.md#the-papers-nest-in-one-setting).",
        (
            "model",
            "pretraining",
            "finetuning",
            "experiment",
            "seed",
            "seeds",
            "pretraining_seeds",
            "yardsticks",
            "few_shot",
        ),
    ),
    Topic(
        "The table of evidence",
        "Its rows, cells and page: [evidence.md](evidence.md).",
        ("evidence_systems", "evidence_tasks"),
    ),
    Topic(
        "Synthetic data",
        "How to make tables of any size: [data.md](data.md#a-synthetic-mimic-iv-of-any-size).",
        ("synthetic_patients", "synthetic_tokens_per_set", "synthetic_users", "synthetic_children"),
    ),
)

INTRODUCTION = """\
# Settings

Look up here what every `NEST_…` setting does, what it may be, and what it is when you leave it out.

Settings are environment variables. All but the data folder, the site salt, and the two that say which assets the table
of evidence has, can also be given in a run's config in the UI (resource `workspace`, in lower case without `NEST_`). A
misspelled name or a value that is not allowed stops the command with one line that says what was probably meant.

This page is generated from `schemas/settings.py` by `python -m schemas.settings_page > docs/settings.md`.
"""

CREDENTIALS = """\
## Database credentials

These are read from the environment at the moment a database is opened. They are in no settings object, so nothing that
shows settings can show them.

| setting | what it does |
|---|---|
| `NEST_DB_USER` | Account that reads the database. |
| `NEST_DB_PASSWORD` | Its password. |
| `NEST_DB_DSN` | Where the database is, e.g. `postgresql://db.example:5432/cdm?sslmode=verify-full`. |
| `NEST_ORACLE_TEST_DSN` | A live Oracle for the test that is marked `oracle`; only tests read it. |
"""


def page() -> str:
    """Return the whole page as Markdown."""
    return "\n".join([INTRODUCTION, *(_section(topic) for topic in TOPICS), CREDENTIALS])


def _section(topic: Topic) -> str:
    rows = [_row(name, Settings.model_fields[name]) for name in topic.fields]
    return f"## {topic.heading}\n\n{topic.more}\n\n{markdown_table(rows)}\n"


def _row(name: str, field: FieldInfo) -> dict[str, str]:
    return {
        "setting": f"`NEST_{name.upper()}`",
        "value": _value(field),
        "default": _default(field.default),
        "what it does": field.description or "",
    }


def _value(field: FieldInfo) -> str:
    """Return the choices or the type of a field, with its lower bound."""
    words = _type(field.annotation)
    for bound in field.metadata:
        if hasattr(bound, "ge"):
            words += f", {bound.ge} or more"
        elif hasattr(bound, "gt"):
            words += f", above {bound.gt:g}"
    return words


def _type(annotation: Any) -> str:
    names = {str: "text", int: "whole number", float: "number", Path: "path", SecretStr: "secret text"}
    if annotation is bool:
        return "`true` or `false`"
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return " or ".join(_type(part) for part in get_args(annotation) if part is not NoneType)
    return names[annotation]


def _default(value: object) -> str:
    if value is None or value == "":
        return "unset"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(page())

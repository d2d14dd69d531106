"""Reads a General Equivalence Mapping as CMS publishes it: fixed-width text, two codes and five flags per line."""

from pathlib import Path

import polars as pl

from pipelines.events.code_mapping import NO_TARGET
from pipelines.reading.files import NATIVE, translate_errors
from schemas.errors import InputError
from schemas.io.paths import scan_lines

__all__ = ["NATIVE", "is_gem", "read_gem"]

# columns 1–6, 7–14 and 15–19, left-justified: no code fills its columns or holds a blank
LINE = r"^([0-9EV][0-9]{2,4}) +([A-Z0-9]{3,7}|NoDx|NoPCS) +([01]{3}[0-9]{2})\s*$"


def is_gem(path: Path) -> bool:
    return path.name in NATIVE.values()


def read_gem(path: Path) -> pl.DataFrame:
    """Return icd_9, icd_10, flags with one row per line, in file order.

    The flags are five digits: approximate, no map, combination, scenario, choice list. A code without a map has
    the target `NoDx` or `NoPCS`.

    Raises:
        InputError: the file is empty or unreadable, or lines are malformed; these are counted, not quoted.
    """
    with translate_errors(path, "CMS's fixed-width text"):
        lines = scan_lines(path, "line").filter(pl.col("line").str.contains(r"\S"))
        fields = lines.select(
            pl.col("line").str.extract(LINE, group).alias(name)
            for group, name in enumerate(("icd_9", "icd_10", "flags"), start=1)
        ).collect()
    if not fields.height:
        raise InputError(f"{path.name}: the file is empty ({path}). Unpack or fetch it again.")
    says_none = fields["flags"].str.slice(1, 1) == "1"
    bad = fields["icd_9"].is_null() | (says_none != fields["icd_10"].str.to_uppercase().is_in(NO_TARGET))
    if bad.any():
        raise InputError(
            f"{path.name}: {bad.sum():,} of {fields.height:,} lines are not an ICD-9 code, its ICD-10 code and five "
            f"consistent flags ({path}). Give the CMS mapping from ICD-9 to ICD-10 as it is published."
        )
    return fields

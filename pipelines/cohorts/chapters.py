"""ICD-10-CM chapters and categories of a diagnosis, with ICD-9-CM ranges for codes without a mapping.

Sources: ICD-10-CM tabular list (22 chapters); ICD-9-CM ranges as the data rules give them (docs/cohorts.md).
"""

import polars as pl

from schemas.icd10 import CHAPTER_RANGES

ICD9_RANGES = (
    ("001", "139", "I"),
    ("140", "239", "II"),
    ("240", "279", "IV"),
    ("280", "289", "III"),
    ("290", "319", "V"),
    ("320", "359", "VI"),
    ("360", "379", "VII"),
    ("380", "389", "VIII"),
    ("390", "459", "IX"),
    ("460", "519", "X"),
    ("520", "579", "XI"),
    ("580", "629", "XIV"),
    ("630", "679", "XV"),
    ("680", "709", "XII"),
    ("710", "739", "XIII"),
    ("740", "759", "XVII"),
    ("760", "779", "XVI"),
    ("780", "799", "XVIII"),
    ("800", "999", "XIX"),
    ("E00", "E99", "XX"),
    ("V00", "V99", "XXI"),
)


def icd10_3char() -> pl.Expr:
    """Return the 3-character category of the ICD-10-CM code of a DX event; null if it has none."""
    return pl.when(~pl.col("mapped").str.contains("/", literal=True)).then(pl.col("mapped").str.slice(0, 3))


def icd10_chapter() -> pl.Expr:
    """Return the chapter of a DX event by its ICD-10-CM code, else by its ICD-9-CM range; null outside both."""
    icd9_category = pl.when(pl.col("vocab") == "icd9cm").then(pl.col("code").str.slice(0, 3))
    return pl.coalesce(_in_ranges(icd10_3char(), CHAPTER_RANGES), _in_ranges(icd9_category, ICD9_RANGES))


CLASS_MAPS = {"icd10_chapter": icd10_chapter, "icd10_3char": icd10_3char}


def _in_ranges(category: pl.Expr, ranges: tuple[tuple[str, str, str], ...]) -> pl.Expr:
    return pl.coalesce(
        pl.when(category.is_between(pl.lit(low), pl.lit(high))).then(pl.lit(chapter))
        for low, high, chapter in ranges
    )

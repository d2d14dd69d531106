"""ICD-10-CM chapters and categories of a diagnosis, and the ICD-9-CM ranges for a code no crosswalk maps.

Sources: ICD-10-CM tabular list (22 chapters); ICD-9-CM ranges as the data rules give them (docs/cohorts.md).
"""

import polars as pl

CHAPTERS = tuple("I II III IV V VI VII VIII IX X XI XII XIII XIV XV XVI XVII XVIII XIX XX XXI XXII".split())  # noqa: SIM905

ICD10_RANGES = (  # first and last category of a chapter
    ("A00", "B99", "I"),
    ("C00", "D49", "II"),
    ("D50", "D89", "III"),
    ("E00", "E89", "IV"),
    ("F01", "F99", "V"),
    ("G00", "G99", "VI"),
    ("H00", "H59", "VII"),
    ("H60", "H95", "VIII"),
    ("I00", "I99", "IX"),
    ("J00", "J99", "X"),
    ("K00", "K95", "XI"),
    ("L00", "L99", "XII"),
    ("M00", "M99", "XIII"),
    ("N00", "N99", "XIV"),
    ("O00", "O9A", "XV"),
    ("P00", "P96", "XVI"),
    ("Q00", "Q99", "XVII"),
    ("R00", "R99", "XVIII"),
    ("S00", "T88", "XIX"),
    ("V00", "Y99", "XX"),
    ("Z00", "Z99", "XXI"),
    ("U00", "U85", "XXII"),
)

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
    """The 3-character category of a DX event's ICD-10-CM code; null where it has none."""
    return pl.when(~pl.col("mapped").str.contains("/", literal=True)).then(pl.col("mapped").str.slice(0, 3))


def icd10_chapter() -> pl.Expr:
    """The chapter of a DX event: of its ICD-10-CM code, else of its ICD-9-CM range; null outside both."""
    recorded = pl.when(pl.col("vocab") == "icd9cm").then(pl.col("code").str.slice(0, 3))
    return pl.coalesce(_in_ranges(icd10_3char(), ICD10_RANGES), _in_ranges(recorded, ICD9_RANGES))


CLASS_MAPS = {"icd10_chapter": icd10_chapter, "icd10_3char": icd10_3char}


def _in_ranges(category: pl.Expr, ranges: tuple[tuple[str, str, str], ...]) -> pl.Expr:
    return pl.coalesce(
        pl.when(category.is_between(pl.lit(low), pl.lit(high))).then(pl.lit(chapter))
        for low, high, chapter in ranges
    )

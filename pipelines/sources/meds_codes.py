"""MEDS codes to kinds, vocabularies and codes of ours, and back: the prefixes public MEDS extractions write.

A code no prefix declares stays whole, as an ITEM. Kinds decide how a code is tokenized: DX and MED back off to
parents, so only ICD and ATC codes are of these kinds.
"""

from collections.abc import Sequence

import polars as pl

UNKNOWN = "UNK"  # where a part of a composite code is not known
SEPARATOR = "//"

BIRTH, DEATH = "MEDS_BIRTH", "MEDS_DEATH"
GENDER, RACE, INSURANCE = "GENDER", "RACE", "INSURANCE"
ADMISSION, DISCHARGE, STAY_DEATH = "HOSPITAL_ADMISSION", "HOSPITAL_DISCHARGE", "HOSPITAL_DEATH"
DIED, ALIVE = "DIED", "ALIVE"

ABOUT_SUBJECTS = (BIRTH, DEATH, GENDER, RACE, INSURANCE, "LANGUAGE", "MARITAL_STATUS", "ETHNICITY")
ABOUT_ENCOUNTERS = (ADMISSION, DISCHARGE, STAY_DEATH)
"""Codes that say who someone is and when a stay was: attributes and times, never tokens."""

WRITTEN = {
    ("DX", "icd9cm"): "DIAGNOSIS//ICD//9//",
    ("DX", "icd10cm"): "DIAGNOSIS//ICD//10//",
    ("PR", "icd9pcs"): "PROCEDURE//ICD//9//",
    ("PR", "icd10pcs"): "PROCEDURE//ICD//10//",
    ("MED", "name"): "MEDICATION//",
    ("LAB", "itemid"): "LAB//",
}
GIVEN = "//Administered"  # after a drug's name

DECLARED = (
    (r"^DIAGNOSIS//ICD//9//([\w.\s]+)$", "DX", "icd9cm"),
    (r"^DIAGNOSIS//ICD//10//([\w.\s]+)$", "DX", "icd10cm"),
    (r"^ICD9CM//?([\w.\s]+)$", "DX", "icd9cm"),
    (r"^ICD10CM//?([\w.\s]+)$", "DX", "icd10cm"),
    (r"^PROCEDURE//ICD//9//([\w.\s]+)$", "PR", "icd9pcs"),
    (r"^PROCEDURE//ICD//10//([\w.\s]+)$", "PR", "icd10pcs"),
    (r"^ICD9Proc//?([\w.\s]+)$", "PR", "icd9pcs"),
    (r"^ICD10PCS//?([\w.\s]+)$", "PR", "icd10pcs"),
    (r"^CPT4?//?(\w+)$", "PR", "cpt"),
    (r"^ATC//?([A-Z]\d\d(?:[A-Z](?:[A-Z](?:\d\d)?)?)?)$", "MED", "atc"),
)
"""Pattern of a MEDS code, its kind and vocabulary; the group is our code."""

VALUED = (
    (r"^LAB//(?:RESULT//)?(\d.*)$", "itemid"),
    (r"^LOINC//?(.+)$", "loinc"),
)
"""The same of codes with values; the unit stays in the code, for in another unit it is another measurement."""

OTHER = "meds"
"""The vocabulary of a code no prefix declares."""

PARENTS = {"DX": "ICD10CM", "PR": "ICD10PCS", "MED": "ATC"}
"""The vocabulary that events of a kind are mapped to, as MEDS calls it."""


def write_code() -> pl.Expr:
    """Return an event's MEDS code: its prefix, its code, and the unit of a value or that a drug was given."""
    return pl.concat_str(_prefix(), "code", _suffix())


def read_written_code() -> pl.Expr:
    """Return the code of an event whose MEDS code `write_code` wrote; the inverse, given kind, vocab and unit."""
    return pl.col("code").str.strip_prefix(_prefix()).str.strip_suffix(_suffix())


def _prefix() -> pl.Expr:
    pair = [
        pl.when((pl.col("kind") == kind) & (pl.col("vocab") == vocab)).then(pl.lit(prefix))
        for (kind, vocab), prefix in WRITTEN.items()
    ]
    return pl.coalesce(*pair, pl.concat_str("kind", pl.lit(SEPARATOR), "vocab", pl.lit(SEPARATOR)))


def _suffix() -> pl.Expr:
    unit = pl.concat_str(pl.lit(SEPARATOR), pl.col("unit").fill_null(UNKNOWN))
    return (
        pl.when(pl.col("kind") == "LAB")
        .then(unit)
        .when((pl.col("kind") == "MED") & (pl.col("vocab") == "name"))
        .then(pl.lit(GIVEN))
        .otherwise(pl.lit(""))
    )


def has_prefix(*names: str) -> pl.Expr:
    """Return whether a MEDS code is one of `names` or begins with one and `//`."""
    return pl.col("code").str.contains(rf"^(?:{'|'.join(names)})(?:$|//)")


def part_after(name: str) -> pl.Expr:
    """Return the part of a composite code after `name//`, up to the next `//`; null where it is not known."""
    part = pl.col("code").str.extract(rf"^{name}//(.+?)(?://|$)")
    return pl.when(part != UNKNOWN).then(part)


def declare(distinct: pl.Series, valued: pl.Series) -> pl.DataFrame:
    """Return what each code of any MEDS dataset is to us, one row each.

    ICD-9 codes stay what they are, E and V codes with a 9 before them: they would pass for ICD-10 codes.

    Args:
        distinct: the codes, each once.
        valued: those of them with values enough for deciles.

    Returns:
        meds_code, kind, vocab, code, mapped, unit (null); the same as valued_kind … of a row with a value; is_valued.
    """
    own = pl.DataFrame({"meds_code": distinct}).with_columns(
        vocab=_vocab(DECLARED), code=_group(DECLARED), is_declared=_vocab(DECLARED).is_not_null()
    )
    kind_of = {vocab: kind for _, kind, vocab in DECLARED}
    bare = pl.col("code").str.replace_all(r"[.\s]", "").str.to_uppercase()
    whole = pl.col("meds_code").str.strip_chars()
    named = own.with_columns(
        kind=pl.col("vocab").replace_strict(kind_of, default="ITEM", return_dtype=pl.String),
        vocab=pl.col("vocab").fill_null(OTHER),
        code=pl.when("is_declared").then(bare).otherwise(whole),
        unit=pl.lit(None, pl.String),
        valued_kind=pl.lit("LAB"),
        valued_vocab=pl.coalesce(
            _vocab([(pattern, "LAB", vocab) for pattern, vocab in VALUED]), pl.lit(OTHER)
        ),
        valued_code=pl.coalesce(_group([(pattern, "LAB", vocab) for pattern, vocab in VALUED]), whole),
        valued_mapped=pl.lit(None, pl.String),
        valued_unit=pl.col("meds_code").str.extract(r"^LAB//(?:RESULT//)?\d[^/]*//(.+)$"),
        is_valued=pl.col("meds_code").is_in(valued.implode()) & ~pl.col("is_declared"),
    )
    mistakable = (pl.col("vocab") == "icd9cm") & pl.col("code").str.contains("^[EV]")
    return named.with_columns(
        mapped=pl.when(mistakable).then(pl.concat_str(pl.lit("9"), "code")).otherwise("code")
    ).drop("is_declared")


def _vocab(patterns: Sequence[tuple[str, str, str]]) -> pl.Expr:
    code = pl.col("meds_code")
    return pl.coalesce(
        pl.when(code.str.contains(pattern)).then(pl.lit(vocab)) for pattern, _, vocab in patterns
    )


def _group(patterns: Sequence[tuple[str, str, str]]) -> pl.Expr:
    return pl.coalesce(pl.col("meds_code").str.extract(pattern) for pattern, _, _ in patterns)

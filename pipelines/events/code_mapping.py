"""Codes as recorded to codes as tokenized: ICD-9 to ICD-10 by the CMS tables, drug names to ATC."""

from dataclasses import dataclass

import polars as pl

NO_TARGET = ("NODX", "NOPCS")
# cleaned; behind its first letter no code of ICD-10 holds an O, which is a mistyped 0
ICD10_CM, ICD10_PCS = r"^[A-Z][0-9][0-9A-NP-Z]{1,5}$", r"^[0-9A-HJ-NP-Z]{7}$"
ICD9_CM = r"^([0-9]{3}[0-9]{0,2}|V[0-9]{2}[0-9]{0,2}|E[0-9]{3}[0-9]?)$"
ICD9_PCS = r"^[0-9]{3,4}$"


@dataclass(frozen=True)
class Icd:
    """The shapes of cleaned codes of one system of ICD, and the digits before the dot in its ninth revision."""

    nine: str
    ten: str
    dot_after: int


DIAGNOSIS_CODES = Icd(nine=ICD9_CM, ten=ICD10_CM, dot_after=3)
PROCEDURE_CODES = Icd(nine=ICD9_PCS, ten=ICD10_PCS, dot_after=2)

_GSN_DIGITS = 6
_WITHOUT_WIDTH = "[\u00ad\u200b-\u200f\u2060\ufeff]"
_NOT_ASCII = r"[^\x00-\x7f]"


def clean_code(column: str) -> pl.Expr:
    """Dots and blanks removed, upper case."""
    return pl.col(column).str.replace_all(r"[.\s]", "").str.to_uppercase()


def plain(codes: pl.Series) -> pl.Series:
    """Return codes in plain letters: full-width ones, blanks that do not break and characters without width mended.

    What looks like a letter and is another, as a Cyrillic А, stays as it is, and has the shape of no code.
    """
    if not codes.str.contains(_NOT_ASCII).any():
        return codes
    return codes.str.normalize("NFKC").str.replace_all(_WITHOUT_WIDTH, "")


def is_decimal(column: str) -> pl.Expr:
    """Return whether a code is written as a number with decimals, 4019.0."""
    return pl.col(column).str.strip_chars().str.contains(r"^[0-9]+\.[0-9]+$")


def is_in_other_letters(column: str) -> pl.Expr:
    """Return whether a code, in plain letters, holds one that no code has."""
    return pl.col(column).str.contains(_NOT_ASCII)


def code_faults(column: str, system: Icd, *, is_nine: pl.Expr) -> dict[str, pl.Expr]:
    """Return why a row's cleaned `code` is none of ICD-9 or of ICD-10, the reasons told apart.

    Args:
        column: the code as recorded, in plain letters.
        system: what it is held against.
        is_nine: whether a row's code is of ICD-9; the others are of ICD-10.
    """
    raw_code, code = pl.col(column).str.strip_chars(), pl.col("code")
    has_dot_in_place = raw_code.str.contains(rf"^[0-9]{{{system.dot_after}}}\.[0-9]{{1,2}}$")
    return {
        "code_as_float": is_nine & is_decimal(column) & ~has_dot_in_place,
        "code_in_other_letters": is_in_other_letters("code"),
        "code_without_its_zeros": is_nine & code.str.contains("^[0-9]{1,2}$"),
        "malformed_code": ~pl.when(is_nine)
        .then(code.str.contains(system.nine))
        .otherwise(code.str.contains(system.ten)),
    }


def zeros_lost(rows: pl.DataFrame, crosswalk_codes: pl.Series) -> dict[str, int]:
    """Return how many codes no crosswalk knows are known with zeros before them, and with zeros behind or less a zero.

    A spreadsheet and a table of numbers make 4111 of 04111, and 250 of 250.00; some such codes become other diseases,
    but most become none, and these tell.

    Args:
        rows: code (cleaned), of ICD-9, that are in no crosswalk.
        crosswalk_codes: the codes of the crosswalk.
    """
    codes = rows.group_by("code").len()
    code = pl.col("code")
    with_leading, with_trailing = (
        ("0" + code, "00" + code),
        (code + "0", code + "00", code.str.strip_suffix("0")),
    )
    counts = codes.with_columns(
        before=pl.any_horizontal(candidate.is_in(crosswalk_codes.implode()) for candidate in with_leading),
        behind=pl.any_horizontal(candidate.is_in(crosswalk_codes.implode()) for candidate in with_trailing),
    )
    return {
        "zeros_lost": int(counts.filter("before")["len"].sum()),
        "last_zeros_lost": int(counts.filter(~pl.col("before") & pl.col("behind"))["len"].sum()),
    }


def gsn_number(gsn: pl.Expr) -> pl.Expr:
    """Return a GSN as it is published: a number of six digits, also where it is written as 1234 or 1234.0."""
    return gsn.str.strip_chars().str.strip_suffix(".0").str.zfill(_GSN_DIGITS)


def shortest_target(crosswalk: pl.DataFrame) -> pl.DataFrame:
    """Return one ICD-10 code per ICD-9 code: the shortest, ties by lexicographic minimum.

    Args:
        crosswalk: icd_9, icd_10 of a CMS GEM table.

    Returns:
        code, mapped; `mapped` is null where the table says NoDx / NoPCS and nothing else.
    """
    pairs = crosswalk.select(code=clean_code("icd_9"), mapped=clean_code("icd_10"))
    no_target = pl.col("mapped").is_in(NO_TARGET)
    return (
        pairs.with_columns(mapped=pl.when(~no_target).then("mapped"))
        .sort("code", pl.col("mapped").str.len_chars(), "mapped", nulls_last=True)
        .group_by("code", maintain_order=True)
        .first()
    )


def to_icd10(rows: pl.DataFrame, targets: pl.DataFrame) -> pl.DataFrame:
    """Add `mapped` and `in_crosswalk`: version 10 passes unchanged, version 9 goes by `targets`.

    Args:
        rows: code (cleaned), icd_version 9 or 10, anything else.
        targets: code, mapped, from `shortest_target`.
    """
    crosswalk = targets.with_columns(in_crosswalk=pl.lit(True))
    is_ten = pl.col("icd_version") == 10
    return rows.join(crosswalk, on="code", how="left", maintain_order="left").with_columns(
        mapped=pl.when(is_ten).then("code").otherwise("mapped"),
        in_crosswalk=is_ten | pl.col("in_crosswalk").fill_null(False),
    )


def code_events(events: pl.LazyFrame, drug_lookup: pl.LazyFrame) -> pl.LazyFrame:
    """Fill `mapped` of medication names from the lookup; what extraction mapped already stays.

    Vocabulary, shards and cohorts read events through this. The order of rows is kept.
    """
    by_name = drug_lookup.select(code="name", vocab=pl.lit("name"), atc="atc")
    return (
        events.join(by_name, on=["vocab", "code"], how="left", maintain_order="left")
        .with_columns(mapped=pl.coalesce("mapped", "atc"))
        .drop("atc")
    )

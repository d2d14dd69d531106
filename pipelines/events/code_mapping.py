"""Maps recorded codes to the codes that become tokens: ICD-9 to ICD-10 by the CMS tables, drug names to ATC."""

from dataclasses import dataclass

import polars as pl

NO_TARGET = ("NODX", "NOPCS")
# cleaned codes; ICD-10 has no letter O after the first place: there it is a mistyped 0
ICD10_CM, ICD10_PCS = r"^[A-Z][0-9][0-9A-NP-Z]{1,5}$", r"^[0-9A-HJ-NP-Z]{7}$"
ICD9_CM = r"^([0-9]{3}[0-9]{0,2}|V[0-9]{2}[0-9]{0,2}|E[0-9]{3}[0-9]?)$"
ICD9_PCS = r"^[0-9]{3,4}$"


@dataclass(frozen=True)
class Icd:
    """The patterns of cleaned codes of one ICD system, and the digits before the dot in ICD-9."""

    nine: str
    ten: str
    dot_after: int


DIAGNOSIS_CODES = Icd(nine=ICD9_CM, ten=ICD10_CM, dot_after=3)
PROCEDURE_CODES = Icd(nine=ICD9_PCS, ten=ICD10_PCS, dot_after=2)

_GSN_DIGITS = 6
_WITHOUT_WIDTH = "[\u00ad\u200b-\u200f\u2060\ufeff]"
_NOT_ASCII = r"[^\x00-\x7f]"


def clean_code(column: str) -> pl.Expr:
    """Return codes without dots and blanks, in upper case."""
    return pl.col(column).str.replace_all(r"[.\s]", "").str.to_uppercase()


def to_plain_letters(codes: pl.Series) -> pl.Series:
    """Return codes in plain letters, with full-width letters, non-breaking blanks and zero-width characters replaced.

    Look-alike letters of another alphabet, like a Cyrillic А, stay as they are and match no code pattern.
    """
    if not codes.str.contains(_NOT_ASCII).any():
        return codes
    return codes.str.normalize("NFKC").str.replace_all(_WITHOUT_WIDTH, "")


def is_decimal(column: str) -> pl.Expr:
    """Return whether a code is written as a decimal number, e.g. 4019.0."""
    return pl.col(column).str.strip_chars().str.contains(r"^[0-9]+\.[0-9]+$")


def is_in_other_letters(column: str) -> pl.Expr:
    """Return whether a code, after `to_plain_letters`, still holds a character that no code has."""
    return pl.col(column).str.contains(_NOT_ASCII)


def code_faults(column: str, system: Icd, *, is_nine: pl.Expr) -> dict[str, pl.Expr]:
    """Return the reasons why a row's cleaned `code` is not a valid ICD-9 or ICD-10 code.

    Args:
        column: the code as recorded, in to_plain_letters letters.
        system: the patterns to check against.
        is_nine: whether a row's code is ICD-9; otherwise it is ICD-10.

    Returns:
        reason -> expression, in order of precedence.
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
    """Count codes that are valid only with leading zeros, and codes valid only with more or fewer trailing zeros.

    Spreadsheets and numeric columns turn 04111 into 4111 and 250.00 into 250. Some such codes become other diseases,
    but most become invalid, which reveals the loss.

    Args:
        rows: code (cleaned), ICD-9 codes that are not in the crosswalk.
        crosswalk_codes: all codes of the crosswalk.
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
    """Return a GSN as published, with six digits, from any of 001234, 1234 and 1234.0."""
    return gsn.str.strip_chars().str.strip_suffix(".0").str.zfill(_GSN_DIGITS)


def shortest_target(crosswalk: pl.DataFrame) -> pl.DataFrame:
    """Return one ICD-10 code per ICD-9 code: the shortest, and of equally short ones the alphabetically first.

    Args:
        crosswalk: icd_9, icd_10 of a CMS GEM table.

    Returns:
        code, mapped; `mapped` is null if NoDx or NoPCS is the only target.
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
    """Add `mapped` and `in_crosswalk`: version 10 passes unchanged, version 9 is mapped by `targets`.

    Args:
        rows: code (cleaned), icd_version (9 or 10) and any other columns.
        targets: code, mapped, from `shortest_target`.
    """
    crosswalk = targets.with_columns(in_crosswalk=pl.lit(True))
    is_ten = pl.col("icd_version") == 10
    return rows.join(crosswalk, on="code", how="left", maintain_order="left").with_columns(
        mapped=pl.when(is_ten).then("code").otherwise("mapped"),
        in_crosswalk=is_ten | pl.col("in_crosswalk").fill_null(False),
    )


def code_events(events: pl.LazyFrame, drug_lookup: pl.LazyFrame) -> pl.LazyFrame:
    """Fill `mapped` of medication names from the lookup; codes mapped during extraction stay.

    Vocabulary, shards and cohorts read events through this. The order of rows is kept.
    """
    by_name = drug_lookup.select(code="name", vocab=pl.lit("name"), atc="atc")
    return (
        events.join(by_name, on=["vocab", "code"], how="left", maintain_order="left")
        .with_columns(mapped=pl.coalesce("mapped", "atc"))
        .drop("atc")
    )

"""Codes as recorded to codes as tokenized: ICD-9 to ICD-10 by the CMS tables, drug names to ATC."""

import polars as pl

NO_TARGET = ("NODX", "NOPCS")
ICD10_CM, ICD10_PCS = r"^[A-Z][0-9][0-9A-Z]{1,5}$", r"^[0-9A-HJ-NP-Z]{7}$"  # cleaned


def clean_code(column: str) -> pl.Expr:
    """Dots and blanks removed, upper case."""
    return pl.col(column).str.replace_all(r"[.\s]", "").str.to_uppercase()


def shortest_target(crosswalk: pl.DataFrame) -> pl.DataFrame:
    """Return one ICD-10 code per ICD-9 code: the shortest, ties by lexicographic minimum.

    Args:
        crosswalk: icd_9, icd_10 of a CMS GEM table.

    Returns:
        code, mapped; `mapped` is null where the table says NoDx / NoPCS and nothing else.
    """
    cleaned = crosswalk.select(code=clean_code("icd_9"), mapped=clean_code("icd_10"))
    no_target = pl.col("mapped").is_in(NO_TARGET)
    return (
        cleaned.with_columns(mapped=pl.when(~no_target).then("mapped"))
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
    known = targets.with_columns(in_crosswalk=pl.lit(True))
    is_ten = pl.col("icd_version") == 10
    return rows.join(known, on="code", how="left", maintain_order="left").with_columns(
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

"""Drug names to ATC codes through the GSN of prescriptions: a fitted table that anyone can open."""

import polars as pl


def clean_name(column: str) -> pl.Expr:
    """Stripped and lower-cased; null when nothing is left."""
    name = pl.col(column).str.strip_chars().str.to_lowercase()
    return pl.when(name != "").then(name)


def prescription_atc(prescriptions: pl.LazyFrame, gsn_to_atc: pl.LazyFrame) -> pl.LazyFrame:
    """Return the same with one row per distinct ATC code of its GSNs, which are split on blanks.

    Args:
        prescriptions: gsn, rows (how many such prescription rows there are), and what is to be kept beside `atc`.
        gsn_to_atc: gsn, atc; a GSN may have several.
    """
    pairs = gsn_to_atc.select(
        gsn=pl.col("gsn").str.strip_chars(), atc=pl.col("atc").str.strip_chars()
    ).unique()
    return (
        prescriptions.with_row_index("row")
        .with_columns(pl.col("gsn").str.extract_all(r"\S+"))
        .explode("gsn")
        .drop_nulls("gsn")
        .join(pairs, on="gsn")
        .drop("gsn")
        .unique(["row", "atc"])
        .drop("row")
    )


def commonest_atc(coded: pl.LazyFrame, key: list[str]) -> pl.LazyFrame:
    """Return key, atc, rows: the ATC code with most prescription rows, ties by the lexicographic minimum."""
    return (
        coded.group_by(*key, "atc")
        .agg(pl.col("rows").sum().cast(pl.Int64))
        .sort(*key, "rows", "atc", descending=[*[False for _ in key], True, False])
        .group_by(key, maintain_order=True)
        .first()
    )


def count_prescriptions(prescriptions: pl.LazyFrame) -> pl.LazyFrame:
    """Return name, gsn, rows: how many prescription rows say so; a part of a table's counts, or all of it.

    Args:
        prescriptions: drug (as recorded), gsn.
    """
    spelt = prescriptions.group_by("drug", "gsn").agg(
        rows=pl.len().cast(pl.Int64)
    )  # each spelling is cleaned once
    return spelt.group_by(clean_name("drug").alias("name"), "gsn").agg(pl.col("rows").sum())


def fit_lookup(counted: pl.LazyFrame, gsn_to_atc: pl.LazyFrame) -> pl.LazyFrame:
    """Return drug_lookup/1 (name, atc, rows), sorted by name, from the fitted-on subjects' prescriptions.

    Args:
        counted: name, gsn, rows of `count_prescriptions`, in any number of parts.
        gsn_to_atc: gsn, atc; a GSN may have several.
    """
    return commonest_atc(prescription_atc(counted.drop_nulls(["name", "gsn"]), gsn_to_atc), ["name"])

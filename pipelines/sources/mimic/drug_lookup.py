"""Drug names to ATC codes through the GSNs of prescriptions, as a fitted table."""

from dataclasses import dataclass

import polars as pl

from pipelines.events.code_mapping import gsn_number


def clean_name(column: str) -> pl.Expr:
    """Return a name stripped and in lower case; null if empty."""
    name = pl.col(column).str.strip_chars().str.to_lowercase()
    return pl.when(name != "").then(name)


def prescription_atc(prescriptions: pl.LazyFrame, gsn_to_atc: pl.LazyFrame) -> pl.LazyFrame:
    """Return the prescriptions with one row per distinct ATC code of their GSNs, which are split on blanks.

    Args:
        prescriptions: gsn, rows (the number of such prescription rows), and the columns to keep beside `atc`.
        gsn_to_atc: gsn, atc; a GSN may have several.
    """
    pairs = gsn_to_atc.select(gsn=gsn_number(pl.col("gsn")), atc=pl.col("atc").str.strip_chars()).unique()
    return (
        prescriptions.with_row_index("row")
        .with_columns(pl.col("gsn").str.extract_all(r"\S+"))
        .explode("gsn")
        .drop_nulls("gsn")
        .with_columns(gsn_number(pl.col("gsn")))
        .join(pairs, on="gsn")
        .drop("gsn")
        .unique(["row", "atc"])
        .drop("row")
    )


def most_common_atc(atc_rows: pl.LazyFrame, key: list[str]) -> pl.LazyFrame:
    """Return key, atc, rows: the ATC code with the most prescription rows; of ties, the first in alphabetical order."""
    return (
        atc_rows.group_by(*key, "atc")
        .agg(pl.col("rows").sum().cast(pl.Int64))
        .sort(*key, "rows", "atc", descending=[*[False for _ in key], True, False])
        .group_by(key, maintain_order=True)
        .first()
    )


def count_prescriptions(prescriptions: pl.LazyFrame) -> pl.LazyFrame:
    """Return name, gsn, rows: the number of prescription rows, of a whole table or of one batch.

    Args:
        prescriptions: drug (as recorded), gsn.
    """
    # group by spelling first, so that each is cleaned once
    by_spelling = prescriptions.group_by("drug", "gsn").agg(rows=pl.len().cast(pl.Int64))
    return by_spelling.group_by(clean_name("drug").alias("name"), "gsn").agg(pl.col("rows").sum())


@dataclass(frozen=True)
class GsnCount:
    """Prescription rows by their GSNs."""

    with_gsn: int  # rows with at least one GSN
    in_crosswalk: int  # of these, rows with a GSN of the crosswalk
    with_other_format: int  # of these, rows with a GSN written otherwise than published


def count_gsns(gsn_counts: pl.DataFrame, gsn_to_atc: pl.DataFrame) -> GsnCount:
    """Count the prescription rows with a GSN, with one of the crosswalk, and with one that had to be reformatted.

    Args:
        gsn_counts: gsn, rows (the number of such prescription rows).
        gsn_to_atc: gsn.
    """
    known_gsns = gsn_to_atc["gsn"].to_frame().select(gsn_number(pl.col("gsn"))).to_series().unique()
    split_gsns = gsn_counts.drop_nulls("gsn").select("rows", gsn=pl.col("gsn").str.extract_all(r"\S+"))
    with_numbers = split_gsns.with_columns(number=pl.col("gsn").list.eval(gsn_number(pl.element())))
    flags = with_numbers.select(
        "rows",
        is_known=pl.col("number").list.eval(pl.element().is_in(known_gsns.implode())).list.any(),
        is_mended=pl.col("number") != pl.col("gsn"),
    ).filter(with_numbers["gsn"].list.len() > 0)
    return GsnCount(
        *(int(part["rows"].sum()) for part in (flags, flags.filter("is_known"), flags.filter("is_mended")))
    )


def fit_lookup(name_counts: pl.LazyFrame, gsn_to_atc: pl.LazyFrame) -> pl.LazyFrame:
    """Return drug_lookup/1 (name, atc, rows), sorted by name, from the training patients' prescriptions.

    Args:
        name_counts: name, gsn, rows of `count_prescriptions`; a pair may have several rows.
        gsn_to_atc: gsn, atc; a GSN may have several.
    """
    return most_common_atc(prescription_atc(name_counts.drop_nulls(["name", "gsn"]), gsn_to_atc), ["name"])

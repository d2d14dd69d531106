"""Drug names to ATC codes through the GSN of prescriptions: a fitted table that anyone can open."""

from dataclasses import dataclass

import polars as pl

from pipelines.events.code_mapping import gsn_number


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


@dataclass(frozen=True)
class GsnCount:
    """Prescription rows by their GSNs."""

    recorded: int  # with at least one
    known: int  # of these, with one the crosswalk has
    mended: int  # of these, with one in another spelling than the published


def count_gsns(counted: pl.DataFrame, gsn_to_atc: pl.DataFrame) -> GsnCount:
    """Return how many prescription rows have a GSN, one that the crosswalk knows, one that had to be mended.

    Args:
        counted: gsn, rows: how many prescription rows say so.
        gsn_to_atc: gsn.
    """
    known = gsn_to_atc["gsn"].to_frame().select(gsn_number(pl.col("gsn"))).to_series().unique()
    each = counted.drop_nulls("gsn").select("rows", gsn=pl.col("gsn").str.extract_all(r"\S+"))
    as_published = each.with_columns(number=pl.col("gsn").list.eval(gsn_number(pl.element())))
    has = as_published.select(
        "rows",
        known=pl.col("number").list.eval(pl.element().is_in(known.implode())).list.any(),
        mended=pl.col("number") != pl.col("gsn"),
    ).filter(as_published["gsn"].list.len() > 0)
    return GsnCount(*(int(part["rows"].sum()) for part in (has, has.filter("known"), has.filter("mended"))))


def fit_lookup(counted: pl.LazyFrame, gsn_to_atc: pl.LazyFrame) -> pl.LazyFrame:
    """Return drug_lookup/1 (name, atc, rows), sorted by name, from the fitted-on subjects' prescriptions.

    Args:
        counted: name, gsn, rows of `count_prescriptions`, in any number of parts.
        gsn_to_atc: gsn, atc; a GSN may have several.
    """
    return commonest_atc(prescription_atc(counted.drop_nulls(["name", "gsn"]), gsn_to_atc), ["name"])

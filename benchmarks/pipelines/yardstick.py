"""The reference rate of a machine: laboratory rows alone, scanned, filtered, cut into deciles and written as Parquet.

It has no checks, no patients, no sorting and no messages: only polars' streaming engine. The rates of the whole chain
on two machines are compared as shares of this rate.
"""

from pathlib import Path

import polars as pl

from pipelines.corpus.deciles import CUTS, DECILES
from schemas.cards import Flow, StepCard
from schemas.io.paths import scan_csv

ROWS_TO_FIT_ON = 1_000_000
_NUMBERS = {
    "subject_id": pl.Int64(),
    "hadm_id": pl.Int64(),
    "itemid": pl.Int64(),
    "valuenum": pl.Float64(),
}


def plain(labevents: Path, cards: Path, output: Path) -> StepCard:
    """Write the patient, stay, item, time and decile of each row with a value, by cuts of the first million rows.

    Args:
        labevents: the table as csv.gz.
        cards: the folder with the card of the events, which holds the number of rows of the table.
        output: the file to write, which is deleted at the end.
    """
    rows = scan_csv(labevents, infer_schema=False, schema_overrides=_NUMBERS)
    numeric_rows = rows.filter(pl.col("valuenum").is_finite())
    tenths = (
        pl.col("valuenum").quantile(tenth / len(DECILES)).alias(cut_name)
        for tenth, cut_name in enumerate(CUTS, start=1)
    )
    first = numeric_rows.select("itemid", "valuenum").head(ROWS_TO_FIT_ON).collect(engine="streaming")
    cuts = first.group_by("itemid").agg(*tenths)
    decile = 1 + sum((pl.col("valuenum") > pl.col(cut_name)).cast(pl.UInt8) for cut_name in CUTS)
    numeric_rows.join(cuts.lazy(), on="itemid").select(
        "subject_id",
        "hadm_id",
        "itemid",
        pl.col("charttime").str.to_datetime("%Y-%m-%d %H:%M:%S"),
        decile=decile,
    ).sink_parquet(output, engine="streaming")
    output.unlink()
    row_count = StepCard.read(cards, "events").flows[labevents.name.removesuffix(".csv.gz")].source_rows
    return StepCard(
        step="plain", contract="none", flows={"labevents": Flow(source_rows=row_count, kept_rows=row_count)}
    )

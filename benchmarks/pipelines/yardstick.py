"""What a machine can do at most: the laboratory rows alone, scanned, filtered, cut into deciles, written as Parquet.

No check, no patient, no order, no message: polars' streaming engine and nothing else. Rates of the whole chain on two
machines compare as shares of this one.
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


def plain(labevents: Path, cards: Path, written: Path) -> StepCard:
    """Write each valued row's patient, stay, item, time and decile, by cuts of the first million rows.

    Args:
        labevents: the table as csv.gz.
        cards: where the card of the events lies, which knows how many rows the table has.
        written: where to, gone at the end.
    """
    rows = scan_csv(labevents, infer_schema=False, schema_overrides=_NUMBERS)
    valued = rows.filter(pl.col("valuenum").is_finite())
    tenths = (
        pl.col("valuenum").quantile(tenth / len(DECILES)).alias(cut)
        for tenth, cut in enumerate(CUTS, start=1)
    )
    first = valued.select("itemid", "valuenum").head(ROWS_TO_FIT_ON).collect(engine="streaming")
    cuts = first.group_by("itemid").agg(*tenths)
    decile = 1 + sum((pl.col("valuenum") > pl.col(cut)).cast(pl.UInt8) for cut in CUTS)
    valued.join(cuts.lazy(), on="itemid").select(
        "subject_id",
        "hadm_id",
        "itemid",
        pl.col("charttime").str.to_datetime("%Y-%m-%d %H:%M:%S"),
        decile=decile,
    ).sink_parquet(written, engine="streaming")
    written.unlink()
    read = StepCard.read(cards, "events").flows[labevents.name.removesuffix(".csv.gz")].source_rows
    return StepCard(
        step="plain", contract="none", flows={"labevents": Flow(source_rows=read, kept_rows=read)}
    )

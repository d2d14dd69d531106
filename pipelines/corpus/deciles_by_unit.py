"""Deciles for items measured in several units: cuts are fitted per (item, unit), tokens are per item.

A token then means the same rank in every unit. Counts are added up by text, so kind, item and unit are joined into one
text key until the cuts are fitted.
"""

import polars as pl

from pipelines.corpus.deciles import CUTS, fit_cuts
from pipelines.corpus.tokens import VALUED, tokens_of_values

_SEPARATOR = "\x1f"  # the ASCII unit separator, which occurs in no code
IS_LAB = pl.col("code").str.starts_with(f"LAB{_SEPARATOR}")


def with_item_keys(rows: pl.DataFrame, kind: str) -> pl.DataFrame:
    """Return rows of one kind with kind, code and unit joined as their `code`."""
    unit = pl.col("unit").cast(pl.String).fill_null("")
    parts = [pl.lit(kind), pl.col("code").cast(pl.String), unit]
    return rows.with_columns(code=pl.concat_str(parts, separator=_SEPARATOR))


def fit(values: pl.DataFrame, *, top: int) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return cuts/1, the count of each token in sets, and the units of the laboratory items.

    The `top` most frequent laboratory (item, unit) pairs get cuts, and all pairs of vital signs.

    Args:
        values: code (of `with_item_keys`), value, rows, in_sets, each pair once.

    Returns:
        kind, code, unit?, rows, cut_1 … cut_9, by kind and frequency.
        token, count.
        code, unit?, rows.
    """
    nothing = pl.DataFrame(schema={"code": pl.String, "unit": pl.String, "rows": pl.Int64})
    all_cuts = pl.concat(
        [
            fit_cuts(values.filter(IS_LAB), nothing, top=top),
            fit_cuts(values.filter(~IS_LAB), nothing, top=values.height),
        ]
    )
    cuts = _split_keys(all_cuts.drop("unit")).select(
        "kind", "code", "unit", pl.col("rows").cast(pl.Int64), *CUTS
    )
    units = _split_keys(values.filter(IS_LAB)).group_by("code", "unit").agg(pl.col("rows").sum())
    return cuts, _count(_split_keys(values), cuts), units


def commonest_units(cuts: pl.DataFrame) -> pl.DataFrame:
    """Return each item once, with its commonest unit and `rows` summed over its units."""
    whole = cuts.group_by("kind", "code").agg(pl.col("rows").sum())
    first = cuts.drop("rows").unique(["kind", "code"], keep="first", maintain_order=True)
    return first.join(whole, on=["kind", "code"], how="left", maintain_order="left")


def _split_keys(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the joined key split into kind, code and unit again."""
    parts = pl.col("code").str.splitn(_SEPARATOR, 3)
    unit = parts.struct[2]
    return rows.with_columns(kind=parts.struct[0], code=parts.struct[1], unit=pl.when(unit != "").then(unit))


def _count(values: pl.DataFrame, cuts: pl.DataFrame) -> pl.DataFrame:
    counts = [pl.DataFrame(schema={"token": pl.String, "count": pl.Int64})]
    for kind in VALUED:
        kind_values = values.filter(pl.col("kind") == kind)
        code, unit = (
            kind_values[name].to_arrow().cast("string").dictionary_encode() for name in ("code", "unit")
        )
        row_tokens = tokens_of_values(
            code, kind_values["value"].to_numpy(), cuts.filter(pl.col("kind") == kind), kind=kind, unit=unit
        )
        texts = pl.Series("token", row_tokens.cast("string"), dtype=pl.String)
        counts.append(pl.DataFrame({"token": texts, "count": kind_values["in_sets"]}))
    whole = pl.concat(counts).drop_nulls("token").group_by("token").agg(pl.col("count").sum())
    return whole.filter(pl.col("count") > 0)

"""Events to tokens: the text a token is written as, the vocabulary fitted on it, and the way down to ids.

A code that is rare, or was never seen, backs off to its parent level by level; one without becomes [UNK].
"""

import polars as pl

from pipelines.values import CUTS, DECILES, apply_cuts
from schemas.events import KINDS
from schemas.vocab import SPECIAL_KIND, SPECIALS, UNK

ATC_LEVELS = (7, 5, 4, 3, 1)
ICD_CATEGORY_LENGTH = 3


def write_tokens(events: pl.LazyFrame, cuts: pl.LazyFrame) -> pl.LazyFrame:
    """Add `token`, e.g. DX:I10 or LAB:50912_Q3; null where a code has no mapping or an item no cuts.

    Args:
        events: coded events/1 (`codes.code_events`).
        cuts: code, cut_1 … cut_9 of the laboratory items that are tokens.
    """
    is_lab = pl.col("kind") == "LAB"
    coded = events.filter(~is_lab).with_columns(token=pl.concat_str("kind", pl.lit(":"), "mapped"))
    valued = apply_cuts(events.filter(is_lab), cuts).with_columns(
        token=pl.concat_str(pl.lit("LAB:"), "code", pl.lit("_Q"), "decile")
    )
    return pl.concat([coded, valued.drop("decile")])


def parent_token(token: pl.Expr) -> pl.Expr:
    """Return the token one level up, or null: ICD-10-CM a character shorter down to 3, ATC the next level."""
    length = token.str.len_chars().cast(pl.Int64)
    is_dx, is_med = token.str.starts_with("DX:"), token.str.starts_with("MED:")
    category = pl.when(is_dx & (length > len("DX:") + ICD_CATEGORY_LENGTH)).then(token.str.head(length - 1))
    levels = [
        pl.when(is_med & (length > len("MED:") + level)).then(token.str.head(len("MED:") + level))
        for level in ATC_LEVELS[1:]
    ]
    return pl.coalesce(category, *levels)


def roll_up(own: pl.DataFrame, *, min_count: int) -> pl.DataFrame:
    """Return token, count where a token seen less than `min_count` times adds its count to its parent.

    From the longest to the shortest, so that a parent's count is its own and all that backs off to it.

    Args:
        own: token, count as written.
    """
    done: list[pl.DataFrame] = []
    waiting = own.select("token", pl.col("count").cast(pl.Int64))
    while waiting.height:
        length = pl.col("token").str.len_chars()
        longest = waiting.filter(length == length.max())
        done.append(longest)
        backing_off = (
            longest.filter(pl.col("count") < min_count)
            .select(parent_token(pl.col("token")).alias("token"), "count")
            .drop_nulls("token")
        )
        shorter = waiting.filter(length < length.max())
        waiting = pl.concat([shorter, backing_off]).group_by("token").agg(pl.col("count").sum())
    return pl.concat(done) if done else waiting


def nearest_token(tokens: pl.DataFrame, kept: pl.DataFrame) -> pl.DataFrame:
    """Return token, nearest: the token itself, else its closest ancestor that is in `kept`, else null.

    Args:
        tokens: token, each once.
        kept: token, the ones with an id.
    """
    known = kept.select("token", found="token")
    walked = tokens.select("token", at="token", nearest=pl.lit(None, pl.String))
    while walked.select((pl.col("nearest").is_null() & pl.col("at").is_not_null()).any()).item():
        walked = (
            walked.join(known, left_on="at", right_on="token", how="left")
            .with_columns(nearest=pl.coalesce("nearest", "found"), at=parent_token(pl.col("at")))
            .drop("found")
        )
    return walked.select("token", "nearest")


def fit_vocab(tokens: pl.LazyFrame, cuts: pl.DataFrame, *, min_count: int) -> pl.DataFrame:
    """Return vocab/1: specials, then kind by kind in the order of codes, ten rows for each laboratory item.

    Args:
        tokens: token, of the events that lie in sets of the fitted-on subjects.
        cuts: code, unit, cut_1 … cut_9.
    """
    own = tokens.group_by("token").agg(count=pl.len()).collect()
    counted = roll_up(own, min_count=min_count)
    coded = counted.filter(~pl.col("token").str.starts_with("LAB:"))
    rows = pl.concat([_code_rows(coded), _lab_rows(cuts, counted)])
    kept = pl.col("count_train") >= min_count
    parents = nearest_token(rows.filter(~kept).select("token"), rows.filter(kept))
    ordered = rows.join(parents, on="token", how="left").sort(
        pl.col("kind").replace_strict({kind: place for place, kind in enumerate(KINDS)}), "code", "decile"
    )
    numbered = ordered.with_columns(
        token_id=pl.when(kept).then(kept.cum_sum() + len(SPECIALS) - 1).cast(pl.UInt32), parent="nearest"
    )
    return pl.concat([_special_rows(), numbered], how="diagonal").select(
        "token_id", "token", "kind", "code", "unit", "low", "high", "parent", "count_train"
    )


def vocab_counts(vocab: pl.DataFrame) -> dict[str, int]:
    """Return how many tokens have an id, by kind, and how many rows are too rare for one."""
    sizes = vocab.drop_nulls("token_id")["kind"].value_counts().iter_rows()
    return {
        "size": vocab["token_id"].count(),
        **{f"size_{kind}": count for kind, count in sorted(sizes)},
        "rows_below_min_count": vocab["token_id"].null_count(),
    }


def _special_rows() -> pl.DataFrame:
    return pl.DataFrame({"token": SPECIALS}).with_columns(
        token_id=pl.int_range(pl.len(), dtype=pl.UInt32),
        kind=pl.lit(SPECIAL_KIND),
        count_train=pl.lit(0, pl.Int64),
    )


def _code_rows(counted: pl.DataFrame) -> pl.DataFrame:
    parts = pl.col("token").str.splitn(":", 2)
    return counted.select(
        "token",
        kind=parts.struct[0],
        code=parts.struct[1],
        unit=pl.lit(None, pl.String),
        low=pl.lit(None, pl.Float64),
        high=pl.lit(None, pl.Float64),
        decile=pl.lit(None, pl.Int32),
        count_train="count",
    )


def _lab_rows(cuts: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    deciles = pl.concat(
        cuts.select(
            token=pl.concat_str(pl.lit("LAB:"), "code", pl.lit(f"_Q{decile}")),
            kind=pl.lit("LAB"),
            code="code",
            unit="unit",
            low=pl.col(CUTS[decile - 2]) if decile > 1 else pl.lit(None, pl.Float64),
            high=pl.col(CUTS[decile - 1]) if decile <= len(CUTS) else pl.lit(None, pl.Float64),
            decile=pl.lit(decile, pl.Int32),
        )
        for decile in DECILES
    )
    return (
        deciles.join(counted, on="token", how="left")
        .with_columns(count_train=pl.col("count").fill_null(0))
        .drop("count")
    )


def cuts_of(vocab: pl.DataFrame) -> pl.DataFrame:
    """Return code, cut_1 … cut_9 of the laboratory items as the vocabulary holds them."""
    labs = vocab.filter(pl.col("kind") == "LAB").with_columns(
        decile=pl.col("token").str.extract(r"_Q(\d+)$").cast(pl.Int32)
    )
    return labs.group_by("code", maintain_order=True).agg(
        pl.col("high").filter(pl.col("decile") == k).first().alias(name)
        for k, name in enumerate(CUTS, start=1)
    )


def encode(events: pl.LazyFrame, vocab: pl.DataFrame) -> pl.LazyFrame:
    """Add `token_id` (u32; [UNK] where neither the token nor an ancestor has one) and `backed_off`.

    Args:
        events: `token` not null, anything else.
        vocab: vocab/1.
    """
    kept = vocab.drop_nulls("token_id").select("token", "token_id")
    distinct = events.select("token").unique().collect()
    ids = (
        nearest_token(distinct, kept)
        .join(kept, left_on="nearest", right_on="token", how="left")
        .select(
            "token",
            token_id=pl.col("token_id").fill_null(UNK).cast(pl.UInt32),
            backed_off=(pl.col("nearest") != pl.col("token")).fill_null(False),
        )
    )
    return events.join(ids.lazy(), on="token", how="left")

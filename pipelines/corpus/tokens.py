"""Turns events into tokens: the text of a token, the vocabulary fitted on the texts, and their ids.

A rare or unseen code backs off to its parent, level by level; without an ancestor in the vocabulary it becomes [UNK].
Tokens repeat, so a column of tokens is an Arrow dictionary, and expensive work is done once per distinct text.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.corpus.deciles import CUTS, DECILES, deciles
from schemas.tables.events import KINDS
from schemas.tables.vocab import SPECIAL_KIND, SPECIALS, UNK

ATC_LEVELS = (7, 5, 4, 3, 1)
ICD_CATEGORY_LENGTH = 3
VALUED = ("LAB", "VIT")
"""The kinds whose values become tokens by decile."""

RXNORM = "rxnorm"
_IS_DECILE = r"^(LAB|VIT):.*_Q(10|[1-9])$"


def write_tokens(
    kind: str, events: pa.Table, cuts: pl.DataFrame, drug_lookup: Mapping[str, str]
) -> pa.DictionaryArray:
    """Return the token of each event, e.g. DX:I10 or LAB:50912_Q3; null if a code has no mapping or an item no cuts.

    A result in words becomes a token by its mapping (LAB:5671-3_POS), a drug without ATC by its RxNorm code.

    Args:
        kind: the kind of all events.
        events: code, vocab, mapped (dictionary-encoded text), value; also unit if the cuts are by unit.
        cuts: code, cut_1 … cut_9 of the laboratory items in the vocabulary; or cuts/1, with kind and unit.
        drug_lookup: drug name -> ATC, for medications that extraction did not map.
    """
    code, vocab, target = (events[name].combine_chunks() for name in ("code", "vocab", "mapped"))
    if kind in VALUED:
        by_unit = "kind" in cuts.columns
        kind_cuts = cuts.filter(pl.col("kind") == kind) if by_unit else cuts
        unit = events["unit"].combine_chunks() if by_unit else None
        value_tokens = tokens_of_values(code, events["value"].to_numpy(), kind_cuts, kind=kind, unit=unit)
        return (
            _coalesce(value_tokens, tokens_of_words(kind, target))
            if target.null_count < len(target)
            else value_tokens
        )
    if kind == "MED":
        target = _coalesce(target, _atc_of_names(code, vocab, drug_lookup))
        if target.null_count and RXNORM in vocab.dictionary.to_pylist():
            target = _coalesce(target, _rxnorm(code, vocab))
    return tokens_of_words(kind, target)


def tokens_of_words(kind: str, target: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return <kind>:<target of the code>; null if there is no target."""
    texts = pc.binary_join_element_wise(pa.scalar(f"{kind}:"), target.dictionary.cast(pa.string()), "")
    return pa.DictionaryArray.from_arrays(target.indices, texts)


def tokens_of_values(
    code: pa.DictionaryArray,
    values: np.ndarray,
    cuts: pl.DataFrame,
    *,
    kind: str = "LAB",
    unit: pa.DictionaryArray | None = None,
) -> pa.DictionaryArray:
    """Return LAB:<item>_Q<decile> for each value; null if the item has no cuts or the value is missing.

    Args:
        code: the item of each value.
        values: f64 [values].
        cuts: code, cut_1 … cut_9; by unit also unit, with several rows per item.
        kind: the kind of all values.
        unit: the unit of each value; None: the cuts of an item hold for every unit.
    """
    item = _rows_of(code, cuts) if unit is None else _rows_by_unit(code, unit, cuts)
    has_decile = (item >= 0) & ~np.isnan(values)
    decile = deciles(np.maximum(item, 0), values, cuts)
    texts = [f"{kind}:{item}_Q{decile}" for item in cuts["code"] for decile in DECILES]
    indices = pa.array(
        np.where(has_decile, item * len(DECILES) + decile - 1, 0), pa.int32(), mask=~has_decile
    )
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


def _rows_of(code: pa.DictionaryArray, cuts: pl.DataFrame) -> np.ndarray:
    """Return the row of `cuts` of each value, -1 if its item has no cuts."""
    row_of = {item: row for row, item in enumerate(cuts["code"])}
    rows = np.array([row_of.get(item, -1) for item in code.dictionary.to_pylist()], dtype=np.int64)
    return rows[code.indices.to_numpy()] if len(code) else np.empty(0, dtype=np.int64)


def _rows_by_unit(code: pa.DictionaryArray, unit: pa.DictionaryArray, cuts: pl.DataFrame) -> np.ndarray:
    """Return the row of `cuts` for each value's item and unit, -1 if there is none; null counts as a unit."""
    if not len(code):
        return np.empty(0, dtype=np.int64)
    row_of = {pair: row for row, pair in enumerate(cuts.select("code", "unit").iter_rows())}
    units = [*unit.dictionary.to_pylist(), None]
    table = [[row_of.get((item, name), -1) for name in units] for item in code.dictionary.to_pylist()]
    unit_column = pc.fill_null(unit.indices, len(units) - 1).to_numpy()
    rows: np.ndarray = np.array(table, dtype=np.int64)[code.indices.to_numpy(), unit_column]
    return rows


def _rxnorm(code: pa.DictionaryArray, vocab: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return RX<code> for each event with an RxNorm code, else null."""
    texts = pc.binary_join_element_wise(pa.scalar("RX"), code.dictionary.cast(pa.string()), "")
    indices = pc.if_else(pc.equal(vocab.cast(pa.string()), RXNORM), code.indices, pa.scalar(None, pa.int32()))
    return pa.DictionaryArray.from_arrays(indices, texts)


def _atc_of_names(
    code: pa.DictionaryArray, vocab: pa.DictionaryArray, drug_lookup: Mapping[str, str]
) -> pa.DictionaryArray:
    """Return the ATC code of each event whose code is a drug name, else null."""
    atc = pa.array(
        [drug_lookup.get(name) for name in code.dictionary.to_pylist()], pa.string()
    ).dictionary_encode()
    is_name = pc.equal(vocab, "name") if len(vocab) else pa.array([], pa.bool_())
    return pa.DictionaryArray.from_arrays(
        pc.if_else(is_name, atc.indices.take(code.indices), pa.scalar(None, pa.int32())), atc.dictionary
    )


def _coalesce(first: pa.DictionaryArray, second: pa.DictionaryArray) -> pa.DictionaryArray:
    """Return `first` where it is not null, else `second`."""
    union = pa.concat_arrays([first.dictionary.cast(pa.string()), second.dictionary]).dictionary_encode()
    indices = [
        union.indices[: len(first.dictionary)].take(first.indices),
        union.indices[len(first.dictionary) :].take(second.indices),
    ]
    return pa.DictionaryArray.from_arrays(pc.coalesce(*indices), union.dictionary)


def count_tokens(tokens: pa.DictionaryArray) -> pl.DataFrame:
    """Return token, count of the tokens that are not null, in no particular order."""
    indices = tokens.indices.drop_null().to_numpy()
    counts = np.bincount(indices, minlength=len(tokens.dictionary))
    table = pl.DataFrame(
        {"token": pl.Series(tokens.dictionary, dtype=pl.String), "count": counts.astype(np.int64)}
    )
    return table.group_by("token").agg(pl.col("count").sum()).filter(pl.col("count") > 0)


def patients_of(tokens: pa.DictionaryArray, subject_ids: pa.Array, *, most: int) -> pl.DataFrame:
    """Return token, subject_id: for each token that is not null, at most `most` of its patients.

    Args:
        subject_ids: i64 [tokens].
        most: the limit per token; enough to know whether the minimum count is reached.
    """
    if tokens.indices.null_count:
        is_token = tokens.indices.is_valid()
        tokens, subject_ids = tokens.filter(is_token), subject_ids.filter(is_token)
    place = tokens.indices.to_numpy().astype(np.int64)
    ids, subject = _dense_ids(subject_ids.to_numpy())
    if len(ids) * len(tokens.dictionary) <= _MOST_CELLS:
        has_token = np.zeros(
            (len(tokens.dictionary), len(ids)), dtype=bool
        )  # no sort, but one mark per event
        place *= len(ids)
        place += subject
        has_token.reshape(-1)[place] = True
        patients = [np.flatnonzero(flags)[:most] for flags in has_token]
        place = np.arange(len(has_token)).repeat(np.fromiter(map(len, patients), dtype=np.int64))
        subject = np.concatenate([np.empty(0, dtype=np.int64), *patients])
    else:
        pairs = pl.DataFrame({"place": place, "subject": subject}).unique().sort("place", "subject")
        sample = pairs.group_by("place", maintain_order=True).head(most)
        place, subject = sample["place"].to_numpy(), sample["subject"].to_numpy()
    texts = pl.Series("token", tokens.dictionary, dtype=pl.String)
    return pl.DataFrame({"token": texts.gather(place), "subject_id": ids[subject]})


_MOST_CELLS = 100_000_000


def _dense_ids(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct ids and the position of each id among them; fast if events are grouped by patient."""
    if not len(ids):
        return ids, np.empty(0, dtype=np.int64)
    heads = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
    distinct, place_of_run = np.unique(ids[heads], return_inverse=True)
    return distinct, place_of_run.repeat(np.diff(heads, append=len(ids)))


def cap_patients(patients: pl.DataFrame, *, most: int) -> pl.DataFrame:
    """Return token, subject_id with each pair once and at most `most` rows per token."""
    return patients.unique().group_by("token").head(most)


def common_tokens(patients: pl.DataFrame, *, min_count: int) -> pl.DataFrame:
    """Return the tokens that at least `min_count` patients have; pairs of token, subject_id may repeat."""
    num_patients = patients.unique().group_by("token").len()
    return num_patients.filter(pl.col("len") >= min_count).select("token")


def parent_token(token: pl.Expr) -> pl.Expr:
    """Return the token one level up, or null: ICD-10-CM one character shorter down to 3, ATC the next level.

    A code that names its vocabulary (`DX:SNOMED/38341003`) belongs to neither.
    """
    names_vocabulary = token.str.contains("/", literal=True)
    length = token.str.len_chars().cast(pl.Int64)
    is_dx = token.str.starts_with("DX:") & ~names_vocabulary
    # no ATC code begins with two letters
    is_med = token.str.starts_with("MED:") & ~token.str.starts_with("MED:RX") & ~names_vocabulary
    category = pl.when(is_dx & (length > len("DX:") + ICD_CATEGORY_LENGTH)).then(token.str.head(length - 1))
    levels = [
        pl.when(is_med & (length > len("MED:") + level)).then(token.str.head(len("MED:") + level))
        for level in ATC_LEVELS[1:]
    ]
    return pl.coalesce(category, *levels)


def roll_up(counts: pl.DataFrame, patients: pl.DataFrame, *, min_count: int) -> pl.DataFrame:
    """Return token, count, is_common after tokens with fewer than `min_count` patients are added to their parents.

    Works from the longest to the shortest token, so that a parent includes all tokens that back off to it.

    Args:
        counts: token, count as written.
        patients: token, subject_id; all patients of a token, or at least `min_count` of them.
    """
    levels: list[pl.DataFrame] = []
    waiting = counts.select("token", pl.col("count").cast(pl.Int64))
    up = parent_token(pl.col("token")).alias("token")
    while waiting.height:
        length = pl.col("token").str.len_chars()
        is_longest = length == waiting.select(length.max()).item()
        longest, patients_of_longest = waiting.filter(is_longest), patients.filter(is_longest)
        is_common = pl.col("token").is_in(
            common_tokens(patients_of_longest, min_count=min_count)["token"].implode()
        )
        levels.append(longest.with_columns(is_common=is_common))
        backing_off = longest.filter(~is_common).select(up, "count").drop_nulls("token")
        patients_of_parents = (
            patients_of_longest.filter(~is_common).select(up, "subject_id").drop_nulls("token")
        )
        waiting = (
            pl.concat([waiting.filter(~is_longest), backing_off]).group_by("token").agg(pl.col("count").sum())
        )
        patients = pl.concat([patients.filter(~is_longest), patients_of_parents])
    return pl.concat(levels) if levels else waiting.with_columns(is_common=pl.lit(False))


def nearest_token(tokens: pl.DataFrame, vocabulary: pl.DataFrame) -> pl.DataFrame:
    """Return token, nearest: the token itself, else its closest ancestor in `vocabulary`, else null.

    Args:
        tokens: token, each once.
        vocabulary: token, those with an id.
    """
    with_id = vocabulary.select("token", match="token")
    ancestors = tokens.select("token", at="token", nearest=pl.lit(None, pl.String))
    while ancestors.select((pl.col("nearest").is_null() & pl.col("at").is_not_null()).any()).item():
        ancestors = (
            ancestors.join(with_id, left_on="at", right_on="token", how="left")
            .with_columns(nearest=pl.coalesce("nearest", "match"), at=parent_token(pl.col("at")))
            .drop("match")
        )
    return ancestors.select("token", "nearest")


def fit_vocab(
    counts: pl.DataFrame, patients: pl.DataFrame, cuts: pl.DataFrame, *, min_count: int
) -> pl.DataFrame:
    """Return vocab/1: special tokens, then kind by kind in order of code, ten rows per laboratory item.

    A code with fewer than `min_count` patients is left out: it is counted in its parent, or becomes [UNK].

    Args:
        counts: token, count, each token once, of events in sets of the training subjects.
        patients: token, subject_id; all patients of a token, or at least `min_count` of them. Deciles are counted
            under their item, with the token <kind>:<item>.
        cuts: code, unit, cut_1 … cut_9, each item once; also kind if not all are LAB.
    """
    is_decile = pl.col("token").str.contains(_IS_DECILE)
    code_counts = roll_up(counts.filter(~is_decile), patients, min_count=min_count)
    rows = pl.concat(
        [
            _code_rows(code_counts.filter("is_common")),
            _lab_rows(
                cuts, counts.filter(is_decile), common_tokens(patients, min_count=min_count), min_count
            ),
        ]
    )
    sorted_rows = rows.sort(
        pl.col("kind").replace_strict({kind: place for place, kind in enumerate(KINDS)}), "code", "decile"
    )
    has_id = pl.col("is_common")
    vocab_rows = sorted_rows.with_columns(
        token_id=pl.when(has_id).then(has_id.cum_sum() + len(SPECIALS) - 1).cast(pl.UInt32),
        parent=pl.lit(None, pl.String),
    )
    return pl.concat([_special_rows(), vocab_rows], how="diagonal").select(
        "token_id", "token", "kind", "code", "unit", "low", "high", "parent", "count_train"
    )


def vocab_counts(vocab: pl.DataFrame) -> dict[str, int]:
    """Return the number of tokens with an id, by kind, and of deciles too rare for an id."""
    sizes = vocab.drop_nulls("token_id")["kind"].value_counts().iter_rows()
    return {
        "size": vocab["token_id"].count(),
        **{f"size_{kind}": count for kind, count in sorted(sizes)},
        "deciles_below_min_count": vocab["token_id"].null_count(),
    }


def _special_rows() -> pl.DataFrame:
    return pl.DataFrame({"token": SPECIALS}).with_columns(
        token_id=pl.int_range(pl.len(), dtype=pl.UInt32),
        kind=pl.lit(SPECIAL_KIND),
        count_train=pl.lit(0, pl.Int64),
    )


def _code_rows(counts: pl.DataFrame) -> pl.DataFrame:
    parts = pl.col("token").str.splitn(":", 2)
    return counts.select(
        "token",
        kind=parts.struct[0],
        code=parts.struct[1],
        unit=pl.lit(None, pl.String),
        low=pl.lit(None, pl.Float64),
        high=pl.lit(None, pl.Float64),
        decile=pl.lit(None, pl.Int32),
        count_train="count",
        is_common="is_common",
    )


def _lab_rows(cuts: pl.DataFrame, counts: pl.DataFrame, common: pl.DataFrame, min_count: int) -> pl.DataFrame:
    """Return ten rows per item; a decile is common if it has `min_count` values and its item is common."""
    kind = pl.col("kind") if "kind" in cuts.columns else pl.lit("LAB")
    deciles = pl.concat(
        cuts.select(
            token=pl.concat_str(kind, pl.lit(":"), "code", pl.lit(f"_Q{decile}")),
            kind=kind,
            code="code",
            unit="unit",
            low=pl.col(CUTS[decile - 2]) if decile > 1 else pl.lit(None, pl.Float64),
            high=pl.col(CUTS[decile - 1]) if decile <= len(CUTS) else pl.lit(None, pl.Float64),
            decile=pl.lit(decile, pl.Int32),
        )
        for decile in DECILES
    )
    item = pl.concat_str("kind", pl.lit(":"), "code")
    return (
        deciles.join(counts, on="token", how="left")
        .with_columns(count_train=pl.col("count").fill_null(0).cast(pl.Int64))
        .with_columns(is_common=(pl.col("count_train") >= min_count) & item.is_in(common["token"].implode()))
        .drop("count")
    )


def cuts_of(vocab: pl.DataFrame) -> pl.DataFrame:
    """Return code, cut_1 … cut_9 of the laboratory items in the vocabulary."""
    labs = vocab.filter(pl.col("kind") == "LAB").with_columns(
        decile=pl.col("token").str.extract(r"_Q(\d+)$").cast(pl.Int32)
    )
    labs = labs.drop_nulls("decile")
    return labs.group_by("code", maintain_order=True).agg(
        pl.col("high").filter(pl.col("decile") == k).first().alias(name)
        for k, name in enumerate(CUTS, start=1)
    )


def encode(tokens: pa.DictionaryArray, vocab: pl.DataFrame) -> tuple[np.ndarray, pl.DataFrame]:
    """Return the id of each token, u32 [events], and how the distinct texts were encoded.

    Args:
        tokens: without nulls.
        vocab: vocab/1.

    Returns:
        ids; [UNK] if neither the token nor an ancestor has an id.
        token, token_id, backed_off, count of each token that occurs.
    """
    texts = pl.DataFrame({"token": pl.Series(tokens.dictionary, dtype=pl.String)})
    with_id = vocab.drop_nulls("token_id").select("token", "token_id")
    nearest = nearest_token(texts.unique(), with_id)
    id_of_text = (
        texts.join(nearest, on="token", how="left", maintain_order="left")
        .join(with_id, left_on="nearest", right_on="token", how="left", maintain_order="left")
        .select(
            "token",
            token_id=pl.col("token_id").fill_null(UNK).cast(pl.UInt32),
            backed_off=(pl.col("nearest") != pl.col("token")).fill_null(False),
        )
    )
    ids = (
        id_of_text["token_id"].to_numpy()[tokens.indices.to_numpy()]
        if len(tokens)
        else np.empty(0, np.uint32)
    )
    return ids, id_of_text.unique().join(count_tokens(tokens), on="token")

"""Descriptions of codes in a MEDS dataset's metadata: read as names of our codes, and written from them."""

from pathlib import Path

import polars as pl
from meds.schema import code_metadata_filepath

from pipelines.reading.code_names import legible_names
from pipelines.reading.files import translate_errors
from pipelines.sources.meds.codes import classify_codes
from schemas.errors import InputError
from schemas.io.paths import scan_parquet

_ITEM = pl.col("valued_code").str.split("//").list.first()
"""The item of `50912//mg/dL`."""

_DESCRIBED = {"code": pl.String, "description": pl.String}


def described_codes(dataset: Path) -> tuple[pl.DataFrame, list[str]]:
    """Return vocab, code, name of the codes that a dataset describes, and a sentence where its metadata cannot be read.

    A code that may have values has the name as both: `LAB//50912//mg/dL` is an item, and in another dataset a code.
    """
    file = dataset / code_metadata_filepath
    nothing = pl.DataFrame(schema={"vocab": pl.String, "code": pl.String, "name": pl.String})
    if not file.is_file():
        return nothing, []
    try:
        with translate_errors(file):
            rows = (
                scan_parquet(file)
                .select(pl.col(name).cast(kind) for name, kind in _DESCRIBED.items())
                .collect()
            )
    except InputError as error:
        return nothing, [f"{error} Codes are shown without its descriptions."]
    rows = rows.drop_nulls().unique("code", maintain_order=True)
    classes = classify_codes(rows["code"], rows["code"])
    rows_with_name = classes.with_columns(name=rows["description"].str.strip_chars())
    names = pl.concat(
        [
            rows_with_name.select("vocab", "code", "name"),
            rows_with_name.select(vocab="valued_vocab", code="valued_code", name="name"),
            # as NEST's own export is read
            rows_with_name.select(vocab="valued_vocab", code=_ITEM, name="name"),
        ]
    )
    return legible_names(names), []


def descriptions(codes: pl.Series, names: pl.DataFrame) -> pl.Series:
    """Return the description of each MEDS code; null where its code has no name.

    Args:
        codes: distinct MEDS codes.
        names: vocab, code, name.
    """
    classes = classify_codes(codes, codes)
    own_names, item_names = (
        pairs.join(names, on=["vocab", "code"], how="left", maintain_order="left", validate="m:1")["name"]
        for pairs in (
            classes.select("vocab", "code"),
            classes.select(vocab="valued_vocab", code=_ITEM),
        )
    )
    return pl.select(pl.coalesce(own_names, item_names)).to_series()

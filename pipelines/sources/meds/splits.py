"""Which split a subject of a MEDS dataset is in: the dataset's own, so that its held-out subjects stay held out."""

import polars as pl

from pipelines.events.split import TASK_SPLIT, assign_split
from schemas.errors import InputError
from schemas.rules import DataRules
from schemas.tables.meds import SPLIT_NAMES


def splits(given: pl.DataFrame | None, ids: pl.Series, rules: DataRules) -> list[pl.Series]:
    """Return `split` and `pretrain_split` of the subjects: the dataset's own for both, or by our hash.

    Where the dataset's is our hash, as in one of ours, the rules say what to pretrain on.

    Args:
        given: subject_id, split of `metadata/subject_splits.parquet`; None: there is none.
        ids: the subjects, each once.
        rules: with the cuts of the pretraining's split.

    Raises:
        InputError: a subject is in no split we know, or in two.
    """
    hashed = assign_split(ids, *TASK_SPLIT).alias("split")
    by_rules = assign_split(ids, *rules.pretrain_split).alias("pretrain_split")
    if given is None:
        return [hashed, by_rules]
    ours = {theirs: split for split, theirs in SPLIT_NAMES.items()}
    subjects = pl.DataFrame({"subject_id": ids})
    named = subjects.join(given.unique(), on="subject_id", how="left", maintain_order="left")
    split = named["split"].replace_strict(ours, default=None, return_dtype=pl.String)
    if named.height != len(ids) or split.null_count():
        raise InputError(
            f"metadata/subject_splits.parquet: {split.null_count():,} of {len(ids):,} subjects are in none of "
            f"{', '.join(ours)}, {named.height - len(ids):,} in more than one. Mend it, or remove it: the split is "
            "then by our hash."
        )
    return [hashed, by_rules] if split.equals(hashed) else [split, split.alias("pretrain_split")]

"""The splits of a MEDS dataset's subjects: the dataset's own, so that its held-out subjects stay held out."""

import polars as pl

from pipelines.events.split import TASK_SPLIT, assign_split
from schemas.errors import InputError
from schemas.rules import DataRules
from schemas.tables.meds import SPLIT_NAMES


def splits(dataset_splits: pl.DataFrame | None, ids: pl.Series, rules: DataRules) -> list[pl.Series]:
    """Return `split` and `pretrain_split` of the subjects: the dataset's own split for both, or our split by hash.

    Where the dataset's split equals our hash split, as in a dataset we exported, the rules give the pretraining split.

    Args:
        dataset_splits: subject_id, split of `metadata/subject_splits.parquet`; None: the dataset has no splits.
        ids: distinct subjects.
        rules: The rules with the cuts of the pretraining split.

    Raises:
        InputError: a subject is in no known split, or in two.
    """
    hash_split = assign_split(ids, *TASK_SPLIT).alias("split")
    pretrain_split = assign_split(ids, *rules.pretrain_split).alias("pretrain_split")
    if dataset_splits is None:
        return [hash_split, pretrain_split]
    nest_names = {theirs: split for split, theirs in SPLIT_NAMES.items()}
    subjects = pl.DataFrame({"subject_id": ids})
    split_rows = subjects.join(dataset_splits.unique(), on="subject_id", how="left", maintain_order="left")
    split = split_rows["split"].replace_strict(nest_names, default=None, return_dtype=pl.String)
    if split_rows.height != len(ids) or split.null_count():
        raise InputError(
            f"metadata/subject_splits.parquet: {split.null_count():,} of {len(ids):,} subjects are in none of "
            f"{', '.join(nest_names)}, {split_rows.height - len(ids):,} in more than one. Correct the file, or remove "
            "it: subjects are then split by hash."
        )
    return (
        [hash_split, pretrain_split] if split.equals(hash_split) else [split, split.alias("pretrain_split")]
    )

"""Whom whatever is fitted may see: vocabulary, cuts, the drug lookup."""

import polars as pl

from schemas.contract import read_table
from schemas.errors import InputError
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import SUBJECTS


def fitted_on(layout: Layout, rules: DataRules) -> pl.DataFrame:
    """Return the subject_id of the subjects whatever is fitted may see."""
    known = pl.DataFrame(read_table(layout.subjects, SUBJECTS))
    fitted = known if rules.fit_on == "all" else known.filter(pl.col("split") == "train")
    if not fitted.height:
        raise InputError(
            f"subjects: none of {known.height:,} is in the training split, which everything is fitted on. "
            "Give more patients, or tokenize these by a fitted vocabulary."
        )
    return fitted.select("subject_id")

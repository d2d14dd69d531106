"""The subjects on which vocabulary, cuts and drug lookup are fitted."""

import polars as pl

from schemas.contract import read_table
from schemas.errors import InputError
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.tables.events import SUBJECTS


def training_subjects(layout: Layout, rules: DataRules) -> pl.DataFrame:
    """Return the subject_id of the subjects to fit on."""
    subjects = pl.DataFrame(read_table(layout.subjects, SUBJECTS))
    training = subjects if rules.fit_on == "all" else subjects.filter(pl.col("split") == "train")
    if not training.height:
        raise InputError(
            f"subjects: none of {subjects.height:,} is in the training split, on which everything is fitted. "
            "Give more patients, or tokenize these with a fitted vocabulary."
        )
    return training.select("subject_id")

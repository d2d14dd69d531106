"""The commonest diagnoses that were known before the prediction, as ICD-10 categories."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from scipy import sparse

from nest_model.data.history import select
from nest_model.data.labels import Labels
from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from nest_model.evaluation.subgroups import withheld_in_cells
from schemas.code_names import CodeNames, shorten
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.tables.events import KINDS

MOST = 10
_MOST_TRIED = 50
_LONGEST = 40  # characters of a name
_ROWS_AT_A_TIME = 20_000


def earlier_diagnoses(
    layout: Layout, labels: Labels, cells: Sequence[np.ndarray]
) -> list[tuple[str, np.ndarray]]:
    """Return the commonest categories of diagnoses in the history that models see, with bool [rows] who has them.

    A category that would disclose fewer than eleven patients in a cell, with it or without, is left out.

    Args:
        cells: bool [rows] each; counts of any union of them are shown.
    """
    if not is_written(layout.vocab) or not layout.seqset.is_dir():
        return []
    seqsets = SeqSets.read(layout.seqset)
    names, category_of_token = _categories(read_tokens(layout.vocab, seqsets.vocab_sha256))
    parts = np.array_split(np.arange(len(labels)), 1 + len(labels) // _ROWS_AT_A_TIME)
    has_code = sparse.vstack(
        [_has_category(seqsets, labels.take(rows), category_of_token, len(names)) for rows in parts]
    ).tocsc()
    commonest = np.argsort(-has_code.getnnz(axis=0), kind="stable")[:_MOST_TRIED]
    diagnoses = [(names[place], has_code[:, [place]].toarray()[:, 0]) for place in commonest]
    dictionary = CodeNames.read(layout.code_names)
    visible_diagnoses = [
        (diagnosis_name(name, dictionary), has)
        for name, has in diagnoses
        if has.any() and not withheld_in_cells(labels.subject_id, cells, has.astype(object))
    ]
    return visible_diagnoses[:MOST]


def diagnosis_name(category: str, names: CodeNames) -> str:
    """Return how a category is called on the page: its code and, where a dictionary has it, its name."""
    name = names.name("icd10cm", category)
    return f"{category} {shorten(name, _LONGEST)}" if name else category


def _categories(tokens: pa.Table) -> tuple[list[str], np.ndarray]:
    """Return the categories, the first three characters of a code, and that of each token, -1 without one."""
    codes = [
        code[:3] if kind == "DX" and code else None
        for kind, code in zip(tokens["kind"].to_pylist(), tokens["code"].to_pylist(), strict=True)
    ]
    names = sorted({code for code in codes if code})
    place = {name: k for k, name in enumerate(names)}
    return names, np.array([place.get(code or "", -1) for code in codes])


def _has_category(
    seqsets: SeqSets, labels: Labels, category_of_token: np.ndarray, categories: int
) -> sparse.csr_matrix:
    """Return bool [rows, categories]: whether a row's history has a code of the category."""
    rows = labels.subject_id, labels.encounter_id, labels.predict_at_us
    selection = select(seqsets, labels.task.features, *rows)
    is_diagnosis = selection.values(seqsets.kinds) == KINDS.index("DX")
    category = category_of_token[selection.values(seqsets.tokens)[is_diagnosis]]
    row = selection.example_of_pair[selection.pair_of_event][is_diagnosis]
    pairs = np.unique(np.stack([row, category])[:, category >= 0], axis=1)
    ones = np.ones(pairs.shape[1], dtype=bool)
    return sparse.csr_matrix((ones, (pairs[0], pairs[1])), shape=(len(labels), categories))

"""The two splits of the patients with small counts withheld: sizes and overlaps."""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import product
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from schemas.suppress import WITHHELD, is_small, suppress_parts, suppress_share
from schemas.tables.events import SPLITS

OVERLAPS = (
    ("train", "test"),
    ("val", "test"),
    ("train", "val"),
)  # split of the pretraining, split of the tasks


class Overlap(BaseModel):
    """Patients in both a split of the pretraining and a split of the tasks, as text for display."""

    model_config = ConfigDict(frozen=True)

    patients: str
    share: str


class SuppressedSplits(BaseModel):
    """Patients per split of the tasks and of the pretraining, and the overlaps by `<pretraining>_in_<task>`."""

    model_config = ConfigDict(frozen=True)

    task: dict[str, str]
    pretrain: dict[str, str]
    overlap: dict[str, Overlap]


def count_overlap(subjects: pa.Table, pretrain: str, task: str) -> int:
    """Return the number of patients in both a split of the pretraining and a split of the tasks."""
    in_both = pc.and_(pc.equal(subjects["pretrain_split"], pretrain), pc.equal(subjects["split"], task))
    return pc.sum(in_both).as_py() or 0


def count_off_hash(subjects: pa.Table, column: str, low: float, high: float) -> int:
    """Return the number of patients in a split other than that of their hash.

    The rule is implemented here a second time, independently of the code that splits: BLAKE2b-64 of `42:<subject_id>`
    over 2^64, train below `low`, val below `high`, else test (spec: Split).
    """
    bounds = [round(bound * 2**64) for bound in (low, high)]
    digests = (
        int(blake2b(b"42:%d" % subject, digest_size=8).hexdigest(), 16)
        for subject in subjects["subject_id"].to_pylist()
    )
    by_hash = [SPLITS[sum(digest >= bound for bound in bounds)] for digest in digests]
    return pc.sum(pc.not_equal(subjects[column], pa.array(by_hash, pa.string()))).as_py() or 0


def suppress_splits(
    subjects: pa.Table, beside: Mapping[str, int] = MappingProxyType({}), beside_all: Sequence[int] = ()
) -> SuppressedSplits:
    """Return the splits of subjects/1 with small counts withheld.

    The two splits form a table of nine counts with the sizes as margins: if one count is small, the sizes of the
    pretraining splits and the overlaps are withheld, except for empty overlaps. If few patients of a split, or of all,
    are not in a cohort on the same page, every number that could be subtracted is withheld.

    Args:
        beside: the patients of a cohort by split of the tasks.
        beside_all: numbers of patients without regard to the split, such as those left after each step of a cohort.
    """
    pairs = product(SPLITS, SPLITS)
    cells = {(pretrain, task): count_overlap(subjects, pretrain, task) for pretrain, task in pairs}
    sizes = {name: _size(subjects, "split", name) for name in SPLITS}
    pretrain_sizes = {name: _size(subjects, "pretrain_split", name) for name in SPLITS}
    is_hidden = any(map(is_small, cells.values()))
    rests = [sizes[name] - patients for name, patients in beside.items()]
    rests += [len(subjects) - patients for patients in beside_all]
    if any(map(is_small, rests)):
        withheld = dict.fromkeys(SPLITS, WITHHELD)
        names = [f"{pretrain}_in_{task}" for pretrain, task in OVERLAPS]
        withheld_overlap = Overlap(patients=WITHHELD, share="–")
        return SuppressedSplits(
            task=withheld, pretrain=withheld, overlap=dict.fromkeys(names, withheld_overlap)
        )
    return SuppressedSplits(
        task=suppress_parts(sizes),
        pretrain=dict.fromkeys(SPLITS, WITHHELD) if is_hidden else suppress_parts(pretrain_sizes),
        overlap={
            f"{pretrain}_in_{task}": _overlap(cells[pretrain, task], sizes[task], is_hidden)
            for pretrain, task in OVERLAPS
        },
    )


def _overlap(patients: int, of: int, is_hidden: bool) -> Overlap:
    if is_hidden and patients:
        return Overlap(patients=WITHHELD, share="–")
    return Overlap(patients=f"{patients:,}", share=suppress_share(patients, of))


def _size(subjects: pa.Table, column: str, name: str) -> int:
    return pc.sum(pc.equal(subjects[column], name)).as_py() or 0

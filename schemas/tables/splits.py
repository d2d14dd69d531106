"""The two splits of the subjects, as they may be shown: sizes, and where one overlaps the other."""

from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from schemas.suppress import WITHHELD, is_small, shown_parts, shown_share
from schemas.tables.events import SPLITS

OVERLAPS = (("train", "test"), ("val", "test"), ("train", "val"))  # of the pretraining, in the tasks'


class Overlap(BaseModel):
    """Patients in a split of the pretraining and in a split of the tasks; `patients` and `share` as text to show."""

    model_config = ConfigDict(frozen=True)

    patients: str
    share: str


class ShownSplits(BaseModel):
    """Patients per split of the tasks and of the pretraining, and the overlaps by `<pretraining>_in_<task>`."""

    model_config = ConfigDict(frozen=True)

    task: dict[str, str]
    pretrain: dict[str, str]
    overlap: dict[str, Overlap]


def count_overlap(subjects: pa.Table, pretrain: str, task: str) -> int:
    """Return how many subjects are in one split of the pretraining and in one of the tasks."""
    in_both = pc.and_(pc.equal(subjects["pretrain_split"], pretrain), pc.equal(subjects["split"], task))
    return pc.sum(in_both).as_py() or 0


def count_off_hash(subjects: pa.Table, column: str, low: float, high: float) -> int:
    """Return how many subjects are in another split than their hash puts them in.

    The rule is written here a second time, apart from the code that splits: BLAKE2b-64 of `42:<subject_id>` over 2^64,
    train below `low`, val below `high`, test from there (spec: Split).
    """
    bounds = [round(bound * 2**64) for bound in (low, high)]
    digests = (
        int(blake2b(b"42:%d" % subject, digest_size=8).hexdigest(), 16)
        for subject in subjects["subject_id"].to_pylist()
    )
    by_hash = [SPLITS[sum(digest >= bound for bound in bounds)] for digest in digests]
    return pc.sum(pc.not_equal(subjects[column], pa.array(by_hash, pa.string()))).as_py() or 0


def shown_splits(subjects: pa.Table) -> ShownSplits:
    """Return the splits of subjects/1 with small counts withheld.

    Who is in which split of both is a table of nine counts with the sizes as margins: where one of them is small, the
    sizes of the pretraining's and the overlaps are withheld, but for an overlap of nobody.
    """
    cells = {(one, other): count_overlap(subjects, one, other) for one in SPLITS for other in SPLITS}
    sizes = {name: _size(subjects, "split", name) for name in SPLITS}
    pretrain_sizes = {name: _size(subjects, "pretrain_split", name) for name in SPLITS}
    is_hidden = any(map(is_small, cells.values()))
    return ShownSplits(
        task=shown_parts(sizes),
        pretrain=dict.fromkeys(SPLITS, WITHHELD) if is_hidden else shown_parts(pretrain_sizes),
        overlap={
            f"{pretrain}_in_{task}": _overlap(cells[pretrain, task], sizes[task], is_hidden)
            for pretrain, task in OVERLAPS
        },
    )


def _overlap(patients: int, of: int, is_hidden: bool) -> Overlap:
    if is_hidden and patients:
        return Overlap(patients=WITHHELD, share="–")
    return Overlap(patients=f"{patients:,}", share=shown_share(patients, of))


def _size(subjects: pa.Table, column: str, name: str) -> int:
    return pc.sum(pc.equal(subjects[column], name)).as_py() or 0

"""The two splits of the subjects, as they may be shown: sizes, and where one overlaps the other."""

from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict

from schemas.events import SPLITS
from schemas.suppress import WITHHELD, is_small, shown_count, shown_parts, shown_share

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
    both = pc.and_(pc.equal(subjects["pretrain_split"], pretrain), pc.equal(subjects["split"], task))
    return pc.sum(both).as_py() or 0


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

    Both splits cut the same order of patients, so the sizes of both give the overlaps: where one of these is small, the
    sizes of the pretraining's are withheld.
    """
    sizes = {name: _size(subjects, "split", name) for name in SPLITS}
    overlaps = {pair: count_overlap(subjects, *pair) for pair in OVERLAPS}
    small = any(is_small(count) or is_small(sizes[task] - count) for (_, task), count in overlaps.items())
    pretrain_sizes = {name: _size(subjects, "pretrain_split", name) for name in SPLITS}
    return ShownSplits(
        task=shown_parts(sizes),
        pretrain=dict.fromkeys(SPLITS, WITHHELD) if small else shown_parts(pretrain_sizes),
        overlap={
            f"{pretrain}_in_{task}": Overlap(
                patients=shown_count(count, sizes[task]), share=shown_share(count, sizes[task])
            )
            for (pretrain, task), count in overlaps.items()
        },
    )


def _size(subjects: pa.Table, column: str, name: str) -> int:
    return pc.sum(pc.equal(subjects[column], name)).as_py() or 0

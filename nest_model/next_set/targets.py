"""The questions of next-set prediction: the subjects, their history, and the tokens of their next set."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets, expand_ranges
from schemas.errors import InputError
from schemas.tables.seqset import TARGET_HIDDEN
from schemas.tables.vocab import SPECIALS, UNK

HELD_OUT_FILES = tuple(f"held_out{suffix}" for suffix in (".csv.gz", ".csv", ".parquet"))
_HELD_OUT_COLUMNS = ("order_id", "product_id")


@dataclass(frozen=True)
class NextSets:
    """One question per subject: `history` ends with the set to predict, which is empty there.

    The truth is every distinct token of that set. Each product without a token gets a number from the vocabulary's
    size upwards, which no model can predict and which counts as missed.
    """

    history: Selection
    subject_id: np.ndarray  # i64 [subjects]
    truth_subject: np.ndarray  # i64 [truths], ascending, index into `subject_id`
    truth_token: np.ndarray  # i64 [truths]
    left_out: dict[str, int]  # reason -> subjects

    def __len__(self) -> int:
        return len(self.subject_id)


def last_visible(seqsets: SeqSets, subject_rows: np.ndarray, vocab_size: int) -> NextSets:
    """Ask for each subject's last non-empty set, given the sets before it."""
    target_sets, has_visible = _last(np.diff(seqsets.event_offsets) > 0, seqsets, subject_rows)
    counts = np.diff(seqsets.event_offsets)[target_sets]
    tokens = seqsets.tokens[expand_ranges(seqsets.event_offsets[target_sets], counts)].astype(np.int64)
    truth = _distinct(np.repeat(np.arange(len(target_sets)), counts), tokens, vocab_size)
    return _with_history(
        seqsets, target_sets, *truth, {"no_visible_set": int(np.count_nonzero(~has_visible))}
    )


def held_out(
    seqsets: SeqSets, subject_rows: np.ndarray, folder: Path, vocab: pa.Table, vocab_size: int
) -> NextSets:
    """Ask for each subject's hidden set, whose products are only in `held_out` in `folder`.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    target_sets, has_hidden = _last(seqsets.flags & TARGET_HIDDEN != 0, seqsets, subject_rows)
    order, product = read_held_out(folder)
    by_encounter = np.argsort(seqsets.encounter_id[target_sets])
    sorted_ids = seqsets.encounter_id[target_sets][by_encounter]
    place = np.minimum(np.searchsorted(sorted_ids, order), max(len(sorted_ids) - 1, 0))
    is_match = sorted_ids[place] == order if len(sorted_ids) else np.zeros(len(order), dtype=bool)
    subject, token = _distinct(by_encounter[place[is_match]], token_of(product[is_match], vocab), vocab_size)
    has_truth = np.isin(np.arange(len(target_sets)), subject)
    left_out = {
        "no_hidden_set": int(np.count_nonzero(~has_hidden)),
        "not_in_held_out": int(np.count_nonzero(~has_truth)),
    }
    return _with_history(
        seqsets, target_sets[has_truth], (np.cumsum(has_truth) - 1)[subject], token, left_out
    )


def read_held_out(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return order_id and product_id, i64 [rows], of `held_out.csv.gz`, `.csv` or `.parquet`.

    Raises:
        InputError: there is no such file, or it cannot be read; the message quotes no value.
    """
    path = next((folder / name for name in HELD_OUT_FILES if (folder / name).exists()), None)
    if path is None:
        raise InputError(
            f"held_out: no such file in {folder} ({', '.join(HELD_OUT_FILES)}); the published files do not include it. "
            "Set NEST_INSTACART_TARGET=last_visible."
        )
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=list(_HELD_OUT_COLUMNS)).cast(_HELD_OUT_TYPES)
        else:
            options = pa.csv.ConvertOptions(column_types=_HELD_OUT_TYPES, include_columns=_HELD_OUT_COLUMNS)
            table = pa.csv.read_csv(path, convert_options=options)
    except (pa.ArrowException, OSError, EOFError):  # Arrow's own message quotes the row
        raise InputError(
            f"{path.name}: cannot be read as integer columns {', '.join(_HELD_OUT_COLUMNS)} ({path}). "
            "Copy the file again."
        ) from None
    empty = sum(table[name].null_count for name in _HELD_OUT_COLUMNS)
    if empty:
        raise InputError(
            f"{path.name}: {empty:,} of {2 * len(table):,} ids are missing ({path}). Correct the file."
        )
    order, product = (table[name].to_numpy() for name in _HELD_OUT_COLUMNS)
    return order, product


_HELD_OUT_TYPES = pa.schema([(name, pa.int64()) for name in _HELD_OUT_COLUMNS])


def token_of(products: np.ndarray, vocab: pa.Table) -> np.ndarray:
    """Return the token id of each product id, [UNK] for a product without one."""
    items = vocab.filter(pc.and_(pc.equal(vocab["kind"], "ITEM"), pc.is_valid(vocab["token_id"])))
    codes = items["code"].cast(pa.int64()).to_numpy()
    order = np.argsort(codes)
    place = np.minimum(np.searchsorted(codes[order], products), max(len(codes) - 1, 0))
    if not len(codes):
        return np.full(len(products), UNK, dtype=np.int64)
    ids = items["token_id"].to_numpy()[order].astype(np.int64)
    return np.where(codes[order][place] == products, ids[place], UNK)


def _last(
    is_candidate: np.ndarray, seqsets: SeqSets, subject_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the last candidate set of each subject that has one, and a mask of those subjects."""
    position = np.where(is_candidate, np.arange(len(is_candidate)), -1)
    latest = np.maximum.reduceat(position, seqsets.subject_offsets[:-1])[subject_rows]
    return latest[latest >= 0], latest >= 0


def _distinct(subject: np.ndarray, token: np.ndarray, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each subject's distinct tokens in ascending order; every product without a token stays distinct."""
    unknown = token < len(SPECIALS)
    token_or_number = np.where(unknown, vocab_size + np.cumsum(unknown), token)
    pairs = np.unique(np.stack([subject, token_or_number]), axis=1)
    return pairs[0], pairs[1]


def _with_history(
    seqsets: SeqSets,
    target_sets: np.ndarray,
    subject: np.ndarray,
    token: np.ndarray,
    left_out: dict[str, int],
) -> NextSets:
    """Return the questions with the earlier sets as history; subjects without earlier events are left out."""
    first = seqsets.first_set[target_sets]
    has_past = seqsets.event_offsets[target_sets] > seqsets.event_offsets[first]
    keep = has_past[subject]
    target_sets, first, subject, token = (
        target_sets[has_past],
        first[has_past],
        (np.cumsum(has_past) - 1)[subject[keep]],
        token[keep],
    )
    history = Selection.of_sets(seqsets, first, target_sets)
    history.event_counts[history.set_offsets[1:] - 1] = 0
    left_out = left_out | {"nothing_before": int(np.count_nonzero(~has_past))}
    return NextSets(history, seqsets.subject_id[target_sets], subject, token, left_out)

"""Whose next set is asked for, what is known of them before it, and what it held."""

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
    """One question per subject: `history` ends with the set asked for, which holds nothing there.

    The truth is every distinct token of that set; of a product without a token only that there was one: each has a
    number from the vocabulary's size on, which nobody can guess and which counts as missed.
    """

    history: Selection
    subject_id: np.ndarray  # i64 [subjects]
    truth_subject: np.ndarray  # i64 [truths], rising, place in the above
    truth_token: np.ndarray  # i64 [truths]
    left_out: dict[str, int]  # reason -> subjects

    def __len__(self) -> int:
        return len(self.subject_id)


def last_visible(seqsets: SeqSets, subject_rows: np.ndarray, vocab_size: int) -> NextSets:
    """Ask for the last set of each subject that holds something, from the sets before it."""
    asked, holds = _last(np.diff(seqsets.event_offsets) > 0, seqsets, subject_rows)
    counts = np.diff(seqsets.event_offsets)[asked]
    tokens = seqsets.tokens[expand_ranges(seqsets.event_offsets[asked], counts)].astype(np.int64)
    truth = _distinct(np.repeat(np.arange(len(asked)), counts), tokens, vocab_size)
    return _with_history(seqsets, asked, *truth, {"no_visible_set": int(np.count_nonzero(~holds))})


def held_out(
    seqsets: SeqSets, subject_rows: np.ndarray, folder: Path, vocab: pa.Table, vocab_size: int
) -> NextSets:
    """Ask for the hidden set of each subject, whose products only `held_out` in `folder` knows.

    Raises:
        InputError: there is no such file, or it cannot be read.
    """
    asked, has_hidden = _last(seqsets.flags & TARGET_HIDDEN != 0, seqsets, subject_rows)
    order, product = read_held_out(folder)
    by_encounter = np.argsort(seqsets.encounter_id[asked])
    sorted_ids = seqsets.encounter_id[asked][by_encounter]
    place = np.minimum(np.searchsorted(sorted_ids, order), max(len(sorted_ids) - 1, 0))
    known = sorted_ids[place] == order if len(sorted_ids) else np.zeros(len(order), dtype=bool)
    subject, token = _distinct(by_encounter[place[known]], token_of(product[known], vocab), vocab_size)
    told = np.isin(np.arange(len(asked)), subject)
    left_out = {
        "no_hidden_set": int(np.count_nonzero(~has_hidden)),
        "not_in_held_out": int(np.count_nonzero(~told)),
    }
    return _with_history(seqsets, asked[told], (np.cumsum(told) - 1)[subject], token, left_out)


def read_held_out(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return order_id and product_id, i64 [rows], of `held_out.csv.gz`, `.csv` or `.parquet`.

    Raises:
        InputError: there is none, or it cannot be read; no value is quoted.
    """
    path = next((folder / name for name in HELD_OUT_FILES if (folder / name).exists()), None)
    if path is None:
        raise InputError(
            f"held_out: no such file in {folder} ({', '.join(HELD_OUT_FILES)}); the published files have none. "
            "Set NEST_INSTACART_TARGET=last_visible."
        )
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path, columns=list(_HELD_OUT_COLUMNS)).cast(_HELD_OUT_TYPES)
        else:
            wanted = pa.csv.ConvertOptions(column_types=_HELD_OUT_TYPES, include_columns=_HELD_OUT_COLUMNS)
            table = pa.csv.read_csv(path, convert_options=wanted)
    except (pa.ArrowException, OSError, EOFError):  # Arrow's own message quotes the row
        raise InputError(
            f"{path.name}: cannot be read as {', '.join(_HELD_OUT_COLUMNS)} in whole numbers ({path}). "
            "Copy the file again."
        ) from None
    empty = sum(table[name].null_count for name in _HELD_OUT_COLUMNS)
    if empty:
        raise InputError(
            f"{path.name}: {empty:,} of {2 * len(table):,} ids are missing ({path}). Mend the file."
        )
    order, product = (table[name].to_numpy() for name in _HELD_OUT_COLUMNS)
    return order, product


_HELD_OUT_TYPES = pa.schema([(name, pa.int64()) for name in _HELD_OUT_COLUMNS])


def token_of(products: np.ndarray, vocab: pa.Table) -> np.ndarray:
    """Return the token id of each product id, [UNK] where it has none."""
    items = vocab.filter(pc.and_(pc.equal(vocab["kind"], "ITEM"), pc.is_valid(vocab["token_id"])))
    codes = items["code"].cast(pa.int64()).to_numpy()
    order = np.argsort(codes)
    place = np.minimum(np.searchsorted(codes[order], products), max(len(codes) - 1, 0))
    if not len(codes):
        return np.full(len(products), UNK, dtype=np.int64)
    ids = items["token_id"].to_numpy()[order].astype(np.int64)
    return np.where(codes[order][place] == products, ids[place], UNK)


def _last(
    of_interest: np.ndarray, seqsets: SeqSets, subject_rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the last set of interest of each subject that has one, and which of the subjects do."""
    position = np.where(of_interest, np.arange(len(of_interest)), -1)
    latest = np.maximum.reduceat(position, seqsets.subject_offsets[:-1])[subject_rows]
    return latest[latest >= 0], latest >= 0


def _distinct(subject: np.ndarray, token: np.ndarray, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return each token of a subject once, rising; what has no token stays one of its own."""
    unknown = token < len(SPECIALS)
    numbered = np.where(unknown, vocab_size + np.cumsum(unknown), token)
    pairs = np.unique(np.stack([subject, numbered]), axis=1)
    return pairs[0], pairs[1]


def _with_history(
    seqsets: SeqSets, asked: np.ndarray, subject: np.ndarray, token: np.ndarray, left_out: dict[str, int]
) -> NextSets:
    """Put the sets before it to each set asked for; a subject of whom nothing is known before is left out."""
    first = seqsets.first_set[asked]
    has_past = seqsets.event_offsets[asked] > seqsets.event_offsets[first]
    keep = has_past[subject]
    asked, first, subject, token = (
        asked[has_past],
        first[has_past],
        (np.cumsum(has_past) - 1)[subject[keep]],
        token[keep],
    )
    known = Selection.of_sets(seqsets, first, asked)
    known.event_counts[known.set_offsets[1:] - 1] = 0
    left_out = left_out | {"nothing_before": int(np.count_nonzero(~has_past))}
    return NextSets(known, seqsets.subject_id[asked], subject, token, left_out)

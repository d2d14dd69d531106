"""Stream SeqSet shards into flat columns in memory-mapped files, so that memory does not grow with the data.

On Linux the files have no name, so nothing of them remains however the process ends. They lie beside the shards, whose
disk already holds data of this size and privacy; if that folder is not writable, in the temporary folder.
"""

import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from schemas.cards import ShardCard
from schemas.contract import contract_name
from schemas.errors import ContractError, InputError
from schemas.io.hashing import file_sha256
from schemas.io.seal import unsealed
from schemas.io.verify import require_all, verified
from schemas.tables.seqset import SEQSET, SEQSET_1

NO_TIME = np.iinfo(np.int64).min  # an unknown end
NO_TYPE = -1
"""The admission type of a set without one."""
_LISTS = [field.name for field in SEQSET if pa.types.is_list(field.type)]
_SETS_AT_A_TIME = 1_024


@dataclass(frozen=True)
class Shards:
    """All shards of a folder, concatenated."""

    # lists flattened, with `event_offsets`; `admission_type` is a place in `admission_types`, or NO_TYPE
    columns: dict[str, np.ndarray]
    admission_types: tuple[str, ...]
    vocab_sha256: str
    names: tuple[str, ...]  # file names, in order
    offsets: tuple[int, ...]  # [shards + 1] in sets


def read_shards(folder: Path) -> Shards:
    """Read a folder's shards into memory-mapped columns.

    Raises:
        ContractError: there is no shard or no set; a shard has another contract, has no card or does not match it; the
            cards name several vocabularies; or the lists of a set differ in length.
        InputError: the disk has no room for the columns.
    """
    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise ContractError(f"seqset/2: no shard in {folder}; materialize the asset that writes it first.")
    require_all(folder, files)
    cards = [_card(file) for file in files]
    vocab_sha256 = _one_vocabulary(folder, cards)
    scratch = folder if os.access(folder, os.W_OK) else Path(tempfile.gettempdir())
    try:
        columns, offsets = _Columns(scratch), [0]
        for file, card in zip(files, cards, strict=True):
            _refuse_changed_shard(file, card)
            for batch in _batches(file):
                columns.append(batch)
            offsets.append(columns.sets)
        arrays = columns.mapped()
    except OSError as error:
        raise InputError(
            f"{scratch}: the shards cannot be unpacked there ({error.strerror or type(error).__name__}); they "
            "take about 30 bytes per token while in use. Free disk space and run again."
        ) from None
    if columns.uneven:
        raise ContractError(
            f"seqset/2: {columns.uneven:,} lists differ in length from `tokens`; write the shards again."
        )
    if not len(arrays["subject_id"]):
        raise ContractError(f"seqset/2: no set in {folder}; check what the earlier steps dropped.")
    return Shards(
        arrays, columns.admission_types, vocab_sha256, tuple(file.name for file in files), tuple(offsets)
    )


class _Columns:
    """The flat columns while they are written."""

    def __init__(self, folder: Path) -> None:
        self._columns = {field.name: _Column(folder, _dtype(field.type)) for field in SEQSET}
        self._columns["event_offsets"] = _Column(folder, np.dtype(np.int64))
        self._columns["event_offsets"].append(np.zeros(1))
        self._type_numbers: dict[str, int] = {}
        self._events = 0
        self.sets = 0
        self.uneven = 0

    def append(self, sets: pa.RecordBatch) -> None:
        """Append some sets to every column."""
        lengths = {name: np.diff(sets[name].offsets.to_numpy()) for name in _LISTS}
        self.uneven += sum(int(np.count_nonzero(lengths[name] != lengths["tokens"])) for name in _LISTS)
        for name in SEQSET.names:
            is_type = name == "admission_type"
            self._columns[name].append(self._number_types(sets) if is_type else _numpy(sets[name]))
        ends = self._events + np.cumsum(lengths["tokens"], dtype=np.int64)
        self._columns["event_offsets"].append(ends)
        self._events = int(ends[-1]) if len(ends) else self._events
        self.sets += len(sets)

    @property
    def admission_types(self) -> tuple[str, ...]:
        """The names of the admission types, by their numbers."""
        return tuple(self._type_numbers)

    def mapped(self) -> dict[str, np.ndarray]:
        """Return every column, read-only."""
        return {name: column.mapped() for name, column in self._columns.items()}

    def _number_types(self, sets: pa.RecordBatch) -> np.ndarray:
        """Return the number of each set's admission type, in the order in which their names first occur."""
        if "admission_type" not in sets.schema.names:  # of shards made before they were kept
            return np.full(len(sets), NO_TYPE)
        types = sets["admission_type"].dictionary_encode()
        names = types.dictionary.to_pylist()
        numbers = [self._type_numbers.setdefault(name, len(self._type_numbers)) for name in names]
        places = types.indices.fill_null(len(names)).to_numpy()
        type_numbers: np.ndarray = np.array([*numbers, NO_TYPE])[places]
        return type_numbers


class _Column:
    """One flat column in an anonymous temporary file; a full disk fails in write(), not as SIGBUS on the mapping."""

    def __init__(self, folder: Path, dtype: np.dtype) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed when mapped
        self._dtype = dtype

    def append(self, values: np.ndarray) -> None:
        self._file.write(np.ascontiguousarray(values, self._dtype).view(np.uint8).data)

    def mapped(self) -> np.ndarray:
        with self._file as file:
            if not file.tell():
                return np.empty(0, self._dtype)  # an empty file cannot be mapped
            file.flush()
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), self._dtype)


def _dtype(kind: pa.DataType) -> np.dtype:
    """Return the NumPy type of a column's values; times are whole microseconds."""
    values = kind.value_type if pa.types.is_list(kind) else kind
    if pa.types.is_string(values):
        return np.dtype(np.int32)  # the number of a name
    return np.dtype(np.int64 if pa.types.is_timestamp(values) else values.to_pandas_dtype())


def _numpy(column: pa.Array) -> np.ndarray:
    values = column.flatten() if pa.types.is_list(column.type) else column
    if pa.types.is_timestamp(values.type):
        values = values.view(pa.int64())
    if values.null_count:
        values = values.fill_null(NO_TIME)
    array: np.ndarray = values.to_numpy(zero_copy_only=True)
    return array


def _batches(file: Path) -> Iterator[pa.RecordBatch]:
    """Yield one shard's sets in batches, after checking its contract."""
    columns = {contract_name(schema): schema.names for schema in (SEQSET, SEQSET_1)}
    try:
        with pq.ParquetFile(file, memory_map=True) as shard:
            contract = (shard.schema_arrow.metadata or {}).get(b"contract", b"none").decode()
            if contract not in columns:
                raise ContractError(
                    f"{file}: contract is {contract}, expected {contract_name(SEQSET)}; materialize the shards again."
                )
            if missing := set(columns[contract]) - set(shard.schema_arrow.names):
                raise ContractError(
                    f"{file}: no column {', '.join(sorted(missing))}; materialize the shards again."
                )
            # more threads would not be faster, and resident memory would grow with the number of shards
            yield from shard.iter_batches(_SETS_AT_A_TIME, columns=columns[contract], use_threads=False)
    except (pa.ArrowInvalid, OSError):
        raise ContractError(f"{file}: not a readable Parquet file; materialize the shards again.") from None


def _refuse_changed_shard(file: Path, card: ShardCard) -> None:
    """Raise ContractError if a shard does not match its own card and the card of its step."""
    if card.file != file.name or file_sha256(verified(file)) != card.file_sha256:
        raise ContractError(
            f"{file}: does not match its card: damaged, edited or swapped since; materialize the shards again."
        )


def _one_vocabulary(folder: Path, cards: list[ShardCard]) -> str:
    """Return the vocabulary hash that all shard cards agree on."""
    hashes = {card.vocab_sha256 for card in cards}
    if len(hashes) > 1:
        raise ContractError(
            f"{folder}: its shards were written with {len(hashes)} vocabularies; "
            "materialize the shards again."
        )
    return hashes.pop()


def _card(file: Path) -> ShardCard:
    path = file.with_suffix(".card.json")
    try:
        return ShardCard.model_validate_json(unsealed(verified(path).read_text()))
    except FileNotFoundError:
        raise ContractError(f"{file}: no card {path.name} beside it; materialize the shards again.") from None
    except ValueError:  # pydantic's too
        raise ContractError(f"{path}: not a shard card; materialize the shards again.") from None

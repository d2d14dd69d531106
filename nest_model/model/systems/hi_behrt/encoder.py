"""Hi-BEHRT (Li et al. 2021, arXiv 2106.11360): a patient's rows in overlapping windows, and an encoder over these.

An extractor reads each window by itself and leaves one vector, an aggregator reads the vectors of a patient's windows.
Each set is its events followed by [SEP]: NEST's [CLS] row moves to the end of its set, so there are as many rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor, nn

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.data.packed import offsets as offsets_of
from nest_model.model.encoder import Encoder, ReadRows
from nest_model.model.flat import numbers_within, run_blocks
from nest_model.model.layers import PostNormBlock, Time2Vec, initialise, sinusoids
from schemas.tables.vocab import SEP

WINDOW, STRIDE = 50, 30  # in rows: a window's length, and how far the next one begins behind it
TIME_WIDTH = 64  # of the days' Time2Vec


@dataclass(frozen=True)
class Windows:
    """The windows of a batch's patients, cut from the rows of all sets with [SEP] last.

    Row `r` of the batch, an event, is row `r - 1` here; a [CLS] row is the last row of its set, the [SEP].
    """

    rows: Tensor  # i64 [window rows], the row of each, of all patients one after another
    offsets: Tensor  # i64 [windows + 1], in window rows
    subject_offsets: Tensor  # i64 [subjects + 1], in windows

    @classmethod
    def of(cls, batch: PackedBatch) -> Self:
        """Cut each patient's rows into windows; the last one may be short."""
        ends = batch.set_offsets[batch.subject_offsets]
        windows_per_subject = num_windows(ends.diff())
        subject_offsets = offsets_of(windows_per_subject)
        first = STRIDE * numbers_within(subject_offsets) + ends[:-1].repeat_interleave(windows_per_subject)
        lengths = (ends[1:].repeat_interleave(windows_per_subject) - first).clamp(max=WINDOW)
        offsets = offsets_of(lengths)
        return cls(numbers_within(offsets) + first.repeat_interleave(lengths), offsets, subject_offsets)

    def window_of_row(self, batch: PackedBatch, rows: Tensor) -> Tensor:
        """Return the first window with each row of the batch: i64 [any] → i64 [any].

        For a [CLS] row that is the window in which its set ends.
        """
        set_of_row = batch.set_of_row.index_select(0, rows)
        is_cls = rows == batch.cls_rows[set_of_row]
        place = torch.where(is_cls, batch.set_offsets[set_of_row + 1] - 1, rows - 1)
        ends = batch.set_offsets[batch.subject_offsets]
        subject = torch.searchsorted(ends, place, right=True) - 1
        return self.subject_offsets[subject] + num_windows(place - ends[subject] + 1) - 1


def num_windows(rows: Tensor) -> Tensor:
    """Return how many windows cover so many rows of one patient: i64 [any] → i64 [any]."""
    return (rows - WINDOW + STRIDE - 1).clamp(min=0) // STRIDE + 1


class HiBehrt(Encoder):
    """Extractor and aggregator, of as many blocks as the config's layers and one more, with BYOL's two heads."""

    system = "hi_behrt"
    depends_on = frozenset({"order", "days"})  # of a window the first row is read
    unused_in_tasks = ("projector.", "predictor.")

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        d, narrow = config.d_model, config.d_model // 4
        self.segment = nn.Embedding(2, d)  # of sets with an even and an odd number
        self.time2vec = Time2Vec(TIME_WIDTH, config.time2vec_scale)
        self.days = nn.Linear(TIME_WIDTH, d)
        self.norm = nn.LayerNorm(d)
        self.extractor = _blocks(config, config.layers)
        self.pool = nn.Linear(d, d)
        self.aggregator = _blocks(config, config.layers + 1)
        self.projector, self.predictor = _head(d, d, narrow), _head(narrow, d, narrow)
        initialise(self, self.units())
        for table in (self.embedding, self.segment):
            nn.init.normal_(table.weight, std=d**-0.5)

    @classmethod
    def num_parameters(cls, config: ModelConfig) -> int:
        """Return the number of parameters of a model of this shape, BYOL's heads included, without building it."""
        d, d_ff, narrow = config.d_model, config.d_ff, config.d_model // 4
        block = 4 * d * d + 2 * d * d_ff + 9 * d + d_ff
        inputs = config.vocab_size * d + 2 * d + 2 * TIME_WIDTH + (TIME_WIDTH + 1) * d + 2 * d
        heads = sum(d * (width + 3) + (d + 1) * narrow for width in (d, narrow))
        return inputs + d * d + d + (2 * config.layers + 1) * block + heads

    def read(self, batch: PackedBatch, rows: Tensor) -> ReadRows:
        """Return for each row, i64 [any], the state of the first window with it; see `Windows.window_of_row`."""
        windows = Windows.of(batch)
        vectors = self.window_vectors(batch, windows)
        return self.aggregate(vectors, windows.subject_offsets, windows.window_of_row(batch, rows))

    def window_vectors(self, batch: PackedBatch, windows: Windows) -> Tensor:
        """Return what the extractor leaves of each window, tanh of a layer on its first row, [windows, d_model]."""
        rows = self.norm(self._embed(batch, windows))
        first = run_blocks(self.extractor, rows, windows.offsets, windows.offsets[:-1])
        vectors: Tensor = self.pool(first.hidden_states).tanh()
        return vectors

    def aggregate(self, vectors: Tensor, subject_offsets: Tensor, read: Tensor) -> ReadRows:
        """Return the aggregator's states of the windows to read, in rising order.

        Args:
            vectors: [windows, d_model]; a window is told its number, so that a hidden one has a place.
            subject_offsets: i64 [subjects + 1], in windows.
            read: i64 [any], windows.
        """
        numbers = numbers_within(subject_offsets)
        vectors = vectors + sinusoids(numbers, self.config.d_model, vectors.dtype)
        return run_blocks(self.aggregator, vectors, subject_offsets, read)

    def parts(self) -> dict[str, list[nn.Module]]:
        """Return the embeddings of tokens, of the sets' parity and of days, and the norm of their sum."""
        return {"embedding": [self.embedding, self.segment, self.time2vec, self.days, self.norm]}

    def units(self) -> Sequence[PostNormBlock]:
        """Return the blocks."""
        return [*self.extractor, *self.aggregator]

    def _embed(self, batch: PackedBatch, windows: Windows) -> Tensor:
        """Return each window row's token, set number in its window, set parity and days, summed."""
        set_of_row = batch.set_of_row
        set_of_window_row = set_of_row.index_select(0, windows.rows)
        first_set = set_of_window_row.index_select(0, windows.offsets[:-1])
        number = set_of_window_row - first_set.repeat_interleave(windows.offsets.diff())
        tokens = batch.tokens.roll(-1).index_fill(0, batch.set_offsets[1:] - 1, SEP)
        rows: Tensor = self.embedding(tokens.index_select(0, windows.rows))
        parity = self.segment(numbers_within(batch.subject_offsets) % 2)
        of_sets: Tensor = parity + self.days(self.time2vec(batch.days))
        d = self.config.d_model
        of_numbers = sinusoids(torch.arange(WINDOW, device=number.device), d, rows.dtype)
        rows = rows + d**-0.5 * of_numbers.index_select(0, number)  # as small as tokens are at first
        return rows + of_sets.index_select(0, set_of_window_row)


def _blocks(config: ModelConfig, number: int) -> Sequence[PostNormBlock]:
    blocks = nn.ModuleList(PostNormBlock(config.d_model, config.heads, config.d_ff) for _ in range(number))
    return cast("Sequence[PostNormBlock]", blocks)


def _head(width: int, inner: int, out: int) -> nn.Sequential:
    """Return a head of BYOL, Linear, norm, GELU, Linear; the norm is of a row, where Grill et al. norm a batch."""
    return nn.Sequential(nn.Linear(width, inner), nn.LayerNorm(inner), nn.GELU(), nn.Linear(inner, out))


ENCODER = HiBehrt

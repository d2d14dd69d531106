"""A pretrained NEST over baskets: products become tokens, and each history ends with a query set.

Systems speak of products and NEST of tokens; only this file knows both. A product below the vocabulary's minimum count
is read as [UNK]. The query set is a masked set in the place of the basket asked for, see query.py.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from lightning_fabric import Fabric
from torch import Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch, micro_batches
from nest_model.data.seqsets import expand_ranges
from nest_model.model import checkpoint
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.next_set.baskets import Baskets
from nest_model.next_set.query import with_queries
from nest_model.next_set.questions import Histories
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.tables.vocab import UNK, VOCAB, content_sha256

log = logging.getLogger("nest")

ROW_BUDGET = 16_384
UserVector = Literal["query", "last"]
NO_ITEM = -1


@dataclass(frozen=True)
class PackedHistories:
    """Histories as NEST reads them: each user's last baskets, then the query set."""

    batch: PackedBatch
    item_of_row: Tensor  # i64 [rows], place of the row's product; NO_ITEM in [CLS] and [MASK] rows

    @property
    def query_cls_rows(self) -> Tensor:
        """The [CLS] row of each user's query set, i64 [users]; its [MASK] row comes next."""
        return self.batch.cls_rows[self.batch.subject_offsets[1:] - 1]

    @property
    def user_of_row(self) -> Tensor:
        """The user of each row, i64 [rows]."""
        rows_of_user = self.batch.set_offsets[self.batch.subject_offsets].diff()
        return torch.repeat_interleave(rows_of_user)


@dataclass(frozen=True)
class HistoryCut:
    """The shares of all baskets, and of all their lines, that NEST's limits leave out."""

    baskets_share: float
    lines_share: float


@dataclass(frozen=True)
class QueryStates:
    """The encoder's output at the query sets, [users, d] each."""

    cls: Tensor
    mask: Tensor


class NestBackbone:
    """A pretrained NEST bound to a shop's products; the `Backbone` of backbone.py.

    Args:
        product_id: i64 [products], ascending; the places that `Baskets.items` point to.
        token_of_product: i64 [products], [UNK] for a product without a token.
        query_rows: of how many rows a query set stands for; None: the model's `max_set_rows`, as in its training.
        user_vector: what `user_vectors` returns: [CLS] of the query set or of the last basket.
    """

    def __init__(
        self,
        model: NestModel,
        product_id: np.ndarray,
        token_of_product: np.ndarray,
        fabric: Fabric,
        *,
        query_rows: int | None = None,
        user_vector: UserVector = "query",
    ) -> None:
        self.model = model.to(fabric.device).eval()
        self.fabric, self.product_id = fabric, product_id
        self.token_of_product = torch.from_numpy(token_of_product)
        self._query_rows = query_rows or model.config.max_set_rows
        self._user_vector: UserVector = user_vector

    @classmethod
    def load(
        cls,
        folder: Path,
        vocab: Path,
        product_id: np.ndarray,
        fabric: Fabric,
        *,
        query_rows: int | None = None,
        user_vector: UserVector = "query",
    ) -> Self:
        """Load a pretrained model and its vocabulary.

        Raises:
            NestError: the model is none that can be asked for a next basket, or it reads another vocabulary.
        """
        words = read_table(vocab, VOCAB)
        sha256 = content_sha256(words)
        if checkpoint.read_card(folder).vocab_sha256 != sha256:
            raise NestError(
                f"{folder}: the model reads another vocabulary than {vocab}; give the one it was pretrained with."
            )
        model, card = checkpoint.load_pretrained(folder, vocab_sha256=sha256)
        if not isinstance(model, NestModel):
            raise NestError(f"{folder}: a pretrained {card.system}; next baskets are asked of a NEST.")
        refuse_unfit(card.model, folder)
        tokens = token_of(product_id, words)
        return cls(model, product_id, tokens, fabric, query_rows=query_rows, user_vector=user_vector)

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @property
    def has_token(self) -> np.ndarray:
        """Whether each product has a token of its own, bool [products]."""
        has_token: np.ndarray = self.token_of_product.numpy() != UNK
        return has_token

    @property
    def product_table(self) -> Tensor:
        """The embedding of each product, f32 [products, d]; a product without a token has that of [UNK]."""
        weight = self.model.embedding.weight.detach()
        return weight.index_select(0, self.token_of_product.to(weight.device)).float()

    def user_vectors(self, histories: Histories) -> Tensor:
        """Return each user's vector, f32 [users, d], from nothing but the history and the query day."""
        parts = []
        with torch.no_grad():
            for packed_histories in self.packed_blocks(histories):
                sets = packed_histories.batch.subject_offsets[1:] - (1 if self._user_vector == "query" else 2)
                with self.fabric.autocast():
                    read = self.model.read(packed_histories.batch, packed_histories.batch.cls_rows[sets])
                parts.append(read.hidden_states.index_select(0, read.place).float())
        return torch.cat(parts) if parts else torch.zeros(0, self.config.d_model)

    def query_states(self, histories: Histories) -> QueryStates:
        """Return the query sets' [CLS] and [MASK] rows after the final norm, f32 [users, d], without gradients."""
        with torch.no_grad():
            blocks = [
                self.read_queries(packed_histories) for packed_histories in self.packed_blocks(histories)
            ]
        if not blocks:
            return QueryStates(*torch.zeros(2, 0, self.config.d_model).unbind(0))
        return QueryStates(
            torch.cat([block.cls for block in blocks]), torch.cat([block.mask for block in blocks])
        )

    def read_queries(self, packed_histories: PackedHistories) -> QueryStates:
        """Return the query sets' [CLS] and [MASK] rows after the final norm, f32 [users, d]."""
        rows = packed_histories.query_cls_rows
        with self.fabric.autocast():
            read = self.model.read(packed_histories.batch, torch.cat([rows, rows + 1]))
        cls, mask = read.hidden_states.index_select(0, read.place).float().chunk(2)
        return QueryStates(cls, mask)

    def packed_blocks(self, histories: Histories) -> Iterator[PackedHistories]:
        """Yield the users in order, packed on the device, in blocks of at most ROW_BUDGET rows."""
        for block in micro_batches(self.row_counts(histories), ROW_BUDGET):
            yield self.pack(histories.take(np.arange(block.start, block.stop)))

    def row_counts(self, histories: Histories) -> np.ndarray:
        """Return at most how many rows each user's packed history has, i64 [users]."""
        baskets = histories.baskets
        sets = np.minimum(baskets.lengths, self.config.max_sets - 1)
        counts: np.ndarray = np.minimum(baskets.lines_of_user, sets * self.config.max_set_rows) + sets + 2
        return counts

    def pack(self, histories: Histories) -> PackedHistories:
        """Pack the last baskets of each history, and the query set, on the device.

        As in the shards the products of a basket ascend, and a longer basket keeps the first `max_set_rows` - 1.
        """
        recent = histories.baskets.last(np.full(len(histories), self.config.max_sets - 1))
        tokens, items, sizes = self._lines(recent)
        ends = recent.basket_offsets[1:]
        days = np.insert(self._positions(histories, recent), ends, self._query_positions(histories))
        batch = PackedBatch.from_events(
            tokens=torch.from_numpy(tokens),
            hours=torch.zeros(len(tokens)),
            events_per_set=torch.from_numpy(np.insert(sizes, ends, 0)),
            sets_per_subject=torch.from_numpy(recent.lengths + 1),
            days=torch.from_numpy(days),
        )
        batch = with_queries(batch, self._query_rows)
        is_line = torch.ones(len(batch.tokens), dtype=torch.bool)
        is_line[batch.cls_rows] = False
        is_line[batch.cls_rows[batch.subject_offsets[1:] - 1] + 1] = False
        item_of_row = torch.full((len(batch.tokens),), NO_ITEM).masked_scatter(
            is_line, torch.from_numpy(items)
        )
        device = self.fabric.device
        return PackedHistories(batch.to(device), item_of_row.to(device))

    def cut(self, histories: Histories) -> HistoryCut:
        """Return what the limits leave out of these histories."""
        baskets = histories.baskets
        recent = baskets.last(np.full(len(baskets), self.config.max_sets - 1))
        lines = int(np.minimum(recent.sizes, self.config.max_set_rows - 1).sum())
        return HistoryCut(
            baskets_share=1 - len(recent.days) / max(len(baskets.days), 1),
            lines_share=1 - lines / max(len(baskets.items), 1),
        )

    def report_cut(self, histories: Histories, name: str) -> None:
        """Log what the limits leave out of these histories."""
        cut = self.cut(histories)
        log.info(
            "%s: NEST's limits leave out %.1f%% of the baskets and %.1f%% of their lines",
            name,
            100 * cut.baskets_share,
            100 * cut.lines_share,
        )

    def _lines(self, baskets: Baskets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the token and the item of each line that is read, and the size of each basket, i64."""
        sizes = np.minimum(baskets.sizes, self.config.max_set_rows - 1)
        items = baskets.items[expand_ranges(baskets.item_offsets[:-1], sizes)].astype(np.int64)
        return self.token_of_product.numpy()[items], items, sizes

    def _positions(self, histories: Histories, recent: Baskets) -> np.ndarray:
        """Return the position of each kept basket as the model's config has it, f64 [baskets]."""
        whole = histories.baskets
        if self.config.cse_position == "days_since_first":
            return recent.days.astype(np.float64)
        places = np.arange(len(whole.days)) - np.repeat(whole.basket_offsets[:-1], whole.lengths)
        positions = places.astype(np.float64)
        if self.config.cse_position == "days_since_prior":
            positions = np.where(places > 0, np.diff(whole.days, prepend=np.float32(0)), 0).astype(np.float64)
        kept_baskets = expand_ranges(whole.basket_offsets[1:] - recent.lengths, recent.lengths)
        return np.take(positions, kept_baskets)

    def _query_positions(self, histories: Histories) -> np.ndarray:
        """Return the position of each query set, f64 [users]."""
        baskets = histories.baskets
        match self.config.cse_position:
            case "days_since_first":
                positions: np.ndarray = histories.query_days
            case "days_since_prior":
                positions = histories.query_days - baskets.days[baskets.basket_offsets[1:] - 1]
            case "index":
                positions = baskets.lengths
        return positions.astype(np.float64)


def refuse_unfit(config: ModelConfig, folder: Path) -> None:
    """Refuse a model in which the query cannot see the history.

    Raises:
        NestError: it has one layer, whose set-wise block comes before the first look at other sets; or one set; or no
            cross-set blocks.
    """
    if not config.cross_set:
        raise NestError(
            f"{folder}: a model without cross-set blocks, in which the query never sees the history; pretrain one with "
            "them."
        )
    if config.layers < 2:
        raise NestError(
            f"{folder}: a model of one layer, in which the query's [MASK] never sees the history; pretrain one of two "
            "layers or more."
        )
    if config.max_sets < 2:
        raise NestError(
            f"{folder}: a model that reads one set, which leaves no basket beside the query; pretrain with "
            "--max-sets 2 or more."
        )


def token_of(products: np.ndarray, vocab: pa.Table) -> np.ndarray:
    """Return the token id of each product id, i64 [products]; [UNK] for a product without one."""
    items = vocab.filter(pc.and_(pc.equal(vocab["kind"], "ITEM"), pc.is_valid(vocab["token_id"])))
    codes = items["code"].cast(pa.int64()).to_numpy()
    if not len(codes):
        return np.full(len(products), UNK, dtype=np.int64)
    order = np.argsort(codes)
    place = np.minimum(np.searchsorted(codes[order], products), len(codes) - 1)
    ids = items["token_id"].to_numpy()[order].astype(np.int64)
    return np.where(codes[order][place] == products, ids[place], UNK)

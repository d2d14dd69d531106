"""Train a form of set fine-tuning, stop by our scorer on validation users, and rank every product."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nest_model.data.packed import micro_batches
from nest_model.data.seqsets import expand_ranges
from nest_model.next_set.nest_backbone import ROW_BUDGET, NestBackbone, PackedHistories
from nest_model.next_set.personal import FEATURES, ProductStatistics, Standardisation
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.ranking import Ranking, TieOrder
from nest_model.next_set.set_examples import Examples, HistoryPairs, statistics_before_labels
from nest_model.next_set.set_forms import NestSetOptions, SetForm, SetOptions
from nest_model.next_set.set_model import HistoryProducts, Occurrences, SetModel, set_loss
from nest_model.next_set.system import Recommender, Tools
from nest_model.next_set.validation_users import evenly_spread, validation_scores
from schemas.tables.vocab import UNK

MOST_EPOCHS = 30
PATIENCE_EPOCHS = 3
WEIGHT_DECAY = 0.01
CLIP_NORM = 1.0
LOGITS_AT_ONCE = 8_000_000


class SetScorer:
    """The logits of a form: the trained head over the encoder's query vectors, or over none."""

    def __init__(
        self,
        model: SetModel,
        backbone: NestBackbone | None,
        query: str,
        statistics: ProductStatistics,
        scale: Standardisation,
        device: torch.device,
    ) -> None:
        self.model, self.backbone, self._query = model.to(device), backbone, query
        self.statistics, self.scale, self.device = statistics, scale, device

    @property
    def products(self) -> int:
        return len(self.model.token_of_product)

    def pairs(self, histories: Histories) -> HistoryPairs:
        """Return the histories' distinct products with standardised features."""
        return HistoryPairs.of(histories, self.statistics).standardised(self.scale)

    def logits(
        self, histories: Histories, pairs: HistoryPairs, query_vectors: Tensor | None = None
    ) -> Tensor:
        """Return the logits of each user's products, f32 [users, products].

        Args:
            query_vectors: of the users, f32 [users, d], where they do not change.
        """
        counts = torch.from_numpy(np.diff(pairs.offsets)).to(self.device)
        purchases = HistoryProducts(
            torch.repeat_interleave(counts),
            torch.from_numpy(pairs.item).to(self.device),
            torch.from_numpy(pairs.features).to(self.device),
            torch.from_numpy(pairs.log_share).to(self.device),
            torch.from_numpy(pairs.baskets).to(self.device),
        )
        occurrences = None
        if self.backbone is None:
            query = torch.zeros(len(histories), 1, device=self.device)
        elif self.model.form == "copy":
            packed_histories = self.backbone.pack(histories)
            with self.backbone.fabric.autocast():
                states = self.backbone.model(packed_histories.batch)
            query = self._query_of(packed_histories, states)
            occurrences = Occurrences.of(packed_histories, states, purchases, self.products)
        else:
            query = self.queries(histories) if query_vectors is None else query_vectors
        logits: Tensor = self.model(query, purchases, occurrences)
        return logits

    def queries(self, histories: Histories) -> Tensor:
        """Return the query vectors, f32 [users, d]."""
        assert self.backbone is not None
        packed_histories = self.backbone.pack(histories)
        states = self.backbone.read_queries(packed_histories)
        return states.mask if self._query == "mask" else self._before_out(states.cls)

    def _query_of(self, packed_histories: PackedHistories, states: Tensor) -> Tensor:
        cls = packed_histories.query_cls_rows
        if self._query == "mask":
            return states.index_select(0, cls + 1).float()
        return self._before_out(states.index_select(0, cls).float())

    def _before_out(self, cls: Tensor) -> Tensor:
        assert self.backbone is not None
        return self.backbone.model.set_head.before_out(cls)


class SetRanker(Recommender):
    """All products by a trained form's logits."""

    def __init__(self, scorer: SetScorer, order: TieOrder, product_id: np.ndarray) -> None:
        self.scorer, self.order = scorer, order
        has_token = scorer.model.token_of_product.cpu().numpy() != UNK
        self.nameable = product_id[has_token] if scorer.model.form == "generic" else product_id

    def rank(self, histories: Histories, k: int) -> Ranking:
        users = max(1, min(256, LOGITS_AT_ONCE // max(self.scorer.products, 1)))
        self.scorer.model.eval()
        parts = []
        for part in self._parts(histories, users):
            with torch.no_grad():
                logits = self.scorer.logits(part, self.scorer.pairs(part))
            parts.append(self.order.rank_dense(logits.cpu().numpy(), part.baskets.product_id, k))
        return Ranking.joined(parts)

    def _parts(self, histories: Histories, users: int) -> Iterator[Histories]:
        """Yield so many users at most, and fewer where their histories are long."""
        for block in histories.baskets.blocks(users):
            part = histories.take(np.arange(block.start, block.stop))
            for run in _runs(part, self.scorer.backbone):
                yield part.take(np.arange(run.start, run.stop))


def fit(
    form: SetForm,
    data: LearningData,
    validation: Questions | None,
    options: SetOptions,
    seed: int,
    tools: Tools,
) -> Recommender:
    """Train a form on the training users' label baskets.

    Raises:
        NestError: the form reads a pretrained model, and there is none that can be asked.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        trainer = _Trainer(form, data, options, seed, tools)
        trainer.train(validation)
    return trainer.ranker


@dataclass(frozen=True)
class _Best:
    ndcg: float
    epoch: int
    weights: dict[str, Tensor]
    backbone: dict[str, Tensor] | None


class _Trainer:
    def __init__(
        self, form: SetForm, data: LearningData, options: SetOptions, seed: int, tools: Tools
    ) -> None:
        self.options, self.seed, self.tools = options, seed, tools
        self.backbone = None
        self.backbone_rate, query = 0.0, "mask"
        product_id = data.training.product_id
        fabric = tools.fabric()
        if isinstance(options, NestSetOptions):
            self.backbone = NestBackbone.load(*tools.backbone(f"NEST, {form}"), product_id, fabric)
            self.backbone_rate, query = options.backbone_rate, options.query
            tokens = self.backbone.token_of_product.numpy()
            model = self.backbone.model
            table = (model.embedding.weight if query == "mask" else model.set_weight).detach()
            self.backbone.report_cut(Histories(data.training, np.zeros(len(data.training))), "training users")
        else:
            # without a vocabulary each product bought before a label is its own token
            tokens = np.arange(len(product_id)) + UNK + 1
            table = torch.zeros(len(product_id) + UNK + 1, 1)
        labels = options.label_positions
        self.examples = Examples.of(data, label_positions=labels, most=options.examples)
        statistics = statistics_before_labels(data, labels)
        raw = HistoryPairs.of(self.examples.histories, statistics)
        scale = Standardisation.of(raw.features)
        self.pairs = raw.standardised(scale)
        bias = _first_bias(statistics.popularity, tokens, len(table))
        head = SetModel(form, tokens, table, bias, len(FEATURES), options.dropout)
        self.scorer = SetScorer(head, self.backbone, query, statistics, scale, fabric.device)
        self.order = TieOrder.by_popularity(data.popularity())
        self.ranker = SetRanker(self.scorer, self.order, product_id)
        self.truth = _named_truth(self.examples, self.pairs, tokens, form)

    def train(self, validation: Questions | None) -> None:
        """Train until the validation users no longer gain, and keep the best epoch's weights."""
        if not len(self.examples):
            return
        questions = evenly_spread(validation) if validation is not None else None
        epochs = MOST_EPOCHS if questions is not None else self.options.epochs
        optimizer = torch.optim.AdamW(self._groups(), weight_decay=WEIGHT_DECAY)
        query_vectors = self._constant_query_vectors()
        progress = self.tools.telemetry.progress(
            "set fine-tuning", total=epochs * len(self.examples), unit="baskets"
        )
        best = self._snapshot(self._ndcg(questions), -1) if questions is not None else None
        for epoch in range(epochs):
            self.scorer.model.train()
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.examples))
            for start in range(0, len(order), self.options.batch):
                step = np.sort(order[start : start + self.options.batch])
                self._step(step, optimizer, query_vectors)
                progress.advance(len(step))
            if questions is None or best is None:
                continue
            ndcg = self._ndcg(questions)
            if ndcg > best.ndcg:
                best = self._snapshot(ndcg, epoch)
            if epoch - best.epoch >= PATIENCE_EPOCHS:
                break
        if best is not None:
            self._restore(best)

    def _groups(self) -> list[dict[str, object]]:
        groups: list[dict[str, object]] = [
            {"params": list(self.scorer.model.parameters()), "lr": self.options.head_rate}
        ]
        if self.backbone is not None:
            is_trained = self.backbone_rate > 0
            for weight in self.backbone.model.parameters():
                weight.requires_grad_(is_trained)
            if is_trained:
                weights = list(self.backbone.model.parameters())
                groups.append({"params": weights, "lr": self.backbone_rate})
        return groups

    @torch.no_grad()
    def _constant_query_vectors(self) -> Tensor | None:
        """Return all query vectors, f32 [examples, d], if they never change."""
        if self.backbone is None or self.backbone_rate > 0 or self.scorer.model.form == "copy":
            return None
        histories = self.examples.histories
        runs = _runs(histories, self.backbone)
        return torch.cat(
            [self.scorer.queries(histories.take(np.arange(run.start, run.stop))) for run in runs]
        )

    def _step(self, step: np.ndarray, optimizer: torch.optim.Optimizer, query_vectors: Tensor | None) -> None:
        optimizer.zero_grad(set_to_none=True)
        histories = self.examples.histories.take(step)
        offsets, truth = self.truth
        for run in _runs(histories, self.backbone):
            places = np.arange(run.start, run.stop)
            examples = step[places]
            sizes = np.diff(offsets)[examples]
            example = torch.from_numpy(np.repeat(np.arange(len(examples)), sizes)).to(self.scorer.device)
            item = torch.from_numpy(truth[expand_ranges(offsets[examples], sizes)]).to(self.scorer.device)
            vectors = None if query_vectors is None else query_vectors[torch.from_numpy(examples)]
            logits = self.scorer.logits(histories.take(places), self.pairs.take(examples), vectors)
            loss = set_loss(logits, example, item, self.options.loss) / len(step)
            loss.backward()
        for group in optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], CLIP_NORM)
        optimizer.step()

    def _ndcg(self, questions: Questions) -> float:
        return validation_scores(self.ranker, questions)["ndcg"]

    def _snapshot(self, ndcg: float, epoch: int) -> _Best:
        is_trained = self.backbone is not None and self.backbone_rate > 0
        return _Best(
            ndcg,
            epoch,
            copy.deepcopy(self.scorer.model.state_dict()),
            copy.deepcopy(self.backbone.model.state_dict()) if self.backbone and is_trained else None,
        )

    def _restore(self, best: _Best) -> None:
        self.scorer.model.load_state_dict(best.weights)
        if self.backbone is not None and best.backbone is not None:
            self.backbone.model.load_state_dict(best.backbone)


def _runs(histories: Histories, backbone: NestBackbone | None) -> Iterator[slice]:
    """Yield runs of users that the encoder reads at once."""
    if backbone is None:
        yield slice(0, len(histories))
    else:
        yield from micro_batches(backbone.row_counts(histories), ROW_BUDGET)


def _first_bias(popularity: np.ndarray, tokens: np.ndarray, size: int) -> Tensor:
    """Return the bias each token starts at, f32 [tokens]: the log of the mean popularity of its products."""
    products = np.bincount(tokens, minlength=size)
    mean = np.bincount(tokens, popularity, minlength=size) / np.maximum(products, 1)
    least = popularity[popularity > 0].min(initial=1.0) / 2
    return torch.from_numpy(np.log(np.maximum(mean, least)).astype(np.float32))


def _named_truth(
    examples: Examples, pairs: HistoryPairs, tokens: np.ndarray, form: SetForm
) -> tuple[np.ndarray, np.ndarray]:
    """Return the offsets and places of the label products that the form ranks.

    They have a token; or they were bought before, and the form has a term for that.
    """
    example = np.repeat(np.arange(len(examples)), np.diff(examples.truth_offsets))
    is_ranked = tokens[examples.truth] != UNK
    if form != "generic":
        purchases = np.repeat(np.arange(len(examples)), np.diff(pairs.offsets)) * len(tokens) + pairs.item
        is_ranked |= np.isin(example * len(tokens) + examples.truth, purchases)
    counts = np.bincount(example[is_ranked], minlength=len(examples))
    return np.concatenate([[0], np.cumsum(counts)]), examples.truth[is_ranked]

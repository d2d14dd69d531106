"""ReCANet (Ariannezhad et al., SIGIR 2022): will a user buy again what they bought before?

Every row is a product of a user's history. The product's row and the user's vector give a context; each gap between
purchases, with the context, is a step of two LSTM layers, and the last state gives the odds. Product rows and user
vectors are parts that can be replaced: a hybrid takes both from a pretrained encoder.
"""

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nest_model.next_set.baskets import Baskets
from nest_model.next_set.labels import histories_before, label_blocks
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.ranking import Ranking, TieOrder
from nest_model.next_set.recanet_rows import (
    RepurchaseBatch,
    RepurchaseRows,
    RowOptions,
    question_rows,
    training_rows,
)
from nest_model.next_set.system import Recommender, Tools
from nest_model.next_set.validation_users import BestEpoch

HIDDEN = 64
_USERS_AT_A_TIME = 4_096


class UserPart(nn.Module):
    """What stands for a user in front of a basket: `features` says it once a basket, `forward` makes it a vector."""

    size: int

    @abstractmethod
    def features(self, subject_id: np.ndarray, histories: Callable[[], Histories]) -> Tensor:
        """Return what `forward` takes of each user, [users, …].

        Args:
            subject_id: i64 [users].
            histories: makes the users' histories, for those who read them.
        """

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """Return the vectors, f32 [rows, size]."""


class NoUserVector(UserPart):
    """No vector at all, so that nothing but the gaps and the product tells rows apart."""

    size = 0

    def features(self, subject_id: np.ndarray, histories: Callable[[], Histories]) -> Tensor:
        return torch.zeros(len(subject_id), 0)

    def forward(self, features: Tensor) -> Tensor:
        return features


class UserTable(UserPart):
    """A trained vector for every user it has rows of; zeros for others."""

    def __init__(self, subject_id: np.ndarray, size: int) -> None:
        super().__init__()
        self.subject_id, self.size = subject_id, size  # ids ascend
        self.table = keras_embedding(len(subject_id), size)

    def features(self, subject_id: np.ndarray, histories: Callable[[], Histories]) -> Tensor:
        place = np.minimum(np.searchsorted(self.subject_id, subject_id), len(self.subject_id) - 1)
        return torch.from_numpy(np.where(self.subject_id[place] == subject_id, place, -1))

    def forward(self, features: Tensor) -> Tensor:
        vectors = self.table(features.clamp_min(0))
        return torch.where((features >= 0)[:, None], vectors, 0.0)


class PackedLSTM(nn.Module):
    """A layer of LSTM over rows of falling length, as Keras starts it; half the time of torch's packed one here.

    One bias a gate, 1 for forgetting; no step of padding is computed, and no product with the first state, zero.
    """

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.input = keras_linear(size, 4 * hidden_size)
        self.recurrent = nn.Parameter(nn.init.orthogonal_(torch.empty(4 * hidden_size, hidden_size)))
        with torch.no_grad():
            self.input.bias[hidden_size : 2 * hidden_size] = 1  # gates: input, forget, cell, output

    def forward(self, steps: Tensor, row_counts: list[int]) -> list[Tensor]:
        """Return the states after each step, f32 [row_counts[t], hidden].

        Args:
            steps: f32 [steps, size]; the rows of the first step, then those of the second, ….
        """
        states: list[Tensor] = []
        cell = torch.empty(0)
        for gates, rows in zip(self.input(steps).split(row_counts), row_counts, strict=True):
            if states:
                gates = torch.addmm(gates, states[-1][:rows], self.recurrent.T)
            enter, forget, change, leave = gates.chunk(4, dim=1)
            new = enter.sigmoid() * change.tanh()
            cell = new + forget.sigmoid() * cell[:rows] if states else new
            states.append(leave.sigmoid() * cell.tanh())
        return states


class ReCANetModel(nn.Module):
    """The odds that a user's next basket holds a product again.

    Args:
        items: i64 [rows] -> f32 [rows, item_size]
        item_size: of a product's row.
        users: the vectors of the users.
    """

    def __init__(self, items: nn.Module, item_size: int, users: UserPart) -> None:
        super().__init__()
        self.items, self.users = items, users
        self.combine = keras_linear(item_size + users.size, HIDDEN)
        self.step = keras_linear(HIDDEN + 1, HIDDEN)
        self.layers = nn.ModuleList([PackedLSTM(HIDDEN, HIDDEN), PackedLSTM(HIDDEN, HIDDEN)])
        self.head = nn.Sequential(
            keras_linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            keras_linear(HIDDEN, HIDDEN),
            nn.ReLU(),
            keras_linear(HIDDEN, 1),
        )

    def forward(self, item: Tensor, user_features: Tensor, gaps: Tensor, row_counts: list[int]) -> Tensor:
        """Return the logit of each row, f32 [rows].

        Args:
            item: i64 [rows], rows of falling length.
            user_features: of each row's label basket, [rows, …].
            gaps: f32 [steps], the first gap of every row, then every second, ….
            row_counts: how many rows have a first, second, … gap.
        """
        context = self.combine(torch.cat([self.items(item), self.users(user_features)], dim=1)).relu()
        of_context, of_gap = self.step.weight.split([HIDDEN, 1], dim=1)
        base = F.linear(context, of_context, self.step.bias)
        steps = torch.cat([base[:rows] for rows in row_counts]) + gaps[:, None] * of_gap.T
        steps = steps.relu()
        for layer in self.layers:
            states = layer(steps, row_counts)
            steps = torch.cat(states)
        # rows that end at a step are the last of it
        ends = [state[rows:] for state, rows in zip(states, [*row_counts[1:], 0], strict=True)]
        logits: Tensor = self.head(torch.cat(ends[::-1]))[:, 0]
        return logits


def keras_linear(size: int, out: int) -> nn.Linear:
    """Return a dense layer as Keras starts it: Glorot's uniform weights, no bias."""
    layer = nn.Linear(size, out)
    nn.init.xavier_uniform_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def keras_embedding(rows: int, size: int) -> nn.Embedding:
    """Return a table as Keras starts it: uniform between -.05 and .05."""
    table = nn.Embedding(rows, size)
    nn.init.uniform_(table.weight, -0.05, 0.05)
    return table


class ReCANetRecommender(Recommender):
    """A model and what ranking needs beside it."""

    def __init__(
        self,
        model: ReCANetModel,
        *,
        order: TieOrder,
        is_candidate: np.ndarray,
        product_id: np.ndarray,
        options: RowOptions,
        device: torch.device,
    ) -> None:
        self.model, self.order, self.is_candidate = model, order, is_candidate
        self.nameable = product_id[is_candidate]
        self._options, self._device = options, device

    def rank(self, histories: Histories, k: int) -> Ranking:
        blocks = histories.baskets.blocks(_USERS_AT_A_TIME)
        parts = [self._rank(histories.take(np.arange(block.start, block.stop)), k) for block in blocks]
        empty = Ranking(np.empty((0, k), dtype=np.int64), np.empty((0, k)))
        return Ranking.joined(parts or [empty])

    def _rank(self, histories: Histories, k: int) -> Ranking:
        baskets, options = histories.baskets, self._options
        rows = question_rows(baskets, self.is_candidate)
        features = self.model.users.features(baskets.subject_id, lambda: histories).to(self._device)
        # rows of one length together: fewer and fuller steps
        by_length = np.argsort(rows.count, kind="stable")
        user, item, scores = [], [], []
        self.model.eval()
        with torch.no_grad():
            for batch in rows.batches(by_length, options.batch_rows, options.gaps):
                user.append(batch.label)
                item.append(batch.item)
                scores.append(logits(self.model, batch, features, self._device).cpu().numpy())
        users, items = (np.concatenate([np.empty(0, dtype=np.int64), *part]) for part in (user, item))
        score = np.concatenate([np.empty(0, dtype=np.float32), *scores])
        return self.order.rank_pairs(len(histories), users, items, score, baskets.product_id, k)


def logits(model: ReCANetModel, batch: RepurchaseBatch, features: Tensor, device: torch.device) -> Tensor:
    """Return the logit of each row of a batch, f32 [rows].

    Args:
        features: of every label basket, [labels, …], on the device.
    """
    item, label, gaps = (
        torch.from_numpy(array).to(device) for array in (batch.item, batch.label, batch.gaps)
    )
    odds: Tensor = model(item, features[label], gaps, batch.row_counts.tolist())
    return odds


def fit_recanet(
    make_model: Callable[[], ReCANetModel],
    data: LearningData,
    row_baskets: Baskets,
    *,
    validation: Questions | None,
    options: RowOptions,
    tools: Tools,
    seed: int,
) -> ReCANetRecommender:
    """Train a model on the last baskets of users.

    Args:
        make_model: called after torch's random numbers were set to the seed.
        data: says how often everybody buys each product, and where a label's day comes from.
        row_baskets: of the users whose rows are learnt from; those of the training users, and others if transductive.
        validation: decides which epoch is taken; None: the last.
    """
    device = tools.fabric().device
    purchases = np.bincount(row_baskets.items, minlength=row_baskets.products)
    is_candidate = purchases >= max(options.min_item_count, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make_model().to(device)
    recommender = ReCANetRecommender(
        model,
        order=TieOrder.by_popularity(data.popularity()),
        is_candidate=is_candidate,
        product_id=row_baskets.product_id,
        options=options,
        device=device,
    )
    rows = training_rows(row_baskets, is_candidate, options.label_positions)
    features = label_features(model.users, data, row_baskets, options.label_positions).to(device)
    best = BestEpoch(model, recommender, validation, tools.telemetry)
    _train(recommender, rows, features, best, options, tools, seed, device)
    best.restore()
    return recommender


def label_features(users: UserPart, data: LearningData, row_baskets: Baskets, label_positions: int) -> Tensor:
    """Return what stands for the user in front of each label basket, [labels, …], from the baskets before it."""

    def of(block: np.ndarray, positions: np.ndarray) -> Tensor:
        subject_id = row_baskets.subject_id[block]
        return users.features(subject_id, lambda: histories_before(data, row_baskets, block, positions))

    parts = [of(block, positions) for block, positions in label_blocks(row_baskets, label_positions)]
    nobody = np.empty(0, dtype=np.int64)
    return torch.cat(parts) if parts else of(nobody, nobody)


def _train(
    recommender: ReCANetRecommender,
    rows: RepurchaseRows,
    features: Tensor,
    best: BestEpoch,
    options: RowOptions,
    tools: Tools,
    seed: int,
    device: torch.device,
) -> None:
    """Train the model, and score it after each epoch."""
    model = recommender.model
    optimizer = torch.optim.Adam(
        [weight for weight in model.parameters() if weight.requires_grad], options.rate
    )
    shuffle = np.random.default_rng(seed)
    progress = tools.telemetry.progress("training", total=options.epochs * len(rows), unit="rows")
    for epoch in range(options.epochs):
        model.train()
        for batch in rows.batches(shuffle.permutation(len(rows)), options.batch_rows, options.gaps):
            targets = torch.from_numpy(batch.is_bought).to(device, torch.float32)
            loss = F.binary_cross_entropy_with_logits(logits(model, batch, features, device), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            progress.advance(len(batch.item))
        best.score(epoch)

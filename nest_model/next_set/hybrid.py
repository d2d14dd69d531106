"""ReCANet on a pretrained encoder: its product table in place of trained rows, its user vector in place of an id's.

For label i the encoder reads baskets before i and a query, and nothing else, so that test users need no rows of their
own. Controls put a random table, no vector, or another user's vector in the same places.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from nest_model.next_set.backbone import Backbone
from nest_model.next_set.hybrid_options import HybridOptions, Items, UserVectors
from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.recanet import ReCANetModel, ReCANetRecommender, UserPart, fit_recanet
from nest_model.next_set.system import Tools
from schemas.io.atomic import make_folder, replace_file

_SHIFT = 0x9E3779B97F4A7C15  # 2^64 over the golden ratio: consecutive user ids fall far apart


class ItemTable(nn.Module):
    """An encoder's row of each product, frozen or tuned: i64 [rows] -> f32 [rows, d]."""

    def __init__(self, table: Tensor, *, is_tuned: bool) -> None:
        super().__init__()
        self.rows = nn.Embedding.from_pretrained(table.float().cpu().clone(), freeze=not is_tuned)

    def forward(self, item: Tensor) -> Tensor:
        rows: Tensor = self.rows(item)
        return rows


def random_table(table: Tensor, seed: int) -> Tensor:
    """Return random rows of the same norms, f32 [products, d]."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(table.shape, generator=generator)
    same_norm_rows: Tensor = rows * (table.float().cpu().norm(dim=1) / rows.norm(dim=1))[:, None]
    return same_norm_rows


class EncodedUsers(UserPart):
    """The encoder's vector of each history, kept as fp16 beside the run so that every trial reads it once.

    Args:
        backbone_key: a hash of the encoder's weights, vocabulary and products.
        folder: for the kept vectors.
    """

    def __init__(self, backbone: Backbone, backbone_key: str, folder: Path) -> None:
        super().__init__()
        self.backbone, self.backbone_key, self.folder = backbone, backbone_key, folder
        self.size = backbone.product_table.shape[1]

    def features(self, subject_id: np.ndarray, histories: Callable[[], Histories]) -> Tensor:
        user_histories = histories()
        path = self.folder / f"{_key(self.backbone_key, user_histories)}.npy"
        if path.exists():
            return torch.from_numpy(np.load(path))
        vectors = self.backbone.user_vectors(user_histories).half().cpu()
        make_folder(self.folder)
        with replace_file(path) as part, part.open("wb") as file:
            np.save(file, vectors.numpy())
        return vectors

    def forward(self, features: Tensor) -> Tensor:
        return features.float()


class OtherUsers(UserPart):
    """Another user's vector before a last basket: of a training user that the id picks, never of the user itself.

    Where every training user has one basket, there is no history before it, and the basket itself is read.
    """

    def __init__(self, users: EncodedUsers, data: LearningData) -> None:
        super().__init__()
        training = data.training
        longer = np.flatnonzero(training.lengths > 1)
        owners, baskets_before = (
            (longer, training.lengths[longer] - 1)
            if len(longer)
            else (np.arange(len(training)), training.lengths)
        )
        self.size, self.subject_id = users.size, training.subject_id[owners]
        before = training.take(owners).first(baskets_before)
        pool = Histories(before, data.expected_days(before))
        self.vectors = users.features(self.subject_id, lambda: pool)

    def features(self, subject_id: np.ndarray, histories: Callable[[], Histories]) -> Tensor:
        place = ((subject_id.astype(np.uint64) * np.uint64(_SHIFT)) >> np.uint64(33)).astype(np.int64)
        place %= len(self.subject_id)
        is_self = self.subject_id[place] == subject_id
        return self.vectors[np.where(is_self, (place + 1) % len(self.subject_id), place)]

    def forward(self, features: Tensor) -> Tensor:
        return features.float()


class ZeroUsers(UserPart):
    """A vector of zeros, of the encoder's size: the same number of weights, and nothing of the user."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def features(self, subject_id: np.ndarray, histories: Callable[[], Histories]) -> Tensor:
        return torch.zeros(len(subject_id), 0)

    def forward(self, features: Tensor) -> Tensor:
        return features.new_zeros(len(features), self.size)


def fit_hybrid(
    backbone: Backbone,
    backbone_key: str,
    data: LearningData,
    validation: Questions | None,
    *,
    items: Items,
    users: UserVectors,
    options: HybridOptions,
    seed: int,
    tools: Tools,
) -> ReCANetRecommender:
    """Train ReCANet's rows of the training users on an encoder, or on a control of it."""
    table = backbone.product_table
    encoded_users = EncodedUsers(backbone, backbone_key, tools.scratch / "vectors")

    def user_part() -> UserPart:
        match users:
            case "own":
                return encoded_users
            case "other":
                return OtherUsers(encoded_users, data)
            case "none":
                return ZeroUsers(encoded_users.size)

    def make_model() -> ReCANetModel:
        rows = table if items == "encoder" else random_table(table, seed)
        return ReCANetModel(ItemTable(rows, is_tuned=options.table == "tuned"), table.shape[1], user_part())

    return fit_recanet(
        make_model,
        data,
        data.training,
        validation=validation,
        options=options,
        tools=tools,
        seed=seed,
    )


def _key(backbone_key: str, histories: Histories) -> str:
    """Return a hash of an encoder and of all it reads."""
    baskets, digest = histories.baskets, hashlib.sha256(backbone_key.encode())
    columns = (baskets.subject_id, baskets.basket_offsets, baskets.item_offsets, baskets.items, baskets.days)
    for column in (*columns, baskets.product_id, histories.query_days):
        digest.update(np.ascontiguousarray(column).view(np.uint8).data)
    return digest.hexdigest()

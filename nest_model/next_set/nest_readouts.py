"""The next basket as the paper asks a pretrained NEST: a query set, and a head that is there already."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from nest_model.next_set.nest_backbone import NestBackbone, QueryStates
from nest_model.next_set.questions import Histories, LearningData
from nest_model.next_set.ranking import Ranking, TieOrder
from nest_model.next_set.system import Recommender

QueryReadout = Literal["mask", "head", "cls"]
LOGITS_AT_ONCE = 32_000_000
USERS_AT_A_TIME = 1_024


@dataclass(frozen=True)
class NestReadout(Recommender):
    """Products with a token, by the logits of a pretrained head at the query set."""

    backbone: NestBackbone
    readout: QueryReadout
    order: TieOrder
    nameable: np.ndarray

    @classmethod
    def of(cls, data: LearningData, backbone: NestBackbone, readout: QueryReadout) -> "NestReadout":
        """Bind a pretrained model to the data of the shop."""
        nameable = data.training.product_id[backbone.has_token]
        return cls(backbone, readout, TieOrder.by_popularity(data.popularity()), nameable)

    def rank(self, histories: Histories, k: int) -> Ranking:
        users = max(1, min(USERS_AT_A_TIME, LOGITS_AT_ONCE // self.backbone.config.vocab_size))
        tokens = self.backbone.token_of_product.to(self.backbone.fabric.device)
        parts = []
        for block in histories.baskets.blocks(users):
            part = histories.take(np.arange(block.start, block.stop))
            with torch.no_grad():
                logits = self._logits(self.backbone.query_states(part)).index_select(1, tokens)
            scores = logits.cpu().numpy()
            scores[:, ~self.backbone.has_token] = -np.inf
            parts.append(self.order.rank_dense(scores, part.baskets.product_id, k))
        return Ranking.joined(parts)

    def _logits(self, states: QueryStates) -> Tensor:
        """Return logits over the vocabulary, f32 [users, vocab_size]."""
        model = self.backbone.model
        match self.readout:
            case "mask":
                return model.token_logits(states.mask)
            case "head":
                return model.msm_logits(states.cls)
            case "cls":
                return model.token_logits(states.cls)

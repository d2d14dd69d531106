"""What ReCANet's hybrids need of an encoder: a row for each product, and a vector for each user's history."""

from typing import Protocol

from torch import Tensor

from nest_model.next_set.questions import Histories


class Backbone(Protocol):
    """A pretrained encoder of histories."""

    @property
    def product_table(self) -> Tensor:
        """The embedding of each product, f32 [products, d]; a product without a token has that of [UNK]."""

    def user_vectors(self, histories: Histories) -> Tensor:
        """Return each user's vector, f32 [users, d], from nothing but the history and the query day."""

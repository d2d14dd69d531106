"""The settings of BERT4Rec, for its row of the table and for the hybrids that pretrain it; free of torch."""

from typing import Literal

from pydantic import Field

from nest_model.next_set.system import NextBasketOptions

Masking = Literal["item", "all_occurrences", "last_basket", "joint"]
MASKINGS: tuple[Masking, ...] = ("item", "all_occurrences", "last_basket", "joint")


class BertOptions(NextBasketOptions):
    d_model: int = Field(64, gt=0, description="Width of a row.")
    heads: int = Field(2, gt=0, description="Attention heads; their width, d_model / heads, must be even.")
    d_ff: int = Field(192, gt=0, description="Width of the feed-forward layer.")
    layers: int = Field(
        2,
        gt=0,
        description="Layers of the NEST it is compared with: of blocks it has twice as many, as NEST has.",
    )
    max_tokens: int = Field(
        512, gt=2, description="Latest tokens of a history, [CLS] and [MASK] included, cut between baskets."
    )
    min_count: int = Field(
        5, ge=1, description="Baskets that must hold a product for it to be a token of its own, not [UNK]."
    )
    masking: Masking = Field(
        "item",
        description="What is guessed: item: each line by itself; all_occurrences: all lines of a product together; "
        "last_basket: the whole last basket, of a history cut after a random one, by one [MASK]; joint: this for half "
        "of the users of a step, item for the others.",
    )
    masked_share: float = Field(
        0.2, gt=0, lt=1, description="Share of lines, or of products, that are masked."
    )
    tied: bool = Field(True, description="The output table is the embedding.")
    dropout: float = Field(0.0, ge=0, lt=1, description="Of the first rows and of the last.")
    learning_rate: float = Field(2e-3, gt=0, description="Highest rate of AdamW; it warms up and falls to 0.")
    epochs: int = Field(
        40, gt=0, description="Passes over the training users, fewer if validation stops them."
    )
    patience: int = Field(
        20, gt=0, description="Epochs without a better validation NDCG before training stops."
    )
    users_per_step: int = Field(16, gt=0, description="Training users of a step.")
    without_labels: bool = Field(
        True,
        description="Pretrain without the last basket of each training user, which others take as the label.",
    )

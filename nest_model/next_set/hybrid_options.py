"""The options of ReCANet on an encoder, and what they are searched over."""

from typing import Literal

from pydantic import Field

from nest_model.next_set.recanet_rows import RowOptions

Items = Literal["encoder", "random"]
UserVectors = Literal["own", "other", "none"]

SEARCH = {
    "gaps": (20, 35),
    "rate": (3e-4, 1e-3, 3e-3, 1e-2),
    "batch_rows": (1_000, 10_000),  # of a small shop 10,000 rows are few steps
    "label_positions": (1, 5),
}
QUICK = {"label_positions": 1, "epochs": 1}


class HybridOptions(RowOptions):
    """Rows of ReCANet, and what becomes of the encoder's table."""

    table: Literal["frozen", "tuned"] = Field(
        "frozen", description="Whether the product table is trained on."
    )


class NestHybridOptions(HybridOptions):
    user_cls: Literal["query", "last"] = Field(
        "query", description="The [CLS] that is the user's vector: of the query set, or of the last basket."
    )

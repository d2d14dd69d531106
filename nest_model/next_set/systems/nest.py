"""NEST as the paper asks it: the pretrained model, a query set, and no further training."""

from typing import Literal

import numpy as np
from pydantic import Field

from nest_model.next_set.questions import Histories, LearningData, Questions
from nest_model.next_set.system import NextBasketOptions, NextBasketSystem, Recommender, Traits


class NestOptions(NextBasketOptions):
    readout: Literal["mask", "head", "cls"] = Field(
        "head",
        description="mask: the token head at the query's [MASK]; head: the set head at its [CLS]; cls: the token head "
        "at its [CLS], which no loss of the pretraining trains.",
    )
    max_set_rows: int = Field(
        32, ge=2, description="How many rows the query set stands for, its [CLS] included."
    )


class Nest(NextBasketSystem):
    title = "NEST"
    about = "A pretrained NEST, asked by an appended query set, without further training."
    Options = NestOptions
    search = {"readout": ("mask", "head"), "max_set_rows": (16, 32, 64, 512)}
    traits = Traits(uses_query_time=True)
    reads_backbone = True

    def fit(self, data: LearningData, validation: Questions | None, seed: int) -> Recommender:
        from nest_model.next_set.nest_backbone import NestBackbone  # loads torch
        from nest_model.next_set.nest_readouts import NestReadout

        backbone = NestBackbone.load(
            *self.tools.backbone("nest"),
            data.training.product_id,
            self.tools.fabric(),
            query_rows=self.options.max_set_rows,
        )
        days = np.zeros(len(data.training), dtype=np.float32)
        backbone.report_cut(Histories(data.training, days), "training users")
        return NestReadout.of(data, backbone, self.options.readout)


SYSTEM = Nest

"""Longformer, after Beltagy et al. 2020."""

from nest_model.systems import WITHOUT_SETS, WITHOUT_TIMES, System

SYSTEM = System(
    "Longformer",
    "BERT with attention in a window: a row attends to the rows near it and to all [CLS] of its subject, a [CLS] to "
    "all rows; trained to guess masked tokens (MLM).",
    is_default=False,
    absent={**WITHOUT_SETS, **WITHOUT_TIMES},
    # the [CLS] rows have projections of their own, 3 d²; a feed-forward narrower by d has as many weights less
    presets={
        "tiny": {"d_ff": 128},
        "small": {"d_ff": 512},
        "paper": {"max_rows": 2_048},
        "matched": {"d_ff": 1_280},
        "matched_flops": {"d_ff": 1_280, "layers": 3},
    },
)

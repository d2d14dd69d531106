"""Performer, after Choromanski et al. 2021."""

from nest_model.systems import WITHOUT_SETS, WITHOUT_TIMES, System

SYSTEM = System(
    "Performer",
    "BERT with attention by random features: all rows of a subject attend to each other, approximately and in "
    "linear time; trained to guess masked tokens (MLM).",
    is_default=False,
    absent={**WITHOUT_SETS, **WITHOUT_TIMES},
    presets={"paper": {"max_rows": 2_048}, "matched_flops": {"layers": 3}},
)

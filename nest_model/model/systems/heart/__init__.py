"""HEART, after Huang et al. 2024."""

from nest_model.systems import BLOCKS, WITHOUT_SETS, WITHOUT_TIMES, System

_MATCHED = {"layers": 10, "d_ff": 1_368}

SYSTEM = System(
    "HEART",
    "An encoder of sets whose attention is steered by learned relations of their tokens, by kind; sets attend to "
    "each other; trained to guess masked tokens (MLM).",
    positions="by the set's number",
    blocks=BLOCKS,
    absent={**WITHOUT_SETS, **WITHOUT_TIMES},
    presets={
        "tiny": {"layers": 3, "d_ff": 124},
        "small": {"layers": 6, "d_ff": 648},
        "paper": {"layers": 10, "max_rows": 768},
        "matched": _MATCHED,
        "matched_flops": _MATCHED,
    },
)

"""NEST, the system of this repository."""

from nest_model.systems import BLOCKS, System

SYSTEM = System(
    "NEST",
    "An encoder of sequences of multisets, trained to guess masked tokens (MLM) and sets (MSM).",
    {"mlm_msm": 1.0},
    blocks=BLOCKS,
)

"""BERT, the control: NEST's rows and blocks without its sets."""

from nest_model.systems import WITHOUT_SETS, WITHOUT_TIMES, System

SYSTEM = System(
    "BERT",
    "A flat encoder: all rows of a subject attend to each other, whatever their set; trained to guess masked "
    "tokens (MLM).",
    absent={**WITHOUT_SETS, **WITHOUT_TIMES},
    presets={"paper": {"max_rows": 2_048}, "matched_flops": {"layers": 3}},
)

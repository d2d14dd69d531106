"""BERT, the control: NEST's rows and blocks without its sets."""

from nest_model.systems import WITHOUT_SETS, System

SYSTEM = System(
    "BERT",
    "A flat encoder: all rows of a subject attend to each other, whatever their set; trained to guess masked "
    "tokens (MLM).",
    absent={
        **WITHOUT_SETS,
        "cse_position": "index",
        "set_position": None,
        "time2vec": None,
        "time2vec_scale": 1.0,
    },
    presets={"paper": {"max_rows": 2_048}, "matched_flops": {"layers": 3}},
)

"""CEHR-BERT, after Pang et al. 2021."""

from nest_model.systems import WITHOUT_SETS, System

SYSTEM = System(
    "CEHR-BERT",
    "A flat encoder: all rows of a subject attend to each other, tokens between sets tell the time that "
    "passed, and each row is told the week and number of its set; trained to guess masked tokens (MLM).",
    absent={
        **WITHOUT_SETS,
        "cse_position": "days_since_first",
        "set_position": None,
        "time2vec": None,
        "time2vec_scale": 1.0,
    },
    # its blocks are as large as NEST's, and its paper's in `paper`
    presets={
        "tiny": {"d_ff": 282},
        "small": {"d_ff": 1_146},
        "paper": {"d_ff": 3_072, "max_rows": 2_048},
        "matched": {"d_ff": 3_032},
        "matched_flops": {"layers": 3, "d_ff": 3_032},
    },
    recipes={"paper": {"learning_rate": 3e-5, "warmup_share": 0.06, "decay": "cosine"}},
)

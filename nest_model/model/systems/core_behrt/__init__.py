"""CORE-BEHRT, after Odgaard et al. 2024."""

from nest_model.systems import WITHOUT_SETS, System

SYSTEM = System(
    "CORE-BEHRT",
    "A flat encoder: all rows of a subject attend to each other, and each is told its set, the set's days and "
    "its own hours; trained to guess masked tokens (MLM).",
    absent={
        **WITHOUT_SETS,
        "cse_position": "days_since_first",
        "set_position": None,
        "time2vec": "hours+days",
    },
    # at scale 1 the sines drown the tokens, which start with a standard deviation of 1 / √d_model
    presets={
        "tiny": {"time2vec_scale": 64**-0.5},
        "small": {"time2vec_scale": 256**-0.5},
        "paper": {"time2vec_scale": 768**-0.5, "max_rows": 2_048},
        "matched": {"time2vec_scale": 768**-0.5},
        "matched_flops": {"time2vec_scale": 768**-0.5, "layers": 3},
    },
)

"""MOTOR, after Steinberg et al. 2024."""

from nest_model.systems import WITHOUT_SETS, System

SYSTEM = System(
    "MOTOR",
    "A flat causal encoder: each row of a subject attends to itself and what came before; trained to tell "
    "when each of many events comes next.",
    {"time_to_event": 1.0},
    positions="by days",
    absent={
        **WITHOUT_SETS,
        "cse_position": "days_since_first",
        "set_position": "hours",
        "time2vec": None,
        "time2vec_scale": 1.0,
        "mlm_weight": 0.0,
        "token_mask_share": 0.0,
    },
    presets={"paper": {"max_rows": 2_048}, "matched_flops": {"layers": 3}},
)

"""Hi-BEHRT, after Li et al. 2021."""

from nest_model.systems import WITHOUT_SETS, System

_PAPER = {"layers": 9, "time2vec_scale": 768**-0.5}
_MATCHED = {**_PAPER, "d_ff": 1_344}

SYSTEM = System(
    "Hi-BEHRT",
    "A hierarchical encoder: one reads windows of 50 rows, another the windows; trained to guess what a slower "
    "copy of itself makes of hidden windows (BYOL).",
    {"byol": 1.0},
    positions="by the set's number and days, and the window's number",
    absent={
        **WITHOUT_SETS,
        "cse_position": "days_since_first",
        "set_position": None,
        "time2vec": "days",
        "mlm_weight": 0.0,
        "token_mask_share": 0.0,
    },
    # layers: of the extractor, the aggregator has one more; the scale is that with which tokens start, 1 / √d_model
    presets={
        "tiny": {"d_ff": 200, "time2vec_scale": 64**-0.5},
        "small": {"d_ff": 962, "time2vec_scale": 256**-0.5},
        "paper": _PAPER,
        "matched": _MATCHED,
        "matched_flops": _MATCHED,
    },
    recipes={"paper": {"warmup_share": 0.1, "decay": "cosine"}},
)

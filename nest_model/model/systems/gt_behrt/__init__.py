"""GT-BEHRT, after Poulain & Beheshti 2024."""

from nest_model.systems import BLOCKS, WITHOUT_SETS, System

_DATED = {"day_of_year": True}
_PAPER = {"d_model": 780, "heads": 10, "d_ff": 3_120, "layers": 12} | _DATED
_MATCHED = _PAPER | {"d_ff": 3_576}

SYSTEM = System(
    "GT-BEHRT",
    "A graph of the distinct codes of each set, then a flat encoder of the sets, told their type of visit, number, days"
    " and day of year; trained to guess masked nodes (NAM), then the node that a set lacks and its type (MNP, VTP).",
    {"nam": 1 / 3, "mnp": 2 / 3},
    positions="by the set's number and days",
    reads_visits=True,
    blocks=BLOCKS,
    absent={
        **WITHOUT_SETS,
        "mlm_weight": 1.0,  # its stages have a loss each
        "cse_position": "days_since_first",
        "set_position": None,
        "time2vec": None,
        "time2vec_scale": 1.0,
    },
    # layers of BERT; sets are as wide as five nodes, and heads must divide that. Weights are counted with MIMIC-IV's
    # nine types of visit
    presets={
        "tiny": {"d_model": 80, "heads": 4, "d_ff": 148, "layers": 4} | _DATED,
        "small": {"d_model": 320, "heads": 8, "d_ff": 648, "layers": 8} | _DATED,
        "paper": _PAPER,
        "matched": _MATCHED,
        "matched_flops": _MATCHED,
    },
    recipes={"paper": {"warmup_share": 0.1, "decay": "linear"}},  # in each of its two stages
)

"""The paper's tables on MIMIC-IV: AUROC and AP in percent, mean and SD over seeds; on other data than ours."""

from dataclasses import dataclass

TASKS = ("mimic_mortality", "mimic_readmission", "mimic_long_stay", "mimic_icd_chapter", "mimic_icd_category")


@dataclass(frozen=True)
class PaperScore:
    """A mean and its standard deviation over five seeds, as shares."""

    mean: float
    sd: float


@dataclass(frozen=True)
class PaperCell:
    """The paper's scores of one row on one task."""

    auroc: PaperScore
    average_precision: PaperScore


def _scores(text: str) -> list[PaperScore]:
    pairs = (part.split("±") for part in text.split())
    return [PaperScore(float(mean) / 100, float(sd) / 100) for mean, sd in pairs]


_SYSTEMS = {  # AUROC, then AP, by task
    "hi_behrt": (
        "89.00±.53 68.79±.30 82.03±.42 89.18±1.46 88.64±.26",
        "32.64±.94 49.31±.34 48.50±.68 43.93±3.85 10.81±.17",
    ),
    "motor": (
        "90.60±.47 69.05±.55 85.62±.81 91.42±.71 92.35±.16",
        "36.67±1.46 53.87±.61 58.28±.59 49.05±1.30 15.24±.18",
    ),
    "cehr_bert": (
        "93.09±.20 70.59±.38 85.23±.10 93.03±.56 92.03±.25",
        "42.52±.74 55.62±.57 57.56±.21 52.95±2.71 15.49±.11",
    ),
    "core_behrt": (
        "92.96±.36 71.02±.20 86.23±.15 93.51±.43 92.25±.05",
        "45.12±2.16 56.10±.51 58.88±.39 55.85±2.00 15.53±.26",
    ),
    "gt_behrt": (
        "93.80±.11 70.82±.31 84.84±.15 91.31±.94 91.98±.05",
        "41.58±1.00 56.39±.52 55.87±.17 53.73±1.42 12.58±.23",
    ),
    "nest_mlm": (
        "95.28±.09 72.27±.36 88.50±.08 94.81±.64 92.59±.25",
        "51.19±1.50 58.32±.44 64.04±.22 60.18±1.96 16.38±.12",
    ),
    "nest": (
        "95.57±.10 72.53±.35 88.79±.14 95.29±.46 93.51±.19",
        "52.75±1.08 58.68±.53 64.58±.49 60.85±1.90 16.92±.15",
    ),
}
_ABLATIONS = {  # of the first three tasks
    "mean_pool": ("92.18±.39 68.56±.26 85.38±.18", "41.96±.80 53.24±.88 56.13±.44"),
    "no_cse": ("92.85±.15 70.37±.26 86.24±.11", "47.32±1.00 56.05±.23 60.86±.34"),
    "mean_pool_double": ("93.05±.31 69.26±.23 86.84±.23", "45.58±.89 55.30±.26 59.22±.75"),
    "no_cse_double": ("94.52±.19 71.45±.24 87.71±.10", "48.84±1.17 57.33±.32 62.35±.25"),
    "linear_probe": ("94.33±.18 70.40±.20 86.10±.20", "46.65±1.07 55.60±.39 60.30±.35"),
    "shuffle": ("94.47±.20 70.78±.29 87.65±.05", "48.98±.79 56.16±.43 62.41±.40"),
    "last_set_mean": ("94.59±.23 71.93±.16 88.38±.13", "48.18±.85 57.87±.37 62.95±.42"),
    "freeze_swe": ("94.43±.24 71.25±.22 87.73±.15", "47.98±1.14 57.09±.48 61.71±.43"),
    "freeze_cse": ("94.99±.21 71.91±.18 88.21±.14", "50.53±1.15 57.99±.34 63.45±.54"),
}

PAPER: dict[str, dict[str, PaperCell]] = {
    row: {
        task: PaperCell(auroc, precision)
        for task, auroc, precision in zip(TASKS, _scores(aurocs), _scores(precisions), strict=False)
    }
    for row, (aurocs, precisions) in (_SYSTEMS | _ABLATIONS).items()
}
"""Row -> task -> its scores, where the paper has them."""

OBJECTIVES = {  # Recall@10 and NDCG@10 of masked sets
    "objective_msm": "< 0.01, < 0.01",
    "objective_mlm": "0.476, 0.516",
    "objective_both": "0.489, 0.549",
}

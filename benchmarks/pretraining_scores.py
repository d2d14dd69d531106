"""The scores of a pretraining, as its metrics.json has them, beside those of guesses."""

import json
from pathlib import Path


def read_pretraining_scores(model: Path) -> dict[str, float]:
    """Return the losses in nats and NDCG@10 of the lists, on validation patients, each beside its two guesses.

    Empty where there were too few validation patients for the guesses.

    Args:
        model: folder of the pretrained model.
    """
    metrics = json.loads((model / "metrics.json").read_text())
    values, guesses = metrics["validation"], metrics["yardsticks"]
    if not guesses:
        return {}
    return {
        "mlm": values["val_mlm"],
        "mlm_constant": guesses["val_mlm"]["constant"],
        "mlm_mixture": guesses["val_mlm"]["mixture"],
        "msm": values["val_msm"],
        "msm_constant": guesses["val_msm"]["constant"],
        "msm_mixture": guesses["val_msm"]["mixture"],
        "ndcg_at_10": values["val_ndcg_at_10_head"],
        "ndcg_at_10_constant": guesses["val_ndcg_at_10"]["constant"],
        "ndcg_at_10_mixture": guesses["val_ndcg_at_10"]["mixture"],
    }

import json
from pathlib import Path

import pytest

from benchmarks.pretraining_scores import guess_cells, model_cells, read_pretraining_scores
from schemas.errors import ContractError

METRICS = {
    "validation": {"val_mlm": 4.4, "val_msm": 2.49, "val_ndcg_at_10_head": 0.41, "val_ndcg_at_10_cls": 0.1},
    "yardsticks": {
        "val_mlm": {"constant": 6.7, "mixture": 6.2, "own_share": 0.5},
        "val_msm": {"constant": 2.48, "mixture": 2.41, "own_share": 0.2},
        "val_ndcg_at_10": {"constant": 0.39, "mixture": 0.45},
    },
    "not_learnt": [],
    "not_judged": [],
    "context_cut": {"sets_share": 0, "events_in_cut_sets_share": 0, "events_in_long_sets_share": 0},
}


def write(folder: Path, **changes) -> Path:
    (folder / "metrics.json").write_text(json.dumps(METRICS | changes))
    return folder


def test_scores_and_guesses_are_cells_and_what_is_not_learnt_is_bold(tmp_path):
    scores = read_pretraining_scores(write(tmp_path))

    assert scores["ndcg_at_10"] == 0.41
    assert model_cells(scores) == {
        "MLM": "4.400",
        "MSM below its constant guess": "**−0.010**",
        "set prediction": "0.410",
    }
    assert list(guess_cells(scores, "mixture").values()) == ["6.200", "0.070", "0.450"]
    assert list(guess_cells(scores, "constant").values()) == ["6.700", "0.000", "0.390"]


def test_pretraining_without_msm_has_no_score_of_it(tmp_path):
    """As with `msm_weight=0`, where no set is masked and the guesses have no loss."""
    yardsticks = {"val_mlm": METRICS["yardsticks"]["val_mlm"]}
    validation = {"val_mlm": 6.9, "val_msm": None}

    scores = read_pretraining_scores(write(tmp_path, validation=validation, yardsticks=yardsticks))

    assert list(model_cells(scores).values()) == ["**6.900**", "–", "–"]
    assert list(guess_cells(scores, "constant").values()) == ["6.700", "–", "–"]


def test_pretraining_that_cannot_be_judged_has_no_scores(tmp_path):
    assert read_pretraining_scores(write(tmp_path, yardsticks={})) == {}


def test_missing_metrics_are_one_sentence(tmp_path):
    with pytest.raises(ContractError, match=r"no file .*metrics\.json; materialize"):
        read_pretraining_scores(tmp_path)

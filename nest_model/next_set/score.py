"""Score next-set prediction on the test subjects: NEST's readouts and the counting baseline, on the same history.

As for any task, there is no score for under eleven users: a score of so few would disclose them.
"""

from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from lightning_fabric import Fabric

from nest_model.data.selection import limit_context
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import SPLIT, Score, missing
from nest_model.model import checkpoint
from nest_model.next_set.query import guess
from nest_model.next_set.targets import NextSets, held_out, last_visible
from nest_model.training.guesses.frequent import most_frequent
from nest_model.training.objectives import K, rank
from nest_model.training.telemetry import Telemetry
from schemas.contract import read_table
from schemas.errors import NestError
from schemas.io.outputs import write_json
from schemas.suppress import SMALLEST_SHOWN, suppress_small
from schemas.tables.events import SUBJECTS
from schemas.tables.vocab import VOCAB, content_sha256

ROW_BUDGET = 32_768
YARDSTICK = "most_frequent"
METRICS = ("recall_at_10", "ndcg_at_10")
TOO_FEW = f"withheld: under {SMALLEST_SHOWN} users"


def score_next_sets(
    *,
    model: Path,
    seqset: Path,
    subjects: Path,
    vocab: Path,
    target: Literal["last_visible", "held_out"],
    raw: Path | None,
    out: Path,
    fabric: Fabric,
    telemetry: Telemetry,
) -> None:
    """Write `metrics.json`: Recall@10 and NDCG@10 of each model, and NEST minus the baseline, paired by user.

    Args:
        model: the folder of a pretrained model.
        target: which set to predict.
        raw: the folder of `held_out`; read only for that target.

    Raises:
        NestError: the inputs do not belong together, or no user has a set to predict.
    """
    seqsets = SeqSets.read(seqset)
    encoder, card = checkpoint.load_pretrained(model, vocab_sha256=seqsets.vocab_sha256)
    words = read_table(vocab, VOCAB)
    if content_sha256(words) != seqsets.vocab_sha256:
        raise NestError(
            f"{vocab}: not the vocabulary the shards were written with; materialize the shards again."
        )
    questions = _questions(seqsets, subjects, words, card.model.vocab_size, target, raw)
    limits = {"max_sets": card.model.max_sets, "max_set_rows": card.model.max_set_rows}
    history, truncation = limit_context(questions.history, **limits)
    progress = telemetry.progress("next sets", total=len(questions), unit="users")
    guesses = {
        f"nest_{name}": tokens
        for name, tokens in guess(encoder, seqsets, history, fabric, progress, row_budget=ROW_BUDGET).items()
    }
    counts = _train_counts(words, card.model.vocab_size)
    guesses[YARDSTICK] = torch.from_numpy(most_frequent(seqsets, history, counts, K))
    scores = compare(guesses, questions)
    content = {
        "target": target,
        "users": suppress_small(len(questions)),
        "left_out": {reason: suppress_small(count) for reason, count in questions.left_out.items()},
        "k": K,
        "sets_cut_share": round(truncation.sets_share, 6),
        "models": {
            name: {metric: metric_score.json() for metric, metric_score in metric_scores.items()}
            for name, metric_scores in scores.items()
        },
    }
    write_json(out / "metrics.json", content)
    telemetry.result(
        {
            f"{name}_{metric}": metric_score.value
            for name, metric_scores in scores.items()
            for metric, metric_score in metric_scores.items()
            if metric_score.value is not None
        }
    )


def compare(
    guesses: dict[str, torch.Tensor], questions: NextSets, *, min_users: int = SMALLEST_SHOWN
) -> dict[str, dict[str, Score]]:
    """Return every metric of every model with its resamples of users, and NEST's readouts minus the baseline.

    Args:
        guesses: model -> i64 [users, k].
        min_users: fewest users for scores to be disclosed.
    """
    truth = torch.from_numpy(questions.truth_subject), torch.from_numpy(questions.truth_token)
    by_user: dict[str, dict[str, np.ndarray]] = {}
    for name, tokens in guesses.items():
        ranking = rank(tokens, *truth)
        values = (ranking.recall.numpy(), ranking.ndcg.numpy())
        by_user[name] = dict(zip(METRICS, values, strict=True))
    for name in [name for name in guesses if name != YARDSTICK]:
        by_user[f"{name}_less_{YARDSTICK}"] = {
            metric: by_user[name][metric] - by_user[YARDSTICK][metric] for metric in METRICS
        }
    if len(questions) < min_users:
        return {name: dict.fromkeys(METRICS, missing(TOO_FEW)) for name in by_user}
    resamples = Resamples.of(questions.subject_id)
    return {
        name: {
            metric: _mean(values, resamples, questions.subject_id)
            for metric, values in values_by_metric.items()
        }
        for name, values_by_metric in by_user.items()
    }


def _mean(values: np.ndarray, resamples: Resamples, subject_id: np.ndarray) -> Score:
    def mean(weights: np.ndarray) -> np.ndarray:
        means: np.ndarray = weights @ values / weights.sum(axis=1)
        return means

    return Score(float(values.mean()), resamples.apply(mean, subject_id))


def _questions(
    seqsets: SeqSets, subjects: Path, words: pa.Table, vocab_size: int, target: str, raw: Path | None
) -> NextSets:
    table = read_table(subjects, SUBJECTS)
    test_subjects = table["subject_id"].filter(pc.equal(table["split"], SPLIT)).to_numpy()
    rows = seqsets.subject_rows(test_subjects)
    if target == "last_visible":
        questions = last_visible(seqsets, rows, vocab_size)
    elif raw is None:
        raise NestError("--target held_out needs --raw, the folder that holds held_out.")
    else:
        questions = held_out(seqsets, rows, raw, words, vocab_size)
    if not len(questions):
        raise NestError(f"{subjects}: no user of the test split has a set to predict and an earlier one.")
    return questions


def _train_counts(words: pa.Table, vocab_size: int) -> np.ndarray:
    """Return each token's count among the patients the vocabulary was fitted on, i64 [vocab_size]."""
    with_id = words.filter(pc.is_valid(words["token_id"]))
    counts = np.zeros(vocab_size, dtype=np.int64)
    counts[with_id["token_id"].to_numpy().astype(np.int64)] = with_id["count_train"].to_numpy()
    return counts

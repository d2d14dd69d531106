"""Boosters for one task: a small stated grid, each point stopped early and judged on the validation split.

Every booster stops on the validation log loss; the grid point with the best validation AP (macro over
classes) is kept. Classes stay as unbalanced as they are: weights would bend the probabilities, and those
are judged too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import sparse

from nest_model.data.labels import Labels
from nest_model.data.predictions import scorable, truth_table
from nest_model.evaluation.validation_score import TUNING_LABELS, macro_average_precision
from nest_model.training.telemetry import Progress, Telemetry

if TYPE_CHECKING:
    import lightgbm as lgb

LABELS = 50
"""So many of a list task's labels, the commonest, get a booster each."""

MIN_ROWS = 20
"""Rows in a leaf, and training rows a column must be in."""

TOLD_COLUMNS = 20
"""So many of the columns are named by what their splits gained."""

ROUNDS = 600
PATIENCE = {"bool": 30, "class": 12, "list": 12}

COMMON = {
    "min_data_in_leaf": MIN_ROWS,
    "max_bin": 63,
    "feature_pre_filter": False,  # the data set is shared by grid points
    "deterministic": True,
    "force_col_wise": True,
    "num_threads": 1,  # two spin against each other on a busy machine: 18 s where one takes 2
    "verbosity": -1,
}

GRIDS: dict[str, tuple[dict[str, Any], ...]] = {
    "bool": (
        {"learning_rate": 0.05, "num_leaves": 4, "feature_fraction": 0.3},
        {"learning_rate": 0.05, "num_leaves": 8, "feature_fraction": 0.1},
        {"learning_rate": 0.05, "num_leaves": 8, "feature_fraction": 0.2, "lambda_l2": 10},
        {
            "learning_rate": 0.05,
            "num_leaves": 8,
            "feature_fraction": 0.2,
            "bagging_fraction": 0.7,
            "bagging_freq": 1,
        },
        {"learning_rate": 0.05, "num_leaves": 16, "feature_fraction": 0.5, "min_data_in_leaf": 60},
        {"learning_rate": 0.05, "num_leaves": 24, "feature_fraction": 0.2},
    ),
    "class": (
        {"learning_rate": 0.16, "num_leaves": 4, "feature_fraction": 0.15},
        {"learning_rate": 0.2, "num_leaves": 6, "feature_fraction": 0.1},
    ),
    "list": (
        {"learning_rate": 0.2, "num_leaves": 4, "feature_fraction": 0.15},
        {"learning_rate": 0.2, "num_leaves": 8, "feature_fraction": 0.1, "lambda_l2": 10},
    ),
}

OBJECTIVES = {
    "bool": {"objective": "binary", "metric": "binary_logloss"},
    "class": {"objective": "multiclass", "metric": "multi_logloss"},
    "list": {"objective": "binary", "metric": "binary_logloss"},
}


@dataclass(frozen=True)
class Fitted:
    """The boosters of one task: one, or one per label of a list task."""

    boosters: "list[lgb.Booster]"
    classes: tuple[str, ...]
    grid_point: Mapping[str, Any]
    merit: tuple[float, float]  # validation AP, then the negative log loss: the larger the better
    validation: dict[str, float | None]  # what of it may be told


def fit(
    labels: Labels,
    features: sparse.csr_matrix,
    *,
    grid: Sequence[Mapping[str, Any]] | None = None,
    seed: int,
    telemetry: Telemetry,
) -> Fitted:
    """Tune on the validation split and return the boosters of the best grid point; no grid: the label type's own."""
    label_type = labels.task.label_type
    classes = commonest_labels(labels) if label_type == "list" else labels.task.classes
    truth = labels_truth(labels, classes)
    data = _Data.of(features, truth, labels)
    columns = [None] if label_type == "class" else list(range(truth.shape[1]))
    tuned, later = columns[:TUNING_LABELS], columns[TUNING_LABELS:]
    grid = GRIDS[label_type] if grid is None else grid
    total = len(grid) * len(tuned) + len(later)
    progress = telemetry.progress("lightgbm", total=total, unit="boosters")
    settings = COMMON | OBJECTIVES[label_type] | {"seed": seed}
    if label_type == "class":
        settings["num_class"] = len(classes)
    trials = []
    for number, point in enumerate(grid):
        boosters = [data.boost(settings | point, column, progress) for column in tuned]
        trials.append(Fitted(boosters, tuple(classes), point, *data.judge(boosters, tuned)))
        telemetry.trial(number, trials[-1].validation)
    best = max(trials, key=lambda trial: trial.merit)
    rest = [data.boost(settings | best.grid_point, column, progress) for column in later]
    return replace(best, boosters=best.boosters + rest)


def commonest_labels(labels: Labels) -> tuple[str, ...]:
    """Return the labels of a list task with most training rows, ties in the task's order."""
    classes = labels.task.classes
    in_train = labels.split == "train"
    positives = labels_truth(labels, classes)[in_train].sum(axis=0)
    learnable = [k for k in np.argsort(-positives, kind="stable") if 0 < positives[k] < in_train.sum()]
    return tuple(classes[k] for k in learnable[:LABELS])


def labels_truth(labels: Labels, classes: tuple[str, ...]) -> np.ndarray:
    """Return bool [rows, classes]; of a bool task [rows, 1]."""
    columns = ("true",) if labels.task.label_type == "bool" else classes
    return truth_table(labels.label, labels.task.label_type, columns)


@dataclass(frozen=True)
class _Data:
    """Training and validation rows, binned once; only the labels change from booster to booster."""

    train: "lgb.Dataset"
    val: "lgb.Dataset"
    val_features: sparse.csr_matrix
    train_truth: np.ndarray  # bool [rows, classes]
    val_truth: np.ndarray
    val_subject_id: np.ndarray
    patience: int

    @classmethod
    def of(cls, features: sparse.csr_matrix, truth: np.ndarray, labels: Labels) -> Self:
        import lightgbm as lgb

        label_type = labels.task.label_type
        known = truth.any(axis=1) | (label_type != "class")  # a class no training row has cannot be learnt
        train, val = (np.flatnonzero((labels.split == name) & known) for name in ("train", "val"))
        train_set = lgb.Dataset(features[train], np.zeros(len(train)), params=COMMON).construct()
        val_set = lgb.Dataset(
            features[val], np.zeros(len(val)), params=COMMON, reference=train_set
        ).construct()
        outcomes = truth[train], truth[val], labels.subject_id[val]
        return cls(train_set, val_set, features[val], *outcomes, PATIENCE[label_type])

    def boost(self, settings: Mapping[str, Any], column: int | None, progress: Progress) -> "lgb.Booster":
        """Fit one booster on one column of the truth or, for None, on all columns as one class."""
        import lightgbm as lgb

        self.train.set_label(_target(self.train_truth, column))
        self.val.set_label(_target(self.val_truth, column))
        stop = lgb.early_stopping(self.patience, verbose=False)
        booster = lgb.train(dict(settings), self.train, ROUNDS, valid_sets=[self.val], callbacks=[stop])
        progress.advance(1)
        return booster

    def judge(
        self, boosters: "Sequence[lgb.Booster]", columns: Sequence[int | None]
    ) -> tuple[tuple[float, float], dict[str, float | None]]:
        """Return the merit on validation, and what of it may be told: no score where few have the outcome.

        AP is macro over the classes validation can tell apart; without a positive the log loss alone decides.
        """
        truth = self.val_truth if columns == [None] else self.val_truth[:, columns]
        ap = macro_average_precision(truth, probabilities(boosters, self.val_features))
        log_loss = float(np.mean([next(iter(b.best_score["valid_0"].values())) for b in boosters]))
        may_be_told = len(scorable(truth, self.val_subject_id)) > 0
        return (-1.0 if ap is None else ap, -log_loss), {
            "average_precision": ap if may_be_told else None,
            "log_loss": log_loss if may_be_told else None,
            "rounds": float(np.mean([booster.best_iteration for booster in boosters])),
        }


def _target(truth: np.ndarray, column: int | None) -> np.ndarray:
    return truth.argmax(axis=1) if column is None else truth[:, column].astype(int)


def probabilities(boosters: "Sequence[lgb.Booster]", features: sparse.csr_matrix) -> np.ndarray:
    """Return [rows, classes]: the classes of one booster, or a column of each."""
    found = [booster.predict(features) for booster in boosters]
    return found[0] if found[0].ndim == 2 else np.stack(found, axis=1)


def importance(boosters: "Sequence[lgb.Booster]", columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns whose splits gained most over all boosters, and their share of all gain, largest first."""
    gain = sum(booster.feature_importance("gain", iteration=booster.best_iteration) for booster in boosters)
    share = gain / max(gain.sum(), np.finfo(float).tiny)
    first = np.argsort(-share, kind="stable")[:TOLD_COLUMNS]
    return [
        {"column": columns[place], "share": round(float(share[place]), 6)} for place in first if share[place]
    ]

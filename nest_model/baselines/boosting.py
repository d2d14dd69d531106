"""LightGBM boosters for one task: a small fixed grid, with early stopping and selection on the validation split.

Every booster stops on the validation log loss; the grid point with the best validation AP (macro over classes) is kept.
Of a number or a time the point with the smallest loss is kept; a time has a row per patient and observed interval,
small steps, and stops on the loss without the level of the validation patients (`levelled_hazard_loss`).
Classes are not reweighted: weights would distort the probabilities, whose calibration is evaluated too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import sparse
from scipy.special import logit

from nest_model.data.labels import Labels, is_validation_disclosable
from nest_model.data.numbers import HUBER_DELTA, from_scale
from nest_model.data.predictions import scorable, truth_table
from nest_model.evaluation.hazards import interval_rows, levelled_hazard_loss, with_interval
from nest_model.evaluation.linear_loss import loss_targets, validation_loss
from nest_model.evaluation.validation_score import TUNING_LABELS, macro_average_precision
from nest_model.training.telemetry import Progress, Telemetry
from schemas.tables.labels import WITHOUT_CLASSES, Task

if TYPE_CHECKING:
    import lightgbm as lgb

LABELS = 50
"""How many of a list task's commonest labels get a booster each."""

MIN_ROWS = 20
"""Fewest rows in a leaf, unless few have labels, and fewest training rows in which a column must be non-zero."""

FEW_ROWS_PER_LEAF_ROW = 10
"""Of few training rows a leaf must hold a tenth, in place of MIN_ROWS."""

LISTED_COLUMNS = 20
"""How many columns are listed by the gain of their splits."""

ROUNDS = 600
PATIENCE = {"bool": 30, "class": 30, "list": 12, "number": 30, "time": 100}

COMMON: dict[str, Any] = {
    "min_data_in_leaf": MIN_ROWS,
    "max_bin": 63,
    "feature_pre_filter": False,  # grid points share the data set
    "deterministic": True,
    "force_col_wise": True,
    "num_threads": 1,  # two threads spin on a busy machine: 18 s where one takes 2
    "verbosity": -1,
}

MOST_DENSE_CELLS = 500_000_000
"""Columns are stored densely, a byte for each cell, if the rows have at most this many cells.

The trees are the same and mostly take less time.
"""

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
        {"learning_rate": 0.05, "num_leaves": 4, "feature_fraction": 0.15},
        {"learning_rate": 0.05, "num_leaves": 4, "feature_fraction": 0.5},
        {"learning_rate": 0.05, "num_leaves": 8, "feature_fraction": 0.2, "lambda_l2": 10},
    ),
    "list": (
        {"learning_rate": 0.2, "num_leaves": 4, "feature_fraction": 0.15},
        {"learning_rate": 0.2, "num_leaves": 8, "feature_fraction": 0.1, "lambda_l2": 10},
    ),
}

GRIDS["number"] = GRIDS["bool"]
GRIDS["time"] = tuple(
    point | {"learning_rate": 0.01} for point in GRIDS["bool"] if point["num_leaves"] in (4, 8)
)
"""Events of an interval are rare: with larger steps the first trees are noise, and the stop comes before more."""

BAGGING: dict[str, Any] = {"bagging_fraction": 0.7, "bagging_freq": 1}
"""Settings with which each tree sees rows drawn anew."""

OBJECTIVES: dict[str, dict[str, Any]] = {
    "bool": {"objective": "binary", "metric": "binary_logloss"},
    "class": {"objective": "multiclass", "metric": "multi_logloss"},
    "list": {"objective": "binary", "metric": "binary_logloss"},
    "number": {
        "objective": "huber",
        "alpha": HUBER_DELTA,
        "metric": "huber",
    },  # NEST's loss, on the task's scale
    "time": {"objective": "binary", "metric": "None"},  # of the event in an interval; see `_levelled_loss`
}


@dataclass(frozen=True)
class FittedBoosters:
    """The boosters of one task: one, or one per label of a list task."""

    boosters: "list[lgb.Booster]"
    classes: tuple[str, ...]
    grid_point: Mapping[str, Any]
    # validation AP, then the negative log loss; of a number or a time the negative loss alone; larger is better
    merit: tuple[float, float]
    validation: dict[str, float | None]  # the disclosable metrics
    trials: tuple[dict[str, Any], ...] = ()  # of each grid point its settings and its disclosable metrics


def grid_of(label_type: str, *, bagging: bool) -> tuple[dict[str, Any], ...]:
    """Return the grid of a label type; with `bagging` each of its points draws rows, so that seeds differ."""
    return tuple((BAGGING if bagging else {}) | point for point in GRIDS[label_type])


def with_small_leaves(grid: Sequence[Mapping[str, Any]], rows: int) -> tuple[dict[str, Any], ...]:
    """Return a grid for few training rows, of which a leaf may hold fewer than MIN_ROWS: a tenth, but at least one."""
    leaf = max(1, min(MIN_ROWS, rows // FEW_ROWS_PER_LEAF_ROW))
    return tuple({"min_data_in_leaf": leaf, **point} for point in grid)


def fit(
    labels: Labels,
    features: sparse.csr_matrix,
    *,
    grid: Sequence[Mapping[str, Any]] | None = None,
    seed: int,
    telemetry: Telemetry,
) -> FittedBoosters:
    """Return the boosters of the grid point that is best on the validation split; default: the label type's grid."""
    label_type = labels.task.label_type
    classes = commonest_labels(labels) if label_type == "list" else labels.task.classes
    by_loss = label_type in WITHOUT_CLASSES
    truth = loss_targets(labels) if by_loss else labels_truth(labels, classes)
    data = (_Hazards if label_type == "time" else _Data).of(features, truth, labels)
    columns: list[int | None] = [None] if label_type == "class" else list(range(truth.shape[1]))
    if label_type == "time":
        columns = [0]
    tuning_columns, remaining_columns = columns[:TUNING_LABELS], columns[TUNING_LABELS:]
    grid = GRIDS[label_type] if grid is None else grid
    total = len(grid) * len(tuning_columns) + len(remaining_columns)
    progress = telemetry.progress("lightgbm", total=total, unit="boosters")
    settings = COMMON | OBJECTIVES[label_type] | {"seed": seed}
    if label_type == "class":
        settings["num_class"] = len(classes)
    trials = []
    for number, point in enumerate(grid):
        boosters = [
            data.boost(data.scaled({**settings, **point}), column, progress) for column in tuning_columns
        ]
        trials.append(FittedBoosters(boosters, tuple(classes), point, *data.judge(boosters, tuning_columns)))
        telemetry.trial(number, trials[-1].validation)
    best = max(trials, key=lambda trial: trial.merit)
    remaining = [
        data.boost(data.scaled({**settings, **best.grid_point}), column, progress)
        for column in remaining_columns
    ]
    points = tuple({"settings": trial.grid_point, **trial.validation} for trial in trials)
    return replace(best, boosters=best.boosters + remaining, trials=points)


def commonest_labels(labels: Labels) -> tuple[str, ...]:
    """Return the labels of a list task with most training rows; ties stay in the task's order."""
    classes = labels.task.classes
    in_train = labels.split == "train"
    positives = labels_truth(labels, classes)[in_train].sum(axis=0)
    learnable = [k for k in np.argsort(-positives, kind="stable") if 0 < positives[k] < in_train.sum()]
    return tuple(classes[k] for k in learnable[:LABELS])


def labels_truth(labels: Labels, classes: tuple[str, ...]) -> np.ndarray:
    """Return the truth as bool [rows, classes]; [rows, 1] for a bool task."""
    columns = ("true",) if labels.task.label_type == "bool" else classes
    return truth_table(labels.label, labels.task.label_type, columns)


@dataclass(frozen=True)
class _Data:
    """Training and validation rows, binned once; only the labels differ between boosters."""

    storage: Mapping[str, Any]  # how LightGBM holds the rows, which changes no tree
    train: "lgb.Dataset"
    val: "lgb.Dataset"
    val_features: sparse.csr_matrix
    train_truth: np.ndarray  # bool [rows, classes]; f64 [rows, 1] of a number, on its scale
    val_truth: np.ndarray
    val_subject_id: np.ndarray
    patience: int
    task: Task
    is_disclosable: bool  # a loss of the validation rows of a number or a time
    train_rows: int  # of the labels, also where each has several intervals

    @classmethod
    def of(cls, features: sparse.csr_matrix, truth: np.ndarray, labels: Labels) -> Self:
        import lightgbm as lgb

        label_type = labels.task.label_type
        # a row of a class task is left out if its class has no training rows
        has_class = truth.any(axis=1) | (label_type != "class")
        train, val = (np.flatnonzero((labels.split == name) & has_class) for name in ("train", "val"))
        storage = {"is_enable_sparse": (len(train) + len(val)) * features.shape[1] > MOST_DENSE_CELLS}
        settings = COMMON | storage
        train_set = lgb.Dataset(features[train], np.zeros(len(train)), params=settings).construct()
        val_set = lgb.Dataset(
            features[val], np.zeros(len(val)), params=settings, reference=train_set
        ).construct()
        outcomes = truth[train], truth[val], labels.subject_id[val]
        is_disclosable = label_type == "number" and is_validation_disclosable(labels)
        return cls(
            storage,
            train_set,
            val_set,
            features[val],
            *outcomes,
            PATIENCE[label_type],
            labels.task,
            is_disclosable,
            len(train),
        )

    def scaled(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings of a booster as they are meant for these rows."""
        return settings

    def boost(self, settings: Mapping[str, Any], column: int | None, progress: Progress) -> "lgb.Booster":
        """Fit one booster on one column of the truth or, for None, on all columns as a multi-class target."""
        import lightgbm as lgb

        self.train.set_label(_target(self.train_truth, column))
        self.val.set_label(_target(self.val_truth, column))
        stop = lgb.early_stopping(self.patience, verbose=False)
        metric = _levelled_loss if self.task.label_type == "time" else None
        booster = lgb.train(
            {**settings, **self.storage},
            self.train,
            ROUNDS,
            valid_sets=[self.val],
            feval=metric,
            callbacks=[stop],
        )
        progress.advance(1)
        return booster

    def judge(
        self, boosters: "Sequence[lgb.Booster]", columns: Sequence[int | None]
    ) -> tuple[tuple[float, float], dict[str, float | None]]:
        """Return the merit on validation and its disclosable metrics: no score where few have the outcome.

        AP is macro over the classes with both outcomes in validation; without any the log loss alone decides.
        """
        rounds = float(np.mean([booster.best_iteration for booster in boosters]))
        if self.task.label_type in WITHOUT_CLASSES:
            return self._judge_by_loss(boosters[0], rounds)
        places = [column for column in columns if column is not None]
        truth = self.val_truth if None in columns else self.val_truth[:, places]
        ap = macro_average_precision(truth, probabilities(boosters, self.val_features))
        log_loss = float(np.mean([next(iter(b.best_score["valid_0"].values())) for b in boosters]))
        is_disclosable = len(scorable(truth, self.val_subject_id)) > 0
        return (-1.0 if ap is None else ap, -log_loss), {
            "average_precision": ap if is_disclosable else None,
            "log_loss": log_loss if is_disclosable else None,
            "rounds": rounds,
        }

    def _judge_by_loss(
        self, booster: "lgb.Booster", rounds: float
    ) -> tuple[tuple[float, float], dict[str, float | None]]:
        loss = self.loss(booster)
        return (-loss, 0.0), {"loss": loss if self.is_disclosable else None, "rounds": rounds}

    def loss(self, booster: "lgb.Booster") -> float:
        """Return the mean loss of the validation rows of a number or a time."""
        return validation_loss(
            np.asarray(booster.predict(self.val_features))[:, None], self.val_truth, self.task
        )


class _Hazards(_Data):
    """Training and validation intervals: a row for each that is observed, with its number as a column."""

    @classmethod
    def of(cls, features: sparse.csr_matrix, truth: np.ndarray, labels: Labels) -> Self:
        matrix, event, rows = interval_rows(features, truth)
        of_intervals = super().of(matrix, event[:, None], labels.take(rows))
        return replace(
            of_intervals,
            is_disclosable=is_validation_disclosable(labels),
            train_rows=int(np.count_nonzero(labels.split == "train")),
        )

    def scaled(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the settings with as many patients' rows in a leaf as for other tasks, not as many intervals."""
        intervals = len(self.train_truth) / self.train_rows
        return settings | {"min_data_in_leaf": round(settings["min_data_in_leaf"] * intervals)}

    def loss(self, booster: "lgb.Booster") -> float:
        """Return the mean loss of the validation intervals, which orders models as that of the rows does."""
        return float(next(iter(booster.best_score["valid_0"].values())))


def _levelled_loss(probability: np.ndarray, rows: "lgb.Dataset") -> tuple[str, float, bool]:
    """Return LightGBM's name, value and direction of the loss of intervals by which a time's booster stops."""
    target = np.asarray(rows.get_label())
    return "levelled_loss", levelled_hazard_loss(logit(probability)[:, None], target[:, None]), False


def _target(truth: np.ndarray, column: int | None) -> np.ndarray:
    target: np.ndarray = truth.argmax(axis=1) if column is None else truth[:, column]
    return target.astype(int) if truth.dtype == bool else target


def predictions(boosters: "Sequence[lgb.Booster]", features: sparse.csr_matrix, task: Task) -> np.ndarray:
    """Return what the boosters of a task predict: probabilities, or f64 [rows, 1], the numbers, or [rows, times]."""
    if task.label_type == "time":
        hazards = [
            probabilities(boosters, with_interval(features, interval))
            for interval in range(len(task.times_days))
        ]
        return np.cumprod(1 - np.hstack(hazards), axis=1)
    outputs = probabilities(boosters, features)
    return from_scale(outputs, task.scale) if task.label_type == "number" else outputs


def probabilities(boosters: "Sequence[lgb.Booster]", features: sparse.csr_matrix) -> np.ndarray:
    """Return [rows, classes]: all classes of one multi-class booster, or one column per booster."""
    columns = [np.asarray(booster.predict(features)) for booster in boosters]
    return columns[0] if columns[0].ndim == 2 else np.stack(columns, axis=1)


def importance(boosters: "Sequence[lgb.Booster]", columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the columns with the largest total split gain over all boosters, and their share of it, largest first."""
    gains = [booster.feature_importance("gain", iteration=booster.best_iteration) for booster in boosters]
    gain = sum(gains, start=np.zeros(len(columns)))
    share = gain / max(gain.sum(), np.finfo(float).tiny)
    first = np.argsort(-share, kind="stable")[:LISTED_COLUMNS]
    return [
        {"column": columns[place], "share": round(float(share[place]), 6)} for place in first if share[place]
    ]

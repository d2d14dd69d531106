"""The `temporal` command: models trained on the patients of earlier years, to be scored on those of later years.

LightGBM takes the settings that were chosen on all years, and the frozen probe the encoder pretrained on all years:
neither learns a label of a later year. Test patients of every year are scored.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from lightning_fabric import Fabric

from nest_model.baselines.boosting import MIN_ROWS, fit, probabilities
from nest_model.baselines.counts import common_columns, count_features
from nest_model.data.history import select
from nest_model.data.labels import PART_KEY, Labels, untrainable_reason, write_scores
from nest_model.data.periods import earlier_periods, periods_of
from nest_model.data.predictions import EARLIER_LABELS, earlier_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from nest_model.evaluation.linear_probe import fit_probe
from nest_model.evaluation.metrics import evaluate, headline
from nest_model.model import checkpoint
from nest_model.model.classifier import FrozenFeatures
from nest_model.training.finetuning_task import select_examples
from nest_model.training.scoring import count_rows, score
from nest_model.training.telemetry import Telemetry
from schemas.contract import read_table, write_table
from schemas.io.outputs import remove_outputs, write_json
from schemas.io.verify import is_written, verified
from schemas.tables.labels import labels_schema

MODELS = ("lightgbm", "probe")
ROW_BUDGET = 8_192


def run(
    *,
    labels: Path,
    seqset: Path,
    vocab: Path,
    subject_years: Path,
    pretrained_model: Path,
    lightgbm_model: Path,
    out: Path,
    predictions: Path,
    seed: int,
    fabric: Fabric,
    telemetry: Telemetry,
) -> None:
    """Write `out`/temporal.json, the periods trained on, and the predictions of each of `MODELS`.

    `EARLIER_LABELS` is written too, on which `finetune` trains NEST in the same way.

    Without two periods, for another than a yes-or-no outcome, or with earlier patients of one outcome only,
    `temporal.json` has a reason and there are no predictions.

    Args:
        lightgbm_model: the folder of the task's LightGBM on all years.
        predictions: the file of the yardsticks; see `earlier_predictions`.

    Raises:
        NestError: the inputs do not belong together.
    """
    remove_outputs(
        out / EARLIER_LABELS, *(earlier_predictions(predictions, model) for model in ("nest", *MODELS))
    )
    all_labels = Labels.read(labels)
    period = periods_of(subject_years, all_labels.subject_id)
    if period is None or all_labels.task.label_type != "bool":
        why = "the patients are not of two periods" if period is None else "the outcome is not yes or no"
        _finish_without_models(out, why, telemetry)
        return
    earlier = earlier_periods(period, all_labels.split == "train")
    remaining = np.flatnonzero(np.isin(period, earlier) | (all_labels.split == "test"))
    table = all_labels.take(remaining)
    if (reason := untrainable_reason(table)) is not None:
        _finish_without_models(out, f"of the earlier patients, {reason}", telemetry)
        return
    seqsets = SeqSets.read(seqset)
    fits: dict[str, Callable[[], np.ndarray | None]] = {
        "lightgbm": lambda: _tree_probabilities(
            table, seqsets, vocab, lightgbm_model / "config.json", seed=seed, telemetry=telemetry
        ),
        "probe": lambda: _probe_probabilities(
            table, seqsets, pretrained_model, fabric, seed=seed, telemetry=telemetry
        ),
    }
    result: dict[str, float] = {}
    for model in MODELS:
        if (probability := fits[model]()) is not None:
            file = earlier_predictions(predictions, model)
            write_scores(file, table, model, probability)
            result |= {f"earlier_{model}_{name}": value for name, value in headline(evaluate(file)).items()}
    schema = labels_schema("bool")
    metadata = {"task": table.task.model_dump_json(), PART_KEY: "earlier patients"}
    rows = read_table(labels, schema).take(remaining)
    write_table(rows, out / EARLIER_LABELS, schema, made_by="temporal", metadata=metadata)
    write_json(out / "temporal.json", {"earlier": earlier})
    telemetry.result(result)


def _finish_without_models(out: Path, reason: str, telemetry: Telemetry) -> None:
    """Write why there is no model of earlier patients; the command has a result all the same, one without scores."""
    write_json(out / "temporal.json", {"reason": reason})
    telemetry.result({})


def _tree_probabilities(
    labels: Labels, seqsets: SeqSets, vocab: Path, config: Path, *, seed: int, telemetry: Telemetry
) -> np.ndarray | None:
    """Return LightGBM's probabilities; None if there is no LightGBM on all years, or no common column."""
    if not is_written(config):
        return None
    tokens = read_tokens(vocab, seqsets.vocab_sha256)
    rows = labels.subject_id, labels.encounter_id, labels.predict_at_us
    selection = select(seqsets, labels.task.features, *rows)
    features = count_features(seqsets, selection, len(tokens))
    columns = common_columns(features[np.flatnonzero(labels.split == "train")], MIN_ROWS)
    if not len(columns):
        return None
    grid = [json.loads(verified(config).read_text())["grid_point"]]
    model = fit(labels, features[:, columns], grid=grid, seed=seed, telemetry=telemetry)
    return probabilities(model.boosters, features[:, columns])


def _probe_probabilities(
    labels: Labels, seqsets: SeqSets, encoder_folder: Path, fabric: Fabric, *, seed: int, telemetry: Telemetry
) -> np.ndarray:
    """Return the probabilities of a logistic regression on the frozen pretrained encoder."""
    encoder, _ = checkpoint.load_pretrained(encoder_folder, vocab_sha256=seqsets.vocab_sha256)
    selection, _ = select_examples(labels, seqsets, encoder)
    progress = telemetry.progress("probe", total=int(selection.rows.sum()), unit="rows")
    module = FrozenFeatures(encoder).to(fabric.device)
    advance = count_rows(progress, selection, fabric)
    with fabric.autocast():
        rows = score(module, seqsets, selection, fabric, row_budget=ROW_BUDGET, advance=advance).numpy()
    probe, _ = fit_probe(labels, rows, seed=seed)
    return probe.probabilities(rows, labels.task)

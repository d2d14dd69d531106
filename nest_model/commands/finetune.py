"""The `finetune` command: from a pretrained model and a cohort's labels to a task model and its predictions."""

import copy
import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch

from nest_model.config import Readout
from nest_model.data.labels import Labels, untrainable_reason, write_scores
from nest_model.data.predictions import WITHOUT_PRETRAINING, probe_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.linear_probe import fit_probe
from nest_model.evaluation.metrics import evaluate, headline
from nest_model.model import checkpoint
from nest_model.model.encoder import Encoder
from nest_model.options import refuse_idle_shuffle
from nest_model.recipe import Recipe, result_fields
from nest_model.training.finetuning_task import FineTuning
from nest_model.training.freezing import freeze_blocks
from nest_model.training.fsdp import whole_weights
from nest_model.training.memory import within_memory
from nest_model.training.model_card import classifier_readme
from nest_model.training.not_trainable import write_not_trainable
from nest_model.training.rate_search import train, with_rate_of_first_seed
from nest_model.training.recipe import FINETUNING, Start, finetuning_recipe
from nest_model.training.runtime import Runtime
from nest_model.training.seeds import (
    finished_metrics_on_ranks,
    list_other_seeds,
    model_of_seed,
    run_record,
    train_seeds,
)
from nest_model.training.state import StateFolder
from nest_model.training.telemetry import Telemetry
from schemas.errors import NestError
from schemas.io.outputs import remove_outputs, write_json

log = logging.getLogger("nest")


def finetune_seeds(
    *,
    seeds: Sequence[int],
    pretraining_seeds: bool,
    pretrained_model: Path,
    out: Path,
    predictions: Path,
    runtime: Runtime,
    recipe: Mapping[str, Any] = MappingProxyType({}),
    **values: Any,
) -> None:
    """Fine-tune with each seed as `finetune` does; with several seeds, skip those already trained.

    Args:
        pretraining_seeds: start each seed but the first from the model pretrained with that seed.

    Raises:
        NestError: as `finetune`; or, before any training, a seed's pretrained model is missing or of no use.
    """
    if pretraining_seeds and len(seeds) == 1:
        raise NestError(
            "--pretraining-seeds starts each further seed from its own pretrained model, but there is only one seed; "
            "name several with --seeds, or leave out --pretraining-seeds."
        )
    if pretraining_seeds and values.get("start") == "fresh":
        raise NestError(
            "--pretraining-seeds has no effect with --start fresh, which reads no pretrained weights; leave one of the "
            "two out."
        )
    origins = {seed: model_of_seed(pretrained_model, seed) for seed in seeds[1:] if pretraining_seeds}
    _refuse_other_pretraining(pretrained_model, origins)
    fabric = runtime.fabric
    skip_finished = fabric.broadcast(len(seeds) > 1 or bool(list_other_seeds(out)))

    def train_seed(seed: int, model: Path, file: Path, telemetry: Telemetry) -> dict[str, float] | None:
        return finetune(
            seed=seed,
            recipe=recipe if seed == seeds[0] else with_rate_of_first_seed(recipe, out, fabric),
            pretrained_model=origins.get(seed, pretrained_model),
            out=model,
            predictions=file,
            runtime=replace(runtime, telemetry=telemetry),
            skip_finished=skip_finished,
            **values,
        )

    train_seeds(train_seed, seeds, out, predictions, runtime.telemetry, writes=fabric.is_global_zero)


def finetune(
    *,
    pretrained_model: Path,
    labels: Path,
    seqset: Path,
    out: Path,
    predictions: Path,
    seed: int,
    runtime: Runtime,
    recipe: Mapping[str, Any] = MappingProxyType({}),
    key: str = "",
    readout: Readout | None = None,
    freeze: Sequence[str] = (),
    shuffle_sets: bool = False,
    context: Mapping[str, Any] = MappingProxyType({}),
    start: Start = "pretrained",
    labelled_share: float = 1.0,
    skip_finished: bool = False,
) -> dict[str, float] | None:
    """Fine-tune a pretrained model for one task; write its folder and the predictions of every split.

    A `LinearProbe` on the frozen pretrained model is fitted too; its predictions go to `probe` beside
    `predictions`. A task that cannot be learnt writes `not_trainable.json` instead of a model; that is no error.
    `recipe` and `key` are as for `pretrain`.

    Args:
        readout: the readout of the task's head; None: the pretrained model's.
        freeze: those of `systems.BLOCKS` to keep as pretrained.
        shuffle_sets: let earlier sets trade their contents, drawn with the seed, see `shuffle_before_target`.
        context: limits of what is read of a patient, in place of the pretrained model's.
        start: `fresh` reads only the config and the measured items of the pretrained model and draws the encoder's
            weights with the seed: the initial weights of a pretraining with that seed, except for shared embeddings,
            which become a plain table. No probe is fitted then.
        labelled_share: of the training and validation patients whose labels are used, see `Labels.with_share`.
        skip_finished: skip a model that an identical training has already finished.

    Returns:
        The scores and epochs; None for a task that cannot be learnt, and {} on ranks other than the first.

    Raises:
        NestError: another vocabulary, features later than their prediction, frozen blocks of fresh weights, sets to be
            shuffled that are not read, or a full disk.
        Stopped: a request to stop came; the state is saved.
    """
    start_time, fabric, telemetry = time.monotonic(), runtime.fabric, runtime.telemetry
    table = Labels.read(labels).with_share(labelled_share, seed)
    reason = untrainable_reason(table)
    if reason is not None:
        if fabric.is_global_zero:
            write_not_trainable(table, reason, out, predictions, telemetry)
        return None
    seqsets = SeqSets.read(seqset)
    encoder, parent = checkpoint.load_pretrained(pretrained_model, vocab_sha256=seqsets.vocab_sha256)
    if start == "fresh":
        encoder = _untrained_encoder(encoder, seed, freeze)
    if readout is not None:
        encoder.config = replace(encoder.config, readout=readout)
    encoder.config = replace(encoder.config, **dict(context))
    if shuffle_sets:
        refuse_idle_shuffle(encoder.config)
        encoder.config = replace(encoder.config, shuffle_seed=seed)
    freeze_blocks(encoder, freeze)
    if (preset := str(parent.training.get("preset"))) not in FINETUNING:
        raise NestError(
            f"{pretrained_model / 'config.json'}: training.preset is not one of {', '.join(FINETUNING)}; train the "
            "model again."
        )
    preset_recipe = finetuning_recipe(parent.system, preset, table.task.label_type, start)
    recipe_used = preset_recipe.for_training(int(np.count_nonzero(table.split == "train")), recipe)
    recipe_used = recipe_used.on_device(fabric.device.type)

    def make_task() -> FineTuning:
        torch.manual_seed(seed)
        return FineTuning(table, seqsets, copy.deepcopy(encoder), recipe_used, runtime)

    training_task = make_task()
    origin = checkpoint.weights_sha256(pretrained_model) if start == "pretrained" else start
    run_key = _run_key(training_task, origin, recipe_used, seed, key, freeze)
    outputs = _outputs(out, predictions, start)
    states = StateFolder(out / "state", run_key)
    if skip_finished and (content := finished_metrics_on_ranks(out, run_key, outputs, fabric)):
        log.info("%s: seed %d is already trained", table.task.cohort, seed)
        if fabric.is_global_zero:
            states.clear()  # left by a run that was killed just before this line
        result = _result(content)
        telemetry.result(result)
        return result
    # the probe reads the encoder before it is trained
    rows = (
        within_memory(training_task.frozen_features, training_task, runtime)
        if start == "pretrained"
        else None
    )
    log.info("%s: %s", table.task.cohort, training_task.context_summary)
    training = train(
        training_task,
        recipe_used,
        runtime,
        make_another=make_task,
        seed=seed,
        states=states,
    )
    training_task, progress, module = training.task, training.position, training.module

    probability, (metrics, _) = within_memory(
        lambda: (training_task.predict(module), training_task.evaluate(module)), training_task, runtime
    )
    weights = whole_weights(training_task.module)
    if not fabric.is_global_zero:
        return {}
    summary: dict[str, Any] = training_task.summary() | {
        "seed": seed,
        "recipe": asdict(training.recipe),
        **training.record,
        "preset": preset,
        "pretraining_seed": parent.training.get("seed"),
        "epochs": len(progress.history),
        "best_epoch": progress.best_epoch,
        "frozen": list(freeze),
    }
    if start == "fresh":
        summary["start"] = start
    card = replace(
        parent, model=encoder.config, training=summary, task=table.task, dropout=recipe_used.dropout
    )
    checkpoint.save(out, weights, card, classifier_readme(card, metrics))
    test_metrics = _write_predictions(
        predictions, table, parent.system if rows is not None else WITHOUT_PRETRAINING, probability
    )
    content = {"validation": metrics, "test": test_metrics, **summary, "history": progress.history}
    if rows is not None:
        probe, probe_validation = fit_probe(table, rows, seed=seed)
        probe.save(out / "probe.safetensors")
        probabilities = probe.probabilities(rows, table.task)
        probe_test = _write_predictions(probe_predictions(predictions), table, "probe", probabilities)
        content["probe"] = {"validation": probe_validation, "test": probe_test}
    if fabric.world_size == 1:  # with more ranks the weights may be sharded
        attention = within_memory(training_task.attention, training_task, runtime)
        content |= {} if attention is None else {"attention": attention}
    remove_outputs(out / "not_trainable.json")
    write_json(out / "metrics.json", content | run_record(run_key, outputs))
    states.clear()
    result = _result(content)
    telemetry.result(result, seconds=round(time.monotonic() - start_time, 1))
    return result


def _refuse_other_pretraining(first: Path, origins: Mapping[int, Path]) -> None:
    """Refuse pretrained models that differ from the first in more than their seed.

    Raises:
        NestError: a model is missing, or has another system, seed, recipe or shape.
    """
    for seed, folder in origins.items():
        if not (folder / "config.json").exists():
            raise NestError(
                f"{folder}: no model pretrained with seed {seed} is here; pretrain with --seeds first."
            )
        first_card, card = (checkpoint.read_card(path) for path in (first, folder))
        first_recipe, recipe = (result_fields(one.training.get("recipe", {})) for one in (first_card, card))
        is_same = (first_card.system, first_card.model, first_recipe) == (card.system, card.model, recipe)
        if card.training.get("seed") != seed or not is_same:
            raise NestError(
                f"{folder}: not pretrained like {first} with seed {seed}; pretrain both again with --seeds."
            )


def _outputs(out: Path, predictions: Path, start: Start) -> list[Path]:
    """Return the files that a training writes before its `metrics.json`."""
    names = checkpoint.FILES if start == "fresh" else (*checkpoint.FILES, "probe.safetensors")
    scores = [predictions] if start == "fresh" else [predictions, probe_predictions(predictions)]
    return [
        *(out / name for name in names),
        *(path for file in scores for path in (file, file.parent / "metrics.json")),
    ]


def _result(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a result line from the content of `metrics.json`."""
    frozen = headline(content["probe"]["test"]) if "probe" in content else {}
    return (
        headline(content["test"])
        | {f"frozen_{name}": value for name, value in frozen.items()}
        | {"epochs": content["epochs"]}
    )


def _untrained_encoder(encoder: Encoder, seed: int, freeze: Sequence[str]) -> Encoder:
    """Return an encoder of the same shape and vocabulary with newly drawn weights."""
    if freeze:
        raise NestError(
            f"freeze {','.join(freeze)} keeps pretrained weights, but start fresh has none; leave out freeze or start."
        )
    torch.manual_seed(seed)
    new_encoder = type(encoder)(encoder.config)
    for old, new in zip(encoder.buffers(), new_encoder.buffers(), strict=True):
        new.copy_(old)  # what it knows of the tokens
    return new_encoder


def _write_predictions(
    predictions: Path, table: Labels, model: str, probability: np.ndarray
) -> dict[str, Any]:
    """Write a model's predictions for every row and its test metrics beside them; return the metrics."""
    write_scores(predictions, table, model, probability)
    metrics = table.without_withheld_counts(evaluate(predictions))
    write_json(predictions.parent / "metrics.json", metrics)
    return metrics


def _run_key(
    training_task: FineTuning, origin: str, recipe: Recipe, seed: int, key: str, freeze: Sequence[str]
) -> str:
    digest = hashlib.sha256(origin.encode())
    encoder = training_task.module.encoder
    digest.update(encoder.config.to_json().encode())
    for buffer in encoder.buffers():
        digest.update(buffer.cpu().numpy().tobytes())
    digest.update(json.dumps([recipe.result_fields(), seed, key, *sorted(freeze)]).encode())
    for part in training_task.fingerprint():
        digest.update(part)
    return digest.hexdigest()

"""Fine-tuning as a command: from a pretrained model and a cohort's labels to a model and its predictions."""

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch

from nest_model.data.labels import Labels, untrainable_reason, write_scores
from nest_model.data.predictions import WITHOUT_PRETRAINING, probe_predictions
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.linear_probe import fit_probe
from nest_model.evaluation.metrics import evaluate, headline
from nest_model.model import checkpoint
from nest_model.model.encoder import NestModel
from nest_model.training.finetuning_task import FineTuning
from nest_model.training.freezing import freeze_blocks
from nest_model.training.fsdp import whole_weights
from nest_model.training.memory import within_memory
from nest_model.training.model_card import classifier_readme
from nest_model.training.not_trainable import write_not_trainable
from nest_model.training.recipe import FINETUNING, SEVERAL_CLASSES, Recipe
from nest_model.training.runtime import Runtime
from nest_model.training.seeds import (
    finished_metrics,
    list_other_seeds,
    model_of_seed,
    run_record,
    train_seeds,
)
from nest_model.training.state import StateFolder
from nest_model.training.telemetry import Telemetry
from nest_model.training.trainer import fit
from schemas.errors import NestError
from schemas.io.outputs import remove_outputs, write_json

log = logging.getLogger("nest")

Start = Literal["pretrained", "fresh"]


def finetune_seeds(
    *,
    seeds: Sequence[int],
    pretraining_seeds: bool,
    pretrained: Path,
    out: Path,
    predictions: Path,
    runtime: Runtime,
    **values: Any,
) -> None:
    """Fine-tune with each seed, as `finetune` does; of several, one that is trained already is not trained again.

    Args:
        pretraining_seeds: begin each seed but the first at the model pretrained with it.

    Raises:
        NestError: as `finetune`; or, before anything is trained, a seed's pretrained model is not there.
    """
    if pretraining_seeds and len(seeds) == 1:
        raise NestError(
            "--pretraining-seeds begins each further seed at its own pretrained model, and there is one seed alone; "
            "name several with --seeds, or leave it out."
        )
    origins = {seed: model_of_seed(pretrained, seed) for seed in seeds[1:] if pretraining_seeds}
    _refuse_other_pretraining(pretrained, origins)
    fabric = runtime.fabric
    skip_finished = fabric.broadcast(len(seeds) > 1 or bool(list_other_seeds(out)))

    def train(seed: int, model: Path, file: Path, telemetry: Telemetry) -> dict[str, float] | None:
        return finetune(
            seed=seed,
            pretrained=origins.get(seed, pretrained),
            out=model,
            predictions=file,
            runtime=replace(runtime, telemetry=telemetry),
            skip_finished=skip_finished,
            **values,
        )

    train_seeds(train, seeds, out, predictions, runtime.telemetry, writes=fabric.is_global_zero)


def finetune(
    *,
    pretrained: Path,
    labels: Path,
    seqset: Path,
    out: Path,
    predictions: Path,
    seed: int,
    runtime: Runtime,
    recipe: Mapping[str, float | None] = MappingProxyType({}),
    key: str = "",
    readout: str | None = None,
    freeze: Sequence[str] = (),
    start: Start = "pretrained",
    skip_finished: bool = False,
) -> dict[str, float] | None:
    """Fine-tune a pretrained model for one task; write its folder and the predictions of every split.

    A `Probe` on the pretrained model's frozen rows goes with it, its predictions into `probe` beside `predictions`.
    A task that cannot be learnt writes `not_trainable.json` and no model, and is no error. `recipe` and `key` are
    as for `pretrain`.

    Args:
        readout: the config's, of the task's head; None: as the pretrained model says.
        freeze: of `options.BLOCKS`, which stay as they were pretrained.
        start: `fresh`: of the pretrained model only its config is read and what its tokens measure, and the encoder
            begins at weights drawn with the seed, those its pretraining with that seed would begin at but for
            embeddings shared there: a plain table. There is no probe then.
        skip_finished: leave a model alone that this very training wrote to its end.

    Returns:
        Its scores and epochs; None of a task that cannot be learnt, and on other ranks than the first {}.

    Raises:
        NestError: a foreign vocabulary, features later than their prediction, fresh weights that are to stay as they
            are, or a disk that is full.
        Stopped: asked to end; the state is saved.
    """
    began, fabric, telemetry = time.monotonic(), runtime.fabric, runtime.telemetry
    table = Labels.read(labels)
    reason = untrainable_reason(table)
    if reason is not None:
        if fabric.is_global_zero:
            write_not_trainable(table, reason, out, predictions, telemetry)
        return None
    seqsets = SeqSets.read(seqset)
    encoder, parent = checkpoint.load_pretrained(pretrained, vocab_sha256=seqsets.vocab_sha256)
    if start == "fresh":
        encoder = _fresh(encoder, seed, freeze)
    if readout is not None:
        encoder.config = replace(encoder.config, readout=readout)
    freeze_blocks(encoder, freeze)
    recipes = FINETUNING if table.task.label_type == "bool" else SEVERAL_CLASSES
    if str(parent.training.get("preset")) not in recipes:
        raise NestError(
            f"{pretrained / 'config.json'}: training.preset is none of {', '.join(recipes)}; train the model again."
        )
    usual = recipes[parent.training["preset"]].for_examples(int(np.count_nonzero(table.split == "train")))
    chosen = usual.with_changes(**recipe)
    torch.manual_seed(seed)
    trainee = FineTuning(table, seqsets, encoder, chosen, runtime)
    origin = checkpoint.weights_sha256(pretrained) if start == "pretrained" else start
    run_key = _run_key(trainee, origin, chosen, seed, key, freeze)
    outputs = _outputs(out, predictions, start)
    states = StateFolder(out / "state", run_key)
    if skip_finished and (content := finished_metrics(out, run_key, outputs, fabric)):
        log.info("%s: seed %d is trained already", table.task.cohort, seed)
        if fabric.is_global_zero:
            states.clear()  # of a run that was killed between its last file and this
        result = _result(content)
        telemetry.result(result)
        return result
    # before the encoder is trained
    rows = within_memory(trainee.frozen_features, trainee, runtime) if start == "pretrained" else None
    log.info("%s: %s", table.task.cohort, trainee.context_summary)
    reached, module = fit(trainee, chosen, runtime, seed=seed, states=states)

    probability, (metrics, _) = within_memory(
        lambda: (trainee.predict(module), trainee.evaluate(module)), trainee, runtime
    )
    weights = whole_weights(trainee.module)
    if not fabric.is_global_zero:
        return {}
    summary: dict[str, Any] = trainee.summary() | {
        "seed": seed,
        "recipe": asdict(chosen),
        "preset": parent.training["preset"],
        "pretraining_seed": parent.training.get("seed"),
        "epochs": len(reached.history),
        "best_epoch": reached.best_epoch,
        "frozen": list(freeze),
    }
    if start == "fresh":
        summary["start"] = start
    card = checkpoint.ModelCard(encoder.config, seqsets.vocab_sha256, summary, table.task, chosen.dropout)
    checkpoint.save(out, weights, card, classifier_readme(card, metrics))
    judged = _judge(predictions, table, "nest" if rows is not None else WITHOUT_PRETRAINING, probability)
    content = {"validation": metrics, "test": judged, **summary, "history": reached.history}
    if rows is not None:
        probe, chosen_by = fit_probe(table, rows, seed=seed)
        probe.save(out / "probe.safetensors")
        probabilities = probe.probabilities(rows, table.task.label_type)
        frozen = _judge(probe_predictions(predictions), table, "probe", probabilities)
        content["probe"] = {"validation": chosen_by, "test": frozen}
    if fabric.world_size == 1:  # elsewhere the weights may lie in parts
        content["attention"] = within_memory(trainee.attention, trainee, runtime)
    remove_outputs(out / "not_trainable.json")
    write_json(out / "metrics.json", content | run_record(run_key, outputs))
    states.clear()
    result = _result(content)
    telemetry.result(result, seconds=round(time.monotonic() - began, 1))
    return result


def _refuse_other_pretraining(first: Path, origins: Mapping[int, Path]) -> None:
    """Refuse models that differ from the first in anything but the seed of their pretraining.

    Raises:
        NestError: one is not there, is of another seed, or is of another recipe or shape.
    """
    for seed, folder in origins.items():
        if not (folder / "config.json").exists():
            raise NestError(
                f"{folder}: there is no model pretrained with seed {seed}; pretrain with --seeds first."
            )
        one, other = (checkpoint.read_card(path) for path in (first, folder))
        same = one.model == other.model and one.training.get("recipe") == other.training.get("recipe")
        if other.training.get("seed") != seed or not same:
            raise NestError(
                f"{folder}: not pretrained as {first} is, with seed {seed} in place of its own; pretrain both anew "
                "with --seeds."
            )


def _outputs(out: Path, predictions: Path, start: Start) -> list[Path]:
    """Return the files a training writes before its `metrics.json`."""
    names = checkpoint.FILES if start == "fresh" else (*checkpoint.FILES, "probe.safetensors")
    scores = [predictions] if start == "fresh" else [predictions, probe_predictions(predictions)]
    return [
        *(out / name for name in names),
        *(path for file in scores for path in (file, file.parent / "metrics.json")),
    ]


def _result(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the few numbers of a result line, of what `metrics.json` holds."""
    frozen = headline(content["probe"]["test"]) if "probe" in content else {}
    return (
        headline(content["test"])
        | {f"frozen_{name}": value for name, value in frozen.items()}
        | {"epochs": content["epochs"]}
    )


def _fresh(encoder: NestModel, seed: int, freeze: Sequence[str]) -> NestModel:
    """Return an encoder of the same shape and vocabulary with weights drawn anew."""
    if freeze:
        raise NestError(
            f"freeze {','.join(freeze)} leaves weights as they were pretrained, and fresh ones were not; leave freeze "
            "or start out."
        )
    torch.manual_seed(seed)
    fresh = NestModel(encoder.config)
    fresh.item_of_token.copy_(encoder.item_of_token)
    return fresh


def _judge(predictions: Path, table: Labels, model: str, probability: np.ndarray) -> dict[str, Any]:
    """Write what a model predicts for every row, and beside it what its test rows come to, which is returned."""
    write_scores(predictions, table, model, probability)
    judged = evaluate(predictions)
    write_json(predictions.parent / "metrics.json", judged)
    return judged


def _run_key(
    trainee: FineTuning, origin: str, recipe: Recipe, seed: int, key: str, freeze: Sequence[str]
) -> str:
    digest = hashlib.sha256(origin.encode())
    encoder = trainee.module.encoder
    digest.update(encoder.config.to_json().encode() + encoder.item_of_token.cpu().numpy().tobytes())
    digest.update(json.dumps([recipe.result_fields(), seed, key, *sorted(freeze)]).encode())
    for part in trainee.fingerprint():
        digest.update(part)
    return digest.hexdigest()

"""Pretraining as a command: from shards to a model's folder."""

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from nest_model.config import ModelConfig
from nest_model.data.code_groups import CodeGroups
from nest_model.data.measured import MeasuredItems
from nest_model.data.vocabulary import read_tokens
from nest_model.model import checkpoint
from nest_model.training.memory import within_memory
from nest_model.training.model_card import pretrained_readme
from nest_model.training.pretraining_task import Pretraining, PretrainingPatients
from nest_model.training.recipe import PRETRAINING, Recipe
from nest_model.training.runtime import Runtime
from nest_model.training.seeds import finished_metrics, list_other_seeds, run_record, train_seeds
from nest_model.training.state import StateFolder
from nest_model.training.telemetry import Telemetry
from nest_model.training.trainer import fit
from schemas.io.outputs import write_json

log = logging.getLogger("nest")


def pretrain_seeds(*, seeds: Sequence[int], out: Path, runtime: Runtime, **values: Any) -> None:
    """Pretrain with each seed, as `pretrain` does; of several, one that is trained already is not trained again."""
    fabric = runtime.fabric
    skip_finished = fabric.broadcast(len(seeds) > 1 or bool(list_other_seeds(out)))

    def train(seed: int, model: Path, _: Path, telemetry: Telemetry) -> dict[str, float]:
        return pretrain(
            seed=seed,
            out=model,
            runtime=replace(runtime, telemetry=telemetry),
            skip_finished=skip_finished,
            **values,
        )

    # a pretraining predicts nothing, and no file is there
    train_seeds(
        train, seeds, out, out / "predictions.parquet", runtime.telemetry, writes=fabric.is_global_zero
    )


def pretrain(
    *,
    seqset: Path,
    subjects: Path,
    vocab: Path,
    out: Path,
    model: str,
    position: str | None,
    seed: int,
    runtime: Runtime,
    recipe: Mapping[str, float | None] = MappingProxyType({}),
    key: str = "",
    skip_finished: bool = False,
    **changes: Any,
) -> dict[str, float]:
    """Pretrain a model and write its folder: weights, config, card, `metrics.json`.

    Args:
        model: "tiny", "paper", or "auto" (tiny on a CPU, paper on a GPU).
        position: the config's `cse_position`; None: as the model's preset says.
        recipe: what is other than in the preset's own; None: as there.
        key: of what the caller knows it to be made from, the code among it; no state of another is gone on with.
        skip_finished: leave a model alone that this very training wrote to its end.
        changes: of the preset's model config.

    Returns:
        Its validation metrics and epochs; on other ranks than the first {}.

    Raises:
        NestError: inputs that do not belong together, or a disk that is full.
        Stopped: asked to end; the state is saved.
    """
    began, fabric = time.monotonic(), runtime.fabric
    if model == "auto":
        model = "tiny" if fabric.device.type == "cpu" else "paper"
    patients = PretrainingPatients.read(seqset, subjects)
    if position is not None:
        changes["cse_position"] = position
    tokens = read_tokens(vocab, patients.seqsets.vocab_sha256)
    config = ModelConfig.preset(model, len(tokens), **changes)
    chosen = PRETRAINING[model].for_examples(len(patients.train)).with_changes(**recipe)
    torch.manual_seed(seed)
    code_groups = CodeGroups.of(tokens) if chosen.shares_embeddings else None
    trainee = Pretraining(patients, config, chosen, runtime, code_groups, MeasuredItems.of(tokens).item)
    for sentence in (foreseen := trainee.warnings):
        log.warning("%s", sentence)
    key_of_run = run_key(config, chosen, seed, patients, key)
    outputs = [out / name for name in checkpoint.FILES]
    states = StateFolder(out / "state", key_of_run)
    if skip_finished and (content := finished_metrics(out, key_of_run, outputs, fabric)):
        log.info("seed %d is pretrained already", seed)
        if fabric.is_global_zero:
            states.clear()  # of a run that was killed between its last file and this
        result = _result(content)
        runtime.telemetry.result(result)
        return result
    log.info(
        "pretraining %s (%.2f M weights) on %s", model, trainee.num_parameters / 1e6, trainee.context_summary
    )
    reached, module = fit(trainee, chosen, runtime, seed=seed, states=states)

    metrics = within_memory(
        lambda: {**trainee.evaluate(module)[0], **trainee.set_prediction(module)}, trainee, runtime
    )
    summary = trainee.summary(chosen, seed, reached) | {"preset": model, "device": fabric.device.type}
    card = checkpoint.ModelCard(config, patients.seqsets.vocab_sha256, summary)
    weights = trainee.whole_weights()
    if not fabric.is_global_zero:
        return {}
    beside_guesses = trainee.compare_with_guesses(metrics)
    judged = (
        beside_guesses["not_judged"] if len(patients.val) else []
    )  # without them it was said at the start
    for sentence in [*judged, *beside_guesses["not_learnt"]]:
        if sentence not in foreseen:
            log.warning("%s", sentence)
    checkpoint.save(out, weights, card, pretrained_readme(card, metrics, **beside_guesses))
    content = {"validation": metrics, **beside_guesses, **summary, "history": reached.history}
    write_json(out / "metrics.json", content | run_record(key_of_run, outputs))
    states.clear()
    result = _result(content)
    runtime.telemetry.result(result, seconds=round(time.monotonic() - began, 1))
    return result


def _result(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the few numbers of a result line, of what `metrics.json` holds."""
    return content["validation"] | {"epochs": len(content["history"])}


def run_key(
    config: ModelConfig, recipe: Recipe, seed: int, patients: PretrainingPatients, key: str = ""
) -> str:
    """Return what a saved state must agree on with the run that would go on from it."""
    digest = hashlib.sha256(config.to_json().encode())
    digest.update(json.dumps([recipe.result_fields(), seed, key]).encode())
    digest.update(patients.seqsets.content_sha256().encode())
    digest.update(patients.train.tobytes() + patients.val.tobytes())
    return digest.hexdigest()

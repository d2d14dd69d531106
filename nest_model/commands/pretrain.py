"""The `pretrain` command: from shards to a model's folder."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nest_model.config import ModelConfig
from nest_model.data.vocabulary import read_tokens
from nest_model.model import checkpoint
from nest_model.model.encoder import encoder_class
from nest_model.model.weights import BYTES_IN_TRAINING, BYTES_OF_WEIGHT, refuse_too_large
from nest_model.systems import systems
from nest_model.training.model_card import pretrained_readme
from nest_model.training.pretraining_data import PretrainingPatients
from nest_model.training.rate_search import with_rate_of_first_seed
from nest_model.training.recipe import pretraining_recipe
from nest_model.training.runtime import Runtime
from nest_model.training.seeds import finished_metrics_on_ranks, list_other_seeds, run_record, train_seeds
from nest_model.training.stages import PretrainingRun
from nest_model.training.state import StateFolder
from nest_model.training.telemetry import Telemetry
from schemas.io.outputs import write_json
from schemas.suppress import SMALLEST_SHOWN

log = logging.getLogger("nest")


def pretrain_seeds(
    *,
    seeds: Sequence[int],
    out: Path,
    runtime: Runtime,
    recipe: Mapping[str, Any] = MappingProxyType({}),
    **values: Any,
) -> None:
    """Pretrain with each seed as `pretrain` does; with several seeds, skip those already trained."""
    fabric = runtime.fabric
    skip_finished = fabric.broadcast(len(seeds) > 1 or bool(list_other_seeds(out)))

    def train(seed: int, model: Path, _: Path, telemetry: Telemetry) -> dict[str, float]:
        return pretrain(
            seed=seed,
            recipe=recipe if seed == seeds[0] else with_rate_of_first_seed(recipe, out, fabric),
            out=model,
            runtime=replace(runtime, telemetry=telemetry),
            skip_finished=skip_finished,
            **values,
        )

    # a pretraining writes no predictions; the path is only a placeholder
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
    system: str = "nest",
    position: str | None,
    seed: int,
    runtime: Runtime,
    recipe: Mapping[str, Any] = MappingProxyType({}),
    leave_out_last_set: bool = False,
    patient_share: float = 1.0,
    visit_types: bool = True,
    key: str = "",
    skip_finished: bool = False,
    **changes: Any,
) -> dict[str, float]:
    """Pretrain a model and write its folder: weights, config, card, `metrics.json`.

    Args:
        model: a preset, or "auto" (tiny on a CPU, paper on a GPU).
        system: one of `systems`, which says what of the config it reads.
        position: the config's `cse_position`; None: the preset's.
        recipe: changes to the preset's recipe; None keeps the preset's value.
        leave_out_last_set: do not read each patient's last filled set.
        patient_share: of the training and validation patients, see `PretrainingPatients.with_share`.
        visit_types: let a system that reads types of visit read those of the source.
        key: the caller's key of inputs and code; saved states with another key are ignored.
        skip_finished: skip a model that an identical training has already finished.
        changes: changes to the preset's model config.

    Returns:
        The validation metrics and epochs; {} on ranks other than the first.

    Raises:
        NestError: the inputs do not belong together, or the disk is full.
        Stopped: a request to stop came; the state is saved.
    """
    start_time, fabric = time.monotonic(), runtime.fabric
    if model == "auto":
        model = "tiny" if fabric.device.type == "cpu" else "paper"
    all_patients = PretrainingPatients.read(seqset, subjects, leave_out_last_set=leave_out_last_set)
    patients = all_patients.with_share(patient_share, seed)
    if position is not None:
        changes["cse_position"] = position
    tokens = read_tokens(vocab, patients.seqsets.vocab_sha256)
    config = ModelConfig.preset(model, len(tokens), system=system, **changes)
    if systems()[system].reads_visits and visit_types:
        config = replace(config, visit_types=patients.visit_types(config.context))
        if not config.visit_types:
            log.info(
                "%s learns without types of visit: the shards have none that %d training patients have.",
                systems()[system].title,
                SMALLEST_SHOWN,
            )
    recipe_used = pretraining_recipe(model, system).for_training(len(all_patients.train), recipe)
    recipe_used = recipe_used.on_device(fabric.device.type)
    recipe_used = recipe_used.for_share_of_examples(patient_share)
    run = PretrainingRun(system, model, config, recipe_used, seed, patients, tokens)
    run_key, outputs = run.key(key), [out / name for name in checkpoint.FILES]
    states = StateFolder(out / "state", run_key)
    if skip_finished and (content := finished_metrics_on_ranks(out, run_key, outputs, fabric)):
        log.info("seed %d is already pretrained", seed)
        if fabric.is_global_zero:
            states.clear()  # left by a run that was killed just before this line
        result = _result(content)
        runtime.telemetry.result(result)
        return result
    alone = fabric.world_size == 1 and fabric.device.type == "cpu"
    parameters = encoder_class(system).num_parameters(config)
    refuse_too_large(
        parameters, f"--system {system} --model {model}", BYTES_IN_TRAINING if alone else BYTES_OF_WEIGHT
    )
    stages = run.train(runtime, states)
    if not fabric.is_global_zero:
        return {}
    metrics, guess_comparison = stages.validation, stages.guess_comparison
    summary = stages.summary | {"preset": model, "device": fabric.device.type}
    card = checkpoint.ModelCard(system, config, patients.seqsets.vocab_sha256, summary)
    checkpoint.save(out, stages.model_weights, card, pretrained_readme(card, metrics, **guess_comparison))
    content = {"validation": metrics, **guess_comparison, **summary, "history": stages.history}
    write_json(out / "metrics.json", content | run_record(run_key, outputs))
    states.clear()
    result = _result(content)
    runtime.telemetry.result(result, seconds=round(time.monotonic() - start_time, 1))
    return result


def _result(content: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a result line from the content of `metrics.json`."""
    return {**content["validation"], "epochs": len(content["history"])}

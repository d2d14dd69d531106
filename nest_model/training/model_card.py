"""Write the model card (README) of a run: what a person needs to know before using the weights."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nest_model.systems import systems
from nest_model.training import paper_differences
from nest_model.training.guesses import table
from nest_model.training.hub_card import LICENCE, SCORES, USAGE, front_matter, hub_task
from nest_model.training.recipe import finetuning_recipe, fresh_rate_factor
from schemas.markdown import markdown_table
from schemas.nouns import with_noun
from schemas.suppress import suppress_count
from schemas.tables.labels import AS_LABELLED, Task

if TYPE_CHECKING:
    from nest_model.config import ModelConfig
    from nest_model.model.checkpoint import ModelCard

PAPER_EXAMPLES_PER_STEP = 36

_LIMITS = """\
## Intended use
Research on de-identified data, by people with access to the data it was trained on. Not a medical device: its
predictions must not change the care of anyone.

## Limits
- It reads tokens of one vocabulary, with its cuts and lookups; shards of another vocabulary are refused.
- It was trained on the subjects of one source, real or synthetic; other sources differ in coding and frequencies.
- Weights of models trained on people's data can reveal some of it.
- Probabilities are not calibrated after training; check the calibration before reading them as risks.
"""


_FILES = """\
## Files
- `model.safetensors`, `config.json`: the fine-tuned model, which `python -m nest_model predict` reads.
"""

_PROBE = """\
- `probe.safetensors`: the logistic regression on frozen pretrained features: *{title}, frozen*.
"""

_FRESH = """\
A yardstick: {title} fine-tuned by the same recipe from fresh weights, drawn with the seed, with a separate embedding
per token. {rate}
The gain of the pretrained {title} over it is what the pretraining is worth.
"""


_PREDICT = 'predict("seqset")  # each last set, at the task\'s own prediction time'
_PREDICT_AT = 'predict("seqset", at="2150-01-31")  # from what was known by then'

_SHUFFLED = (
    "The sets before the last trade their contents at random (seed {seed}), here and in every prediction."
)


def pretrained_readme(
    card: "ModelCard",
    metrics: Mapping[str, float],
    yardsticks: Mapping[str, Mapping[str, Any]],
    not_learnt: Sequence[str],
    not_judged: Sequence[str],
) -> str:
    """Return the README of a pretrained model; the last three arguments are from `Pretraining.compare_with_guesses`."""
    training, title = card.training, systems()[card.system].title
    return "\n".join(
        [
            front_matter(
                library="nest",
                tags=["safetensors", "set-sequences", "pretrained", card.system],
                metrics=["cross_entropy", *(["recall_at_10", "ndcg_at_10"] if card.system == "nest" else [])],
                task="feature-extraction",
            ),
            f"# {title}, pretrained",
            f"{systems()[card.system].about}\n",
            USAGE.format(call='embed("seqset", at="2150-01-31")  # what was known by then, a row each'),
            *_model(card),
            *_data(training),
            *_run(training),
            *_paper_differences(card),
            "## On the validation subjects",
            markdown_table(table.rows(metrics, yardsticks, title)),
            f"\n{table.explanation(yardsticks)}\n",
            *(f"- **{sentence}**" for sentence in (*not_judged, *not_learnt)),
            "",
            LICENCE,
            _LIMITS,
        ]
    )


def classifier_readme(card: "ModelCard", metrics: Mapping[str, float]) -> str:
    """Return the README of a fine-tuned model."""
    task, training, title = card.task, card.training, systems()[card.system].title
    assert task is not None
    is_fresh = training.get("start") == "fresh"
    return "\n".join(
        [
            front_matter(
                library="nest",
                tags=["safetensors", "set-sequences", "fine-tuned", card.system, task.cohort],
                metrics=SCORES[task.label_type],
                task=hub_task(task.label_type),
            ),
            f"# {title}, {'without pretraining' if is_fresh else 'fine-tuned'}: {task.cohort}",
            f"{task.about}\n",
            USAGE.format(call=_PREDICT_AT if task.predict_at == AS_LABELLED else _PREDICT),
            *([_FRESH.format(title=title, rate=_fresh_rate(card))] if is_fresh else []),
            f"Predicts at `{task.predict_at}`; {_label(task)}. "
            f"It sees events by `{task.features.clock}`"
            + (
                f", without {', '.join(task.features.drop_from_index)} of the index encounter.\n"
                if task.features.drop_from_index
                else ".\n"
            ),
            *_model(card),
            *_data(training),
            *_run(training),
            *_paper_differences(card),
            *_table("## On the validation rows", metrics),
            _FILES if is_fresh else _FILES + _PROBE.format(title=title),
            LICENCE,
            _LIMITS,
        ]
    )


def _fresh_rate(card: "ModelCard") -> str:
    """Return the learning rate of a model from fresh weights, beside those of the recipe."""
    training, task = card.training, card.task
    assert task is not None
    rate = training["recipe"]["learning_rate"]
    recipe = finetuning_recipe(card.system, training["preset"], task.label_type, "pretrained")
    words = (
        f"Its learning rate is {rate:g}; that of a pretrained model is {recipe.learning_rate:g} by default"
    )
    if (factor := fresh_rate_factor(card.system, training["preset"], task.label_type)) != 1:
        words += (
            f", and without pretraining {factor:g} times as much, chosen with `tiny` on synthetic MIMIC-IV"
        )
    return f"{words}."


def _label(task: Task) -> str:
    """Return what a task's label is."""
    match task.label_type:
        case "number":
            scale = "log(1 + number)" if task.scale and task.scale.is_log else "it is"
            return f"a number in {task.unit}, learnt as {scale}, standardised"
        case "time":
            last = with_noun(f"{task.times_days[-1]:g}", "day")
            return f"a time to an event, in {with_noun(len(task.times_days), 'interval')} up to {last}"
        case _:
            return f"{task.label_type} over {with_noun(len(task.classes), 'class', 'classes')}"


def _paper_differences(card: "ModelCard") -> list[str]:
    """Return the section on differences from the paper's NEST, which another system does not have."""
    if card.system != "nest":
        return []
    return paper_differences.section(card.model, card.training, is_finetuned=card.task is not None)


def _model(card: "ModelCard") -> list[str]:
    model = card.model
    positions = (
        _positions(model) if card.system == "nest" else f"positions {systems()[card.system].positions}"
    )
    return [
        "## Model",
        f"{with_noun(model.layers, 'layer')}, d {model.d_model}, {with_noun(model.heads, 'head')}, "
        f"feed-forward {model.d_ff}, vocabulary {model.vocab_size:,}; {positions}. "
        f"Context: the last {with_noun(model.max_sets, 'set')}, {with_noun(model.max_set_rows, 'row')} each."
        + ("" if model.shuffle_seed is None else f" {_SHUFFLED.format(seed=model.shuffle_seed)}")
        + (_visits(model) if systems()[card.system].reads_visits else ""),
        f"Vocabulary sha256 `{card.vocab_sha256}`.\n",
    ]


def _visits(model: "ModelConfig") -> str:
    """Return what a model is told of each visit."""
    types = (
        f"its type, one of {', '.join(model.visit_types)}; any other counts as none"
        if model.visit_types
        else "no type: none was guessed either"
    )
    return f" Of a visit it is told {'the day of the year and ' if model.day_of_year else ''}{types}."


def _positions(model: "ModelConfig") -> str:
    """Describe the positions across sets and within, or the blocks that an ablation leaves out."""
    across = f"positions {model.cse_position} across sets" if model.cross_set else "no cross-set blocks"
    within = (
        f"{model.set_position or 'none'} within" if model.set_wise == "attention" else "means of sets within"
    )
    return f"{across}, {within}"


def _data(training: Mapping[str, Any]) -> list[str]:
    names = [name for name in training if name.startswith(("train_", "val_", "test_"))]
    words = {name: name.replace("patients", "subjects").replace("_", " ") for name in names}
    texts = {
        name: training[name] if isinstance(training[name], str) else suppress_count(training[name])
        for name in names
    }
    return ["## Data", *(f"- {words[name]}: {texts[name]}" for name in names), ""]


def _run(training: Mapping[str, Any]) -> list[str]:
    recipe = training["recipe"]
    least, most = recipe.get("thinning", (0.0, 0.0))
    frozen = training.get("frozen")
    differs_from_paper = recipe["examples_per_step"] != PAPER_EXAMPLES_PER_STEP or most > 0
    return [
        "## Training",
        f"AdamW {recipe['learning_rate']:g}, weight decay {recipe['weight_decay']:g}, "
        f"{with_noun(recipe['examples_per_step'], 'example')} per step, seed {training['seed']}; "
        f"{with_noun(training['epochs'], 'epoch')} "
        f"(at most {recipe['epochs']}, patience {recipe['patience']}){_best_epoch(training)}."
        + (
            f" The learning rate is the best of {len(training['trials'])} on the validation subjects."
            if "trials" in training
            else ""
        )
        + (
            f" It learnt from {training['patient_share']:.4g} of the training and validation subjects."
            if "patient_share" in training
            else ""
        )
        + (f" Left as pretrained: {', '.join(frozen)}." if frozen else "")
        + (f" Each step drops {_share(least, most)} of the events." if most else "")
        + (
            f" The paper takes {PAPER_EXAMPLES_PER_STEP} per step and drops none."
            if differs_from_paper
            else ""
        )
        + "\n",
    ]


def _best_epoch(training: Mapping[str, Any]) -> str:
    """Return what follows the number of epochs: which is the best, of each stage."""
    if "stages" not in training:
        return f", of which number {training['best_epoch'] + 1} is the best"
    stages = (
        f"{name.upper()} {with_noun(stage['epochs'], 'epoch')}, number {stage['best_epoch'] + 1} is the best"
        for name, stage in training["stages"].items()
    )
    return f" in stages, each from the best epoch of the one before: {'; '.join(stages)}"


def _table(title: str, metrics: Mapping[str, float]) -> list[str]:
    rows = [f"| {name} | {value:.4g} |" for name, value in metrics.items()]
    return [title, "| metric | value |", "|---|---|", *rows, ""]


def _share(least: float, most: float) -> str:
    return f"a random {most:.0%}" if least == most else f"a random {least:.0%} to {most:.0%}"

"""Only what changed is done again: a step's card carries the key its output was made from, and the output's hash.

Dagster runs every asset it is asked to and shows by data versions what is fresh; here a step finds out by itself that
there is nothing to do. To have a step done again all the same, remove its card.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets.store import StoredLayout
from schemas.cards import StepCard, asset_of, step_of
from schemas.errors import ContractError
from schemas.layout import Layout


def once(
    layout: Layout, outputs: Sequence[Path], reads: Mapping[str, Any], make: Callable[[], StepCard]
) -> StepCard:
    """Return the card of the running asset's step, which is made anew only if something changed.

    That is: the asset's `code_version`, what it `reads` of the settings, or the content of an asset among its `deps`;
    or the output is not whole. While a step is made anew it has no card, so that nothing is made from half of it.

    Args:
        outputs: all files and folders the step writes.
        reads: settings and rules the output depends on.
        make: writes the outputs and returns what is to be said of them.

    Raises:
        ContractError: an input was not made yet, or two were not made from the same.
    """
    context, source = dg.AssetExecutionContext.get(), layout.root.name
    spec = context.assets_def.get_asset_spec(context.asset_key)
    step = step_of(context.asset_key.to_user_string(), source)
    inputs = _contents(layout, [step_of(dep.asset_key.to_user_string(), source) for dep in spec.deps])
    made_from = {"code": spec.code_version, "reads": dict(reads), "inputs": inputs}
    key, config = _sha256(made_from), _sha256(made_from["reads"])

    found = _card(layout, step)
    if found is not None and found.key == key and found.content == found.content_of(outputs):
        context.log.info("unchanged: nothing to do")
        context.add_asset_metadata({"unchanged": "nothing to do: code, rules and input are as they were"})
        return found
    StepCard.remove(layout.cards, step)
    if isinstance(layout, StoredLayout):
        layout.withdraw(step)
    below = [path.relative_to(layout.root).as_posix() for path in outputs if path.is_relative_to(layout.root)]
    of_making = {"inputs": inputs, "outputs": below, "code": spec.code_version, "config": config, "key": key}
    made = make().model_copy(update={"step": step, **of_making})
    card = made.model_copy(update={"content": made.content_of(outputs)})
    layout.cards.mkdir(parents=True, exist_ok=True)
    card.write(layout.cards)
    if isinstance(layout, StoredLayout):
        layout.publish(step)
    return card


def _sha256(said: Any) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _contents(layout: Layout, steps: Sequence[str]) -> dict[str, str]:
    """Return the content of each step that is read.

    Raises:
        ContractError: one was not made yet, or was made from something that has changed since.
    """
    cards = {step: StepCard.read(layout.cards, step) for step in sorted(steps)}
    for step, card in cards.items():
        for earlier, content in card.inputs.items():
            now = cards.get(earlier) or _card(layout, earlier)
            if now is not None and now.content != content:
                stale, changed = (asset_of(name, layout.root.name) for name in (step, earlier))
                raise ContractError(
                    f"{stale} was made before {changed} changed; materialize {stale} again first."
                )
    return {step: card.content for step, card in cards.items()}


def _card(layout: Layout, step: str) -> StepCard | None:
    try:
        return StepCard.read(layout.cards, step)
    except ContractError:  # there is none, or a damaged one
        return None

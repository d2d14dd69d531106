"""Only what changed is done again: a step's card carries the key its output was made from, and the output's hash.

Dagster runs every asset it is asked to and shows by data versions what is fresh; here a step finds out by itself that
there is nothing to do. To have a step done again all the same, remove its card.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from assets.runtime.object_store import StoredLayout
from schemas.cards import StepCard, asset_of, belongs_to_source, files_of, stamps_of, step_of
from schemas.errors import ContractError
from schemas.io.outputs import mark_all, read_mark
from schemas.layout import Layout
from schemas.suppress import disclosing

RAW = "raw"
WITHOUT_SPLITS = {"subjects": "people"}
"""For a step that reads who there is, and not in which split: another split does not redo it."""


def once(
    layout: Layout,
    outputs: Sequence[Path],
    reads: Mapping[str, Any],
    make: Callable[[], StepCard],
    *,
    source: Sequence[Path] = (),
    only: Mapping[str, str] = MappingProxyType({}),
) -> StepCard:
    """Return the card of the running asset's step, which is made anew only if something changed.

    That is: the asset's `code_version`, what it `reads` of the settings, or the content of an asset of its source among
    its `deps`; or the output is not whole. What another source wrote is an input as any other, which `raw` hashes.
    While a step is made anew it has no card, so that nothing is made from half of it.

    Args:
        outputs: all files and folders the step writes; of the step `raw`, the input itself.
        reads: settings and rules the output depends on.
        make: writes the outputs and returns what is to be said of them.
        source: what the card of `raw` stands for, if the step reads it: the `outputs` of that step.
        only: of a step that is read, the part that is, by its name among the `hashes` of its card.

    Raises:
        ContractError: an input was not made yet, or two were not made from the same; the source is another.
    """
    context = dg.AssetExecutionContext.get()
    step, made_from = _made_from(layout, reads, only)
    key, config = _sha256(made_from), _sha256(made_from["reads"])
    read_from = _as_raw_says(layout, source) if source else {}
    stamps = _stamps(layout, outputs) if step == RAW else {}

    found = _card(layout, step)
    if found is not None and found.key == key and found.content == found.content_of(_files(layout, outputs)):
        context.log.info("unchanged: nothing to do")
        context.add_asset_metadata({"unchanged": "nothing to do: code, rules and input are as they were"})
        return found if found.stamps == stamps else _keep(layout, found, stamps=stamps)
    _adopt(layout, found)
    below = [path.relative_to(layout.root).as_posix() for path in outputs if path.is_relative_to(layout.root)]
    if isinstance(layout, StoredLayout):  # there first: a card is here for as long as one is there
        layout.withdraw(step, [output for output in (found.outputs if found else []) if output not in below])
    StepCard.remove(layout.cards, step)
    of_making = {"inputs": made_from["inputs"], "outputs": below, "code": made_from["code"], "config": config}
    inputs = [StepCard.read(layout.cards, name) for name in made_from["inputs"]]
    # of the input itself, which reads no card, its own card says so
    is_synthetic = bool(inputs) and all(card.synthetic for card in inputs)
    with disclosing(is_synthetic):
        made = make().model_copy(update={"step": step, **of_making, "key": key})
    if step != RAW:
        made = made.model_copy(update={"synthetic": is_synthetic})
    if source and _stamps(layout, source) != read_from:
        _refuse_changed(layout)
    return _keep(layout, made.sealed(_files(layout, outputs)), stamps=stamps)


def _adopt(layout: Layout, card: StepCard | None) -> None:
    """Mark the folders an earlier version made without a mark, where all in them is as the card says it was made."""
    outputs = [layout.root / name for name in card.outputs] if card else []
    unmarked = [path for path in outputs if path.is_dir() and read_mark(path) is None]
    if card and unmarked and card.content == card.content_of(_files(layout, outputs)):
        for folder in unmarked:
            mark_all(folder)


def key_of(layout: Layout, reads: Mapping[str, Any], *, but: Sequence[str] = ()) -> str:
    """Return the key the running asset's step has with these settings: one word for all it is made from.

    Args:
        but: steps that are left out of it.
    """
    made_from = _made_from(layout, reads)[1]
    inputs = {step: content for step, content in made_from["inputs"].items() if step not in but}
    return _sha256(made_from | {"inputs": inputs})


def _made_from(
    layout: Layout, reads: Mapping[str, Any], only: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, dict[str, Any]]:
    """Return the running asset's step and all its output depends on."""
    context, source = dg.AssetExecutionContext.get(), layout.root.name
    spec = context.assets_def.get_asset_spec(context.asset_key)
    above = [dep.asset_key.to_user_string() for dep in spec.deps]
    inputs = _contents(
        layout, [step_of(asset, source) for asset in above if belongs_to_source(asset, source)], only
    )
    made_from = {"code": spec.code_version, "reads": dict(reads), "inputs": inputs}
    return step_of(context.asset_key.to_user_string(), source), made_from


def _files(layout: Layout, outputs: Sequence[Path]) -> dict[str, str]:
    return files_of(outputs, layout.root)


def _keep(layout: Layout, card: StepCard, **last: Any) -> StepCard:
    card = card.model_copy(update=last)
    card.write(layout.cards)
    if isinstance(layout, StoredLayout):
        layout.publish(card.step)
    return card


def _sha256(said: Any) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _stamps(layout: Layout, paths: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Return the stamps of what is a user's own or was fetched; what a run made itself is known by its content."""
    made, fetched = layout.root.parent, layout.downloads
    return stamps_of(path for path in paths if not path.is_relative_to(made) or path.is_relative_to(fetched))


def _as_raw_says(layout: Layout, source: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Return the source's stamps; where they are not those `raw` saw, its content is held against the card.

    So an input that was copied elsewhere, or pulled from an object store, is still the same input.

    Raises:
        ContractError: the files are not those the card stands for.
    """
    card, stamps = StepCard.read(layout.cards, RAW), _stamps(layout, source)
    if stamps and stamps == card.stamps:
        return stamps
    if stamps:
        dg.AssetExecutionContext.get().log.info(f"{_raw_of(layout)}: hashing the files once more")
    if card.content_of(_files(layout, source)) != card.content:
        _refuse_changed(layout)
    return stamps


def _refuse_changed(layout: Layout) -> None:
    raise ContractError(f"{_raw_of(layout)}: the files have changed since; materialize it first.")


def _raw_of(layout: Layout) -> str:
    return asset_of(RAW, layout.root.name)


def _contents(layout: Layout, steps: Sequence[str], only: Mapping[str, str]) -> dict[str, str]:
    """Return the content of each step that is read, or of the part of it that is.

    Raises:
        ContractError: one was not made yet, or was made from something that has changed since.
    """
    cards = {step: StepCard.read(layout.cards, step) for step in sorted(steps)}
    for step, card in cards.items():
        if not card.content:  # its card is written a second time, with the content, when all is there
            asset = asset_of(step, layout.root.name)
            raise ContractError(f"{asset} was not made to its end; materialize {asset} again first.")
        for earlier, content in card.inputs.items():
            now = cards.get(earlier) or _card(layout, earlier)
            if now is not None and _content(now, content.rpartition(" ")[0]) != content:
                stale, changed = (asset_of(name, layout.root.name) for name in (step, earlier))
                raise ContractError(
                    f"{stale} was made before {changed} changed; materialize {stale} again first."
                )
    return {step: _content(card, only.get(step)) for step, card in cards.items()}


def _content(card: StepCard, part: str | None) -> str:
    """Return the content of a step, or `<part> <hash>` of a part of it."""
    return f"{part} {card.hashes.get(part, '')}" if part else card.content


def _card(layout: Layout, step: str) -> StepCard | None:
    try:
        return StepCard.read(layout.cards, step)
    except ContractError:  # there is none, or a damaged one
        return None

"""Skips a step whose code, settings and inputs are unchanged: its card holds their key and the hash of the output.

Dagster runs every asset that is selected, and shows by data versions which are stale; here a step itself finds that
there is nothing to do (README.md says why). To force a step, delete its card.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg

from assets.object_store import StoredLayout
from assets.runtime.experiments import cards_of, originals, take_over
from assets.runtime.step_cost import measured_cost
from schemas.cards import FAILED, StepCard, asset_of, belongs_to_source, files_of, stamps_of, step_of
from schemas.errors import ContractError, NestError, StoppedError
from schemas.io.outputs import mark_all, read_mark
from schemas.layout import Layout
from schemas.suppress import disclosing

RAW, UNCHANGED = "raw", "unchanged: nothing to do"
ALSO_READS = "nest/also_reads"
"""Metadata of an asset: what it reads beside its `deps`. All of it lies upstream of them, so the graph has no arrow.

The executor refuses a run that makes both but nothing that lies between them, since it has no order for the two.
"""
MAY_READ = "nest/may_read"
"""Metadata of a page: what it reads beside these two if it is there. The executor orders a run by it and no more."""
ONLY_AFTER = "nest/only_after"
"""Metadata of an asset: those of its `deps` that it comes after, but that are not in its key by themselves."""
FAILURES_ARE_RESULTS = "nest/failures_are_results"
"""Tag of a run in which a model that fails has a card with the reason, and the steps after it go on without it."""
WITHOUT_SPLITS = {"subjects": "people"}
"""For a step that reads the patients but not their splits: a changed split does not redo it."""


def cached_step(
    layout: Layout,
    outputs: Sequence[Path],
    reads: Mapping[str, Any],
    make: Callable[[], StepCard],
    *,
    source: Sequence[Path] = (),
    only: Mapping[str, str] = MappingProxyType({}),
    partial: bool = False,
    failures_are_results: bool = False,
) -> StepCard:
    """Run the running asset's step if something changed, and return its card.

    A step runs if its output is missing or damaged, or if one of these changed: the asset's `code_version`, the
    settings it `reads`, the content of an asset of its source among its `deps` or `ALSO_READS`. Files that another
    source wrote are an input like any other, which the step `raw` hashes. A step has no card while it runs, so that no
    other step can read a part of its output.

    Args:
        outputs: all files and folders the step writes; for the step `raw`, the input itself.
        reads: settings and rules the output depends on.
        make: writes the outputs and returns their card.
        source: the `outputs` of the step `raw`, if this step reads those files.
        only: for each step of which one part is read, that part's name among the `hashes` of its card.
        partial: the step makes do with the inputs that are there.
        failures_are_results: a step that fails has a card that says why, instead of ending the run; it is tried again
            by the next run. A request to stop ends the run all the same.

    Raises:
        ContractError: an input was not made yet or failed, two inputs were made from different versions of a third, or
            the files of the source have changed.
    """
    context = dg.AssetExecutionContext.get()
    step, dependencies = _step_and_dependencies(layout, reads, only, partial=partial)
    key, config = _sha256(dependencies), _sha256(dependencies["reads"])
    source_stamps = _confirmed_stamps(layout, source) if source else {}
    stamps = _external_stamps(layout, outputs) if step == RAW else {}

    card = _card_or_none(layout, step)
    is_finished = card is not None and card.failure is None
    if (
        card is not None
        and is_finished
        and card.key == key
        and card.content == card.content_of(_files(layout, outputs))
    ):
        context.log.info(UNCHANGED)
        context.add_asset_metadata({"unchanged": "nothing to do: code, rules and input are as they were"})
        return card if card.stamps == stamps else _save(layout, card, stamps=stamps)
    if layout.is_experiment and (copy := _taken_over(layout, step, key, outputs)) is not None:
        return copy
    inputs = [StepCard.read(cards_of(layout, name), name) for name in dependencies["inputs"]]
    reason = None if partial else _failed_input(layout, inputs)
    if reason and not failures_are_results:
        raise ContractError(reason)
    _mark_unmarked_folders(layout, card)
    names = [path.relative_to(layout.root).as_posix() for path in outputs if path.is_relative_to(layout.root)]
    _withdraw(layout, step, [output for output in (card.outputs if card else []) if output not in names])
    StepCard.remove(layout.cards, step)
    provenance = {
        "inputs": dependencies["inputs"],
        "outputs": names,
        "code": dependencies["code"],
        "config": config,
    }
    # the step `raw` reads no card: its own card says whether the input is synthetic
    is_synthetic = bool(inputs) and all(card.synthetic for card in inputs)
    with measured_cost(context):
        with disclosing(is_synthetic):
            if reason:
                new_card = _failure(reason)
            elif failures_are_results:
                new_card = _make_or_failure(make)
            else:
                new_card = make()
        new_card = new_card.model_copy(update={"step": step, **provenance, "key": key})
        if step == RAW and new_card.synthetic:
            new_card = new_card.model_copy(update={"made_with": dict(reads)})
        if step != RAW:
            new_card = new_card.model_copy(update={"synthetic": is_synthetic})
        if source and _external_stamps(layout, source) != source_stamps:
            _refuse_changed(layout)
        return _save(layout, new_card.sealed(_files(layout, outputs)), stamps=stamps)


def _failed_input(layout: Layout, inputs: Iterable[StepCard]) -> str | None:
    """Return a sentence on the first input that failed; None: none did."""
    for card in inputs:
        if card.failure:
            asset = asset_of(card.step, layout.source)
            return f"{asset} failed; materialize it again first. It said: {card.failure}"
    return None


def _make_or_failure(make: Callable[[], StepCard]) -> StepCard:
    """Make a step and return its card, with the reason where it fails; a request to stop still ends the run."""
    try:
        return make()
    except StoppedError:
        raise
    except NestError as error:
        return _failure(str(error))


def _failure(reason: str) -> StepCard:
    """Log why a step failed, and return its card."""
    dg.AssetExecutionContext.get().log.error(reason)
    return StepCard(step="failed", contract="failure/1", warnings=[f"{FAILED}{reason}"])


def _taken_over(layout: Layout, step: str, key: str, outputs: Sequence[Path]) -> StepCard | None:
    """Copy into an experiment what its source made from the same code, settings and inputs, and return its card.

    So an experiment that changes the fine-tuning alone does not pretrain again. None: the source has nothing the same.
    """
    source = layout.of_source
    card = _card_or_none(source, step)
    if card is None or card.failure or card.key != key:
        return None
    if card.content != card.content_of(_files(source, originals(layout, outputs))):
        return None
    _withdraw(layout, step, ())
    take_over(layout, card, outputs)
    dg.AssetExecutionContext.get().log.info(
        f"copied from {source.root}, where it was made with the same settings"
    )
    return _save(layout, card)


def _mark_unmarked_folders(layout: Layout, card: StepCard | None) -> None:
    """Mark the folders that an earlier version wrote without a mark, if their content is still that of the card."""
    outputs = [layout.root / name for name in card.outputs] if card else []
    folders = [path for path in outputs if path.is_dir() and read_mark(path) is None]
    if card and folders and card.content == card.content_of(_files(layout, outputs)):
        for folder in folders:
            mark_all(folder)


def step_key(layout: Layout, reads: Mapping[str, Any], *, exclude: Sequence[str] = ()) -> str:
    """Return the key of the running asset's step with these settings: a hash of everything its output depends on.

    Args:
        exclude: input steps that do not count.
    """
    dependencies = _step_and_dependencies(layout, reads)[1]
    inputs = {step: content for step, content in dependencies["inputs"].items() if step not in exclude}
    return _sha256(dependencies | {"inputs": inputs})


def _step_and_dependencies(
    layout: Layout,
    reads: Mapping[str, Any],
    only: Mapping[str, str] = MappingProxyType({}),
    *,
    partial: bool = False,
) -> tuple[str, dict[str, Any]]:
    """Return the running asset's step and everything its output depends on."""
    context, source = dg.AssetExecutionContext.get(), layout.source
    spec = context.assets_def.get_asset_spec(context.asset_key)
    assets = assets_read([dep.asset_key for dep in spec.deps], spec.metadata, source)
    steps = [step_of(asset, source) for asset in assets]
    if partial:
        steps = [step for step in steps if StepCard.path(cards_of(layout, step), step).exists()]
    inputs = input_contents(layout, steps, only)
    dependencies = {"code": spec.code_version, "reads": dict(reads), "inputs": inputs}
    return step_of(context.asset_key.to_user_string(), source), dependencies


def assets_read(deps: Iterable[dg.AssetKey], metadata: Mapping[str, Any], source: str) -> list[str]:
    """Return the assets of its source that an asset reads, from its `deps` and its metadata."""
    upstream = [*(key.to_user_string() for key in deps), *metadata.get(ALSO_READS, ())]
    return [
        asset
        for asset in upstream
        if asset not in metadata.get(ONLY_AFTER, ()) and belongs_to_source(asset, source)
    ]


def _files(layout: Layout, outputs: Sequence[Path]) -> dict[str, str]:
    return files_of(outputs, layout.root)


def _withdraw(layout: Layout, step: str, outputs: Sequence[str]) -> None:
    """Remove a step's card from the object store, before the local one: a card there is never gone here."""
    if isinstance(layout, StoredLayout):
        layout.withdraw(step, outputs)


def _save(layout: Layout, card: StepCard, **updates: Any) -> StepCard:
    card = card.model_copy(update=updates)
    card.write(layout.cards)
    if isinstance(layout, StoredLayout):
        layout.publish(card.step)
    return card


def _sha256(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _external_stamps(layout: Layout, paths: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Return the stamps of a user's own and of downloaded files; the output of a step is identified by its content."""
    data_folder, downloads = layout.tables.parent, layout.downloads
    return stamps_of(
        path for path in paths if not path.is_relative_to(data_folder) or path.is_relative_to(downloads)
    )


def _confirmed_stamps(layout: Layout, source: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Return the source's stamps; where they differ from those of the `raw` card, compare the content with the card's.

    So an input that was copied elsewhere, or pulled from an object store, still counts as the same input.

    Raises:
        ContractError: the files have another content than the card says.
    """
    card, stamps = StepCard.read(layout.cards, RAW), _external_stamps(layout, source)
    if stamps and stamps == card.stamps:
        return stamps
    if stamps:
        dg.AssetExecutionContext.get().log.info(f"{_raw_asset(layout)}: hashing the files again")
    if card.content_of(_files(layout, source)) != card.content:
        _refuse_changed(layout)
    return stamps


def _refuse_changed(layout: Layout) -> None:
    raise ContractError(
        f"{_raw_asset(layout)}: the files have changed since it was made; materialize it again first."
    )


def _raw_asset(layout: Layout) -> str:
    return asset_of(RAW, layout.source)


def refuse_missing(layout: Layout, steps: Iterable[str]) -> None:
    """Refuse to go on if one of these steps was not made yet.

    Raises:
        ContractError: which are missing, and what makes them.
    """
    source = layout.source
    missing = [
        asset_of(step, source)
        for step in sorted(steps)
        if not StepCard.path(cards_of(layout, step), step).exists()
    ]
    if missing:
        or_alone = f", or materialize {missing[0]} first" if len(missing) == 1 else ""
        raise ContractError(
            f"{layout.root} has no {', '.join(missing)} yet; run {source}_full once (`.venv/bin/dagster job execute "
            f"-j {source}_full`){or_alone}."
        )


def input_contents(layout: Layout, steps: Sequence[str], only: Mapping[str, str]) -> dict[str, str]:
    """Return the content of each input step, or of the part of it that is read.

    Raises:
        ContractError: a step was not made yet, or one of its own inputs has changed since.
    """
    refuse_missing(layout, steps)
    cards = {step: StepCard.read(cards_of(layout, step), step) for step in sorted(steps)}
    for step, card in cards.items():
        if not card.content:  # the card is written again, with its content, when the output is complete
            asset = asset_of(step, layout.source)
            raise ContractError(f"{asset} was not finished; materialize {asset} again first.")
        for input_step, content in card.inputs.items():
            input_card = cards.get(input_step) or _card_or_none(layout, input_step)
            if input_card is not None and _content(input_card, content.rpartition(" ")[0]) != content:
                asset, input_asset = (asset_of(name, layout.source) for name in (step, input_step))
                raise ContractError(
                    f"{asset} was made before {input_asset} changed; materialize {asset} again first."
                )
    return {step: _content(card, only.get(step)) for step, card in cards.items()}


def _content(card: StepCard, part: str | None) -> str:
    """Return the content hash of a step, or `<part> <hash>` for a part of it."""
    return f"{part} {card.hashes.get(part, '')}" if part else card.content


def _card_or_none(layout: Layout, step: str) -> StepCard | None:
    try:
        return StepCard.read(cards_of(layout, step), step)
    except ContractError:  # missing or damaged
        return None

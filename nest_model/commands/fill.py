"""Fill in what is hidden of a set: a pretrained NEST's guesses for masked tokens, or for a masked set."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import torch
from lightning_fabric import Fabric
from torch import Tensor

from nest_model.commands.embed import known_history
from nest_model.data.moments import Moments
from nest_model.data.packed import PackedBatch, pack
from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.model.encoder import Encoder
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.training.masking import FIRST_TOKEN, hide_sets
from schemas.errors import InputError, NestError
from schemas.tables.labels import Features
from schemas.tables.vocab import MASK

GUESSES = pa.schema(
    [
        ("subject_id", pa.int64()),
        ("encounter_id", pa.int64()),
        ("place", pa.int64()),
        ("rank", pa.int64()),
        ("token", pa.string()),
        ("probability", pa.float32()),
        ("is_there", pa.bool_()),
    ]
)

Hide = Sequence[int] | Literal["set"]


@torch.no_grad()
def fill(
    encoder: Encoder,
    seqsets: SeqSets,
    moments: Moments,
    tokens: pa.Table,
    fabric: Fabric,
    *,
    hide: Hide,
    top: int,
) -> pa.Table:
    """Return the likeliest tokens where something is hidden of each moment's last set.

    Args:
        tokens: the vocabulary, sorted by token id.
        hide: "set": the whole content of the set, guessed by the set head from the patient's other sets; or places of
            events in the set, from 0 in the order of the shards, all masked together and guessed by the token head.

    Returns:
        subject_id, encounter_id, place (null for a whole set), rank from 1 (of a whole set: by how likely the set
        holds the token), token, probability (of a whole set: the share of the set's events that are expected to be this
        token, so that it need not fall with the rank), is_there (whether the token was hidden there).

    Raises:
        NestError: the model guesses no tokens; or a set has no event at a place by its moment.
    """
    if not isinstance(encoder, NestModel):
        raise NestError(
            f"{encoder.system} has no heads to fill in tokens and sets with; take a pretrained nest."
        )
    if isinstance(hide, str) and hide != "set":
        raise InputError('hide: neither "set" nor places of events; write "set", or places such as [0, 1].')
    if not hide:
        raise InputError('hide: no place; write the places of events, such as [0, 1], or "set".')
    selection = known_history(encoder, seqsets, moments, Features())
    places = [0] if hide == "set" else [int(place) for place in hide]
    _refuse_short_sets(selection, places)
    names, parts = tokens["token"].to_numpy(zero_copy_only=False), []
    for row in range(len(moments)):
        batch = pack(seqsets, selection.take(np.array([row])), encoder.config).to(fabric.device)
        guesses = _guess_set(encoder, batch) if hide == "set" else _guess_tokens(encoder, batch, places)
        scores = guesses.scores[:, FIRST_TOKEN:]
        best = scores.topk(min(top, scores.shape[1])).indices + FIRST_TOKEN
        probability = guesses.logits.float().softmax(dim=1).gather(1, best).cpu().numpy()
        for guess, place in enumerate([None] if hide == "set" else places):
            ids = best[guess].cpu().numpy()
            parts.append(
                _rows(moments, row, place, ids, probability[guess], names, guesses.hidden_tokens[guess])
            )
    return pa.concat_tables([GUESSES.empty_table(), *parts])


def _refuse_short_sets(selection: Selection, places: Sequence[int]) -> None:
    """Refuse places that a set does not have; to hide a set, it must have one event."""
    counts = selection.event_counts[selection.set_offsets[1:] - 1]
    short = np.count_nonzero(counts <= max(places))
    if short or min(places) < 0 or len(set(places)) < len(places):
        raise InputError(
            f"hide: {short:,} of {len(counts):,} sets have no event at place {max(places)} by their moment; places "
            "count from 0, each once, and a set without an event has nothing to hide."
        )


@dataclass(frozen=True)
class _Guesses:
    """What a model says about hidden tokens, and what was hidden."""

    logits: Tensor  # [guesses, vocab_size], of the probabilities
    scores: Tensor  # [guesses, vocab_size], by which the tokens rank
    hidden_tokens: list[set[int]]


def _guess_set(encoder: NestModel, batch: PackedBatch) -> _Guesses:
    """Guess the tokens of the last set."""
    is_last = torch.zeros(batch.sets, dtype=torch.bool, device=batch.tokens.device)
    is_last[-1] = True
    hidden_batch, _ = hide_sets(batch, is_last, encoder.config)
    output = encoder.read(hidden_batch, hidden_batch.cls_rows[-1:])
    content = batch.tokens[int(batch.cls_rows[-1]) + 1 :]
    cls_hidden = output.hidden_states[output.place]
    return _Guesses(
        encoder.msm_logits(cls_hidden), encoder.presence_scores(cls_hidden), [set(content.tolist())]
    )


def _guess_tokens(encoder: NestModel, batch: PackedBatch, places: Sequence[int]) -> _Guesses:
    """Guess the token at each place."""
    rows = batch.cls_rows[-1] + 1 + torch.tensor(places, device=batch.tokens.device)
    masked_batch = replace(batch, tokens=batch.tokens.index_fill(0, rows, MASK))
    output = encoder.read(masked_batch, rows)
    logits = encoder.token_logits(output.hidden_states[output.place])
    return _Guesses(logits, logits, [{token} for token in batch.tokens[rows].tolist()])


def _rows(
    moments: Moments,
    row: int,
    place: int | None,
    ids: np.ndarray,
    probability: np.ndarray,
    names: np.ndarray,
    hidden_tokens: set[int],
) -> pa.Table:
    count = len(ids)
    columns: dict[str, Any] = {
        "subject_id": np.full(count, moments.subject_id[row]),
        "encounter_id": np.full(count, moments.encounter_id[row]),
        "place": [place] * count,
        "rank": np.arange(1, count + 1),
        "token": names[ids],
        "probability": probability,
        "is_there": [int(token) in hidden_tokens for token in ids],
    }
    return pa.table(columns, schema=GUESSES)

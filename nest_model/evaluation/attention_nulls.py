"""Where a model looks, compared with two null models on the same examples.

Counting alone: each query row keeps the attention it pays to its own class and shares the rest evenly among all other
rows, whatever they are. Untrained: the same architecture with freshly initialized weights, in five draws, since one
draw may by chance prefer what another does not. All three are measured as the difference to an even share, which looks
equally at every row. Intervals resample patients, the same ones for the model and both nulls; each resample takes one
of the five draws.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import torch

from nest_model.data.selection import Selection
from nest_model.data.seqsets import SeqSets
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import Score
from nest_model.model.attention_shares import (
    CLASSES,
    DAYS_BACK,
    SETS_BACK,
    AttentionProfile,
    SetEncoder,
    attention_profiles,
    is_set_encoder,
)
from nest_model.model.encoder import Encoder
from nest_model.systems import BLOCKS
from schemas.suppress import SMALLEST_SHOWN

AnyEncoder = TypeVar("AnyEncoder", bound=Encoder)

DRAWS = 5
"""How many times untrained weights are drawn."""

NULLS = ("by_count", "untrained")


def attention_beside_nulls(
    model: Encoder, seqsets: SeqSets, selection: Selection, *, row_budget: int
) -> dict[str, Any] | None:
    """Return the attention profile of a model and of both nulls, for classes that at least eleven patients have.

    Returns:
        `kinds`, `sets_back` and `days_back`, each with `layers` and `means`. `layers`: for the model (`observed`) and
        each null, by class, the share per layer as the difference to an even share (1 is all attention). `means`: by
        class, the mean over layers of the model, of each null, and of the model minus each null. `sets_back` also has
        `distance`: the same means of how many sets farther back the last set looks than an even share. None for an
        encoder that does not have, as NEST does, blocks that look within sets alone and blocks that look across them
        alone.
    """
    if set(model.parts()) != set(BLOCKS) or not is_set_encoder(model):
        return None

    def profiles_of(encoder: Encoder) -> tuple[AttentionProfile, ...]:
        return attention_profiles(cast("SetEncoder", encoder), seqsets, selection, row_budget=row_budget)

    profiles = profiles_of(model)
    untrained_draws = [profiles_of(untrained_like(model, seed)) for seed in range(DRAWS)]
    kinds, back, days = (
        {
            "observed": profile.observed[None],
            "by_count": profile.by_count[None],
            "untrained": np.stack([draw[place].observed for draw in untrained_draws]),
        }
        for place, profile in enumerate(profiles)
    )
    of_kinds, of_sets, of_days = (profile.query_counts for profile in profiles)
    return {
        "kinds": _layers_and_means(kinds, of_kinds, CLASSES),
        "sets_back": _layers_and_means(back, of_sets, SETS_BACK)
        | {"distance": _distance(back, of_sets[:, 0])},
        "days_back": _layers_and_means(days, of_days, DAYS_BACK),
    }


def untrained_like(model: AnyEncoder, seed: int) -> AnyEncoder:
    """Return a freshly initialized model of the same config, without touching torch's global random generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh_model = type(model)(model.config)
    return fresh_model.to(model.embedding.weight.device)


def _layers_and_means(
    sums_by_model: Mapping[str, np.ndarray], query_counts: np.ndarray, names: Sequence[str]
) -> dict[str, Any]:
    """Return `layers` and `means` as `attention_beside_nulls` describes them.

    Args:
        sums_by_model: by model or null, f64 [draws, patients, layers, classes], summed over each patient's query rows.
        query_counts: [patients, classes], the number of query rows.
    """
    disclosable = [k for k in range(len(names)) if np.count_nonzero(query_counts[:, k]) >= SMALLEST_SHOWN]
    return {
        "layers": {
            name: {names[k]: _by_layer(sums[..., k], query_counts[:, k]) for k in disclosable}
            for name, sums in sums_by_model.items()
        },
        "means": {
            names[k]: _differences_to_nulls(
                {name: sums[..., k] for name, sums in sums_by_model.items()}, query_counts[:, k]
            )
            for k in disclosable
        },
    }


def _by_layer(sums: np.ndarray, query_counts: np.ndarray) -> list[float]:
    """Return per layer the mean over draws and query rows of sums [draws, patients, layers]."""
    return [round(float(value), 6) for value in sums.mean(axis=0).sum(axis=0) / query_counts.sum()]


def _distance(sums_by_model: Mapping[str, np.ndarray], query_counts: np.ndarray) -> dict[str, Any] | None:
    """Return how many sets farther back than an even share each looks; None with under eleven patients."""
    if np.count_nonzero(query_counts) < SMALLEST_SHOWN:
        return None
    sets = np.arange(len(SETS_BACK))
    return _differences_to_nulls({name: sums @ sets for name, sums in sums_by_model.items()}, query_counts)


def _differences_to_nulls(
    sums_by_model: Mapping[str, np.ndarray], query_counts: np.ndarray
) -> dict[str, Any]:
    """Return the mean over layers and query rows of the model, of each null, and of the model minus each null.

    Args:
        sums_by_model: by model or null, [draws, patients, layers], summed over each patient's query rows.
        query_counts: [patients], the number of query rows.
    """
    means = {label: sums.mean(axis=2) for label, sums in sums_by_model.items()}
    differences = {f"less_{null}": means["observed"] - means[null] for null in NULLS}
    return {name: _mean(sums, query_counts).json() for name, sums in (means | differences).items()}


def _mean(sums: np.ndarray, query_counts: np.ndarray) -> Score:
    """Return the mean of sums [draws, patients] over query rows; each resample takes one of the draws in turn."""
    weights = Resamples.of(np.arange(len(query_counts))).draws.astype(float)
    queries = weights @ query_counts
    totals = (weights @ sums.T)[np.arange(len(weights)), np.arange(len(weights)) % len(sums)]
    samples = np.divide(totals, queries, out=np.full(len(totals), np.nan), where=queries > 0)
    return Score(float(sums.mean(axis=0).sum() / query_counts.sum()), samples)

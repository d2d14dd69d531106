"""Random ragged batches: patients with one set, empty sets, sets of one token, [UNK] among the tokens."""

from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import torch
from hypothesis import strategies as st

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.data.seqsets import NO_TYPE
from nest_model.model.encoder import Encoder
from nest_model.model.kinds import SPECIAL, KindAwareEncoder
from nest_model.model.systems.nest.encoder import NestModel
from schemas.tables.vocab import SPECIAL_KIND, SPECIALS

Kind = TypeVar("Kind", bound=Encoder)
VOCAB_SIZE = 19
MAX_SET_ROWS = 9
VISIT_TYPES = ("ELECTIVE", "EMERGENCY", "URGENT")

subjects = st.lists(
    st.lists(st.integers(0, MAX_SET_ROWS - 1), min_size=1, max_size=4), min_size=1, max_size=4
)
configs = st.builds(
    ModelConfig,
    vocab_size=st.just(VOCAB_SIZE),
    d_model=st.just(8),
    heads=st.sampled_from([1, 2]),
    d_ff=st.just(12),
    layers=st.integers(1, 2),
    max_set_rows=st.just(MAX_SET_ROWS),
    set_position=st.sampled_from(["hours", None]),
    cse_position=st.sampled_from(["days_since_first", "days_since_prior", "index"]),
    time2vec=st.sampled_from([None, "hours", "days", "hours+days"]),
    time2vec_scale=st.sampled_from([1.0, 0.3]),
    mlm_weight=st.sampled_from([0.0, 1.0, 0.5]),
    msm_weight=st.sampled_from([0.0, 1.0, 0.5]),
    own_set_weight=st.sampled_from([0.0, 1.0, 0.5]),
    tied_set_head=st.booleans(),
    token_mask_share=st.sampled_from([0.2, 0.7, 1.0]),
    set_mask_share=st.sampled_from([0.0, 0.4, 1.0]),
)

configs_of_all_blocks = st.tuples(
    configs, st.sampled_from([{}, {"set_wise": "mean_pool"}, {"cross_set": False}])
).map(lambda draws: replace(draws[0], **draws[1]))
"""Configs of NEST and of its ablations."""


def ragged_batch(
    sizes: list[list[int]], seed: int = 0, cse_position: str = "days_since_first"
) -> PackedBatch:
    """Pack patients of the given set sizes with random tokens ([UNK] too), hours (some negative), days and types."""
    generator = torch.Generator().manual_seed(seed)
    events_per_set = torch.tensor([size for sets in sizes for size in sets])
    count, sets = int(events_per_set.sum()), len(events_per_set)
    tokens = torch.randint(4, VOCAB_SIZE, (count,), generator=generator)
    gaps = 2_000 * torch.rand(sets, generator=generator, dtype=torch.float64)
    first_of_set = torch.tensor([i == 0 for subject_sizes in sizes for i in range(len(subject_sizes))])
    gaps[first_of_set] = 0
    number = torch.tensor([i for subject_sizes in sizes for i in range(len(subject_sizes))])
    running = torch.cat(
        [part.cumsum(0) for part in gaps.split([len(subject_sizes) for subject_sizes in sizes])]
    )
    visits = torch.Generator().manual_seed(seed)
    ends = 1.2 * gaps * torch.rand(sets, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    days = {"days_since_first": running, "days_since_prior": gaps, "index": number}[cse_position]
    return PackedBatch.from_events(
        tokens=torch.where(tokens == 4, 1, tokens),
        hours=300 * torch.rand(count, generator=generator) - 20,
        events_per_set=events_per_set,
        sets_per_subject=torch.tensor([len(subject_sizes) for subject_sizes in sizes]),
        days=days,
        gaps=gaps - ends,
        visit_types=torch.randint(NO_TYPE, len(VISIT_TYPES), (sets,), generator=visits),
        days_of_year=torch.randint(1, 367, (sets,), generator=visits),
    )


def made_up_tokens(vocab_size: int) -> pa.Table:
    """Return a vocabulary whose diagnoses share categories, whose procedures are alike, and whose drugs have levels."""
    kinds: list[str] = [SPECIAL_KIND] * len(SPECIALS)
    codes: list[str | None] = [None for _ in SPECIALS]
    for number in range(vocab_size - len(SPECIALS)):
        kind, prefix = (("DX", "I1"), ("PR", "0B"), ("MED", "C01AA"))[number % 3]
        kinds.append(kind)
        codes.append(f"{prefix}{number // 6}{number}")
    names = [f"{kind}:{code}" for kind, code in zip(kinds, codes, strict=True)]
    return pa.table({"token": [*SPECIALS, *names[len(SPECIALS) :]], "kind": kinds, "code": codes})


def seeded_model(config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> NestModel:
    """Return a NEST with random weights, also in norms and biases, where a 0 or 1 would hide a missing term.

    Most tokens are values of three items.
    """
    return seeded(NestModel, config, seed, dtype)


def seeded(kind: type[Kind], config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> Kind:
    """Return an encoder likewise, which knows a vocabulary; its tokens are of all kinds, if it tells them apart."""
    torch.manual_seed(seed)
    model = kind(config).to(dtype)
    model.describe_tokens(made_up_tokens(config.vocab_size))
    model.item_of_token.copy_(torch.arange(config.vocab_size) % 4 - 1)
    if isinstance(model, KindAwareEncoder):
        kinds = torch.arange(config.vocab_size) % SPECIAL
        model.kind_of_token.copy_(kinds.index_fill(0, torch.arange(len(SPECIALS)), SPECIAL))
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model

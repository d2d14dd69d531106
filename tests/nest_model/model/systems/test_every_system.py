"""Every system's encoder against its reference, and the promises that training, freezing and checkpoints build on."""

import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from nest_model.config import PRESETS, ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.evidence.costs import flop_counter
from nest_model.model.attention import plan
from nest_model.model.attention.plan import BACKENDS
from nest_model.model.classifier import Classifier, loss_sum
from nest_model.model.encoder import DEPENDENCIES, Encoder, encoder_class
from nest_model.model.parcel import Parcel
from nest_model.systems import BLOCKS, blocks_of, systems
from nest_model.training.freezing import freeze_blocks
from nest_model.training.objective import CorruptedBatch, Objective
from nest_model.training.objectives import objective_of
from schemas.errors import NestError
from schemas.tables.vocab import UNK
from tests.support import references
from tests.support.examples import examples
from tests.support.factories.predictions import task
from tests.support.factories.ragged import (
    MAX_SET_ROWS,
    VISIT_TYPES,
    VOCAB_SIZE,
    made_up_tokens,
    ragged_batch,
    seeded,
    subjects,
)
from tests.support.gradients import assert_near, gradients

SIZES = [[3], [0, 2, 5], [1, 1], [8, 8, 0, 4]]
EXACT = {"rtol": 0, "atol": 1e-12}

STAGES = [(name, stage) for name, system in systems().items() for stage in system.stages]
EVERYDAY = ("nest",)
"""What the everyday suite trains until eight patients are learnt by heart."""


def marked(*values: str):
    """Return parameters of a test that trains, of which the first is the system."""
    return pytest.param(*values, marks=() if values[0] in EVERYDAY else pytest.mark.long)


def of_table(*values: str):
    """Return parameters of a test of every system, of which the everyday suite has those of the paper's tables."""
    return pytest.param(*values, marks=() if systems()[values[0]].is_default else pytest.mark.long)


every_system = pytest.mark.parametrize("system", [of_table(name) for name in systems()])
all_stages = pytest.mark.parametrize(("system", "stage"), STAGES)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
every_stage = pytest.mark.parametrize(("system", "stage"), [of_table(*stage) for stage in STAGES])


def small_config(system: str, **changes) -> ModelConfig:
    """Return a system's tiny preset with fewer channels and rows."""
    sizes = (
        {"max_set_rows": MAX_SET_ROWS} | SMALL.get(system, {"d_model": 16, "heads": 2, "d_ff": 24}) | changes
    )
    return ModelConfig.preset("tiny", VOCAB_SIZE, system=system, **sizes)


SMALL: dict[str, dict[str, Any]] = {
    "gt_behrt": {"d_model": 40, "heads": 2, "d_ff": 24, "layers": 2, "visit_types": VISIT_TYPES}
}
"""Sizes of systems whose width is not free, and what they know of the data."""

EVENTS: dict[str, int] = dict.fromkeys(("hi_behrt", "longformer", "nystromformer"), 8)
"""How many times as many events a set has for a system that reads short patients in another way than long ones."""


def ragged(system: str, sizes: list[list[int]], seed: int = 0) -> PackedBatch:
    """Return random patients of the given set sizes, longer for a system that needs it."""
    return ragged_batch([[EVENTS.get(system, 1) * size for size in sets] for sets in sizes], seed)


def small_encoder(system: str, seed: int = 0, dtype: torch.dtype = torch.float64, **changes) -> Encoder:
    return seeded(encoder_class(system), small_config(system, **changes), seed, dtype)


def ready_objective(encoder: Encoder, stage: str) -> Objective:
    """Return the objective of a stage, fitted on some patients."""
    objective = objective_of(stage, encoder.config)
    objective.fit(encoder, [ragged(encoder.system, SIZES * 3)])
    return objective


def ready_step(
    system: str, stage: str, dtype: torch.dtype = torch.float64
) -> tuple[Encoder, Objective, CorruptedBatch, dict[str, int]]:
    """Return an encoder, its objective, a corrupted batch of twelve patients, and the number of its guesses."""
    encoder = small_encoder(system, dtype=dtype)
    objective = ready_objective(encoder, stage)
    corrupted_batch = objective.corrupt(ragged(system, SIZES * 3), torch.Generator().manual_seed(1))
    return encoder, objective, corrupted_batch, objective.counts(corrupted_batch)


def test_every_system_has_a_class_and_stages_that_share_the_epochs():
    for name, system in systems().items():
        assert encoder_class(name).system == name
        assert sum(system.stages.values()) == pytest.approx(1)


@every_system
@settings(max_examples=examples(50), deadline=None)
@given(subjects, st.integers(0, 1000))
def test_packed_encoder_equals_its_plain_reference_with_gradients(system, sizes, seed):
    batch, encoder = ragged(system, sizes, seed), small_encoder(system, seed, readout="cls")
    plain = {name: weight.detach().clone().requires_grad_() for name, weight in encoder.named_parameters()}
    directions = torch.randn(batch.subjects, encoder.config.d_model).double()

    vectors = encoder.patients(batch)[:, 0]
    (vectors * directions).sum().backward()
    expected = references.patients(encoder, plain, batch)
    (expected * directions).sum().backward()

    torch.testing.assert_close(vectors, expected, **EXACT)
    assert_near(gradients(encoder.named_parameters()), gradients(plain.items()), 1e-12)


@every_system
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_neighbours_in_a_batch_change_no_vector_and_no_gradient(system, dtype, tolerance):
    batch, encoder = ragged(system, SIZES), small_encoder(system, dtype=dtype)
    together = encoder.patients(batch)
    together.sum().backward()
    of_all = gradients(encoder.named_parameters())
    encoder.zero_grad()

    alone = [encoder.patients(batch.slice_subjects(place, place + 1)) for place in range(batch.subjects)]
    torch.cat(alone).sum().backward()

    torch.testing.assert_close(torch.cat(alone), together, rtol=0, atol=tolerance)
    assert_near(gradients(encoder.named_parameters()), of_all, tolerance)


class LinearRows(TorchFunctionMode):
    """Counts the rows that each linear layer of a module computes."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        weights = module.named_parameters()
        self._names = {weight.untyped_storage().data_ptr(): name for name, weight in weights}
        self.counts: dict[str, list[int]] = defaultdict(list)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is F.linear:
            rows, weight = args[:2]
            # a layer's weight, or a part of it
            self.counts[self._names.get(weight.untyped_storage().data_ptr(), "")].append(
                rows.shape[:-1].numel()
            )
        return function(*args, **(kwargs or {}))


def rows_of_blocks(system: str, batch: PackedBatch) -> dict[str, int]:
    """Return how many rows the blocks of a system have, counted by hand, by what their names contain."""
    rows, sets = len(batch.tokens), batch.sets
    match system:
        case "nest" | "heart":
            return {"set_wise": rows, "cross_set": sets}
        case "core_behrt":
            return {"blocks": rows + sets}  # [SEP]
        case "cehr_bert":
            return {"blocks": rows + 2 * sets}  # [CLS] or a time token, and [VE]
        case "gt_behrt":  # a set's codes once each, and every [UNK]
            tokens_of_sets = [part.tolist() for part in batch.tokens.split(batch.set_offsets.diff().tolist())]
            nodes = [tokens.count(UNK) + len(set(tokens) - {UNK}) for tokens in tokens_of_sets]
            return {"graph_layers": sum(nodes), "blocks": sets}
        case "hi_behrt":
            lengths = batch.rows.tolist()
            windows = [1 + max(0, math.ceil((length - 50) / 30)) for length in lengths]
            overlap = 20 * (sum(windows) - len(windows))
            return {"extractor": rows + overlap, "aggregator": sum(windows)}
        case _:
            return {"blocks": rows}


@every_system
def test_no_block_computes_a_row_of_padding(system):
    batch, encoder = ragged(system, SIZES), small_encoder(system, readout="cls")
    rows = rows_of_blocks(system, batch)
    with LinearRows(encoder) as linear_rows:
        encoder.patients(batch)

    counts = {
        (part, name): numbers
        for name, numbers in linear_rows.counts.items()
        for part in rows
        if part in name.split(".")
    }
    assert {part for part, _ in counts} == set(rows)
    for (part, name), numbers in counts.items():
        if name.endswith("query_key_value.weight") and "anchor" not in name:
            assert max(numbers) == rows[part], name  # of keys and values; queries may be fewer
        assert max(numbers) <= rows[part], name
    assert max(map(max, linear_rows.counts.values())) == max(rows.values())


@every_system
def test_a_row_read_alone_equals_that_of_all_rows(system):
    batch, encoder = ragged(system, SIZES), small_encoder(system)
    every_row = torch.arange(len(batch.tokens))

    def states(rows: torch.Tensor) -> torch.Tensor:
        read = encoder.read(batch, rows)
        return read.hidden_states[read.place].detach()

    whole = states(every_row)
    for rows in (every_row[::3], every_row[-1:], batch.cls_rows[1:]):
        torch.testing.assert_close(states(rows), whole[rows], **EXACT)


@pytest.mark.parametrize("system", ["bert", "longformer", "performer", "nystromformer"])
def test_the_work_for_a_row_grows_with_the_patients_length_in_bert_alone(system):
    encoder = encoder_class(system)(small_config(system))

    def work(events: int) -> float:
        """Return FLOP for each row of a patient with eight sets of as many events."""
        batch = ragged_batch([[events] * 8])
        with flop_counter() as counter:
            encoder.patients(batch).sum().backward()
        return counter.get_total_flops() / len(batch.tokens)

    growth = work(127) / work(63)
    assert growth > 1.2 if system == "bert" else growth < 1.01


@every_stage
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_micro_batches_sum_to_the_losses_and_gradients_of_the_step(system, stage, dtype, tolerance):
    encoder, objective, corrupted_batch, counts = ready_step(system, stage, dtype)
    whole = objective.losses(encoder, corrupted_batch, counts)
    whole["loss"].backward()
    of_whole = gradients(encoder.named_parameters())
    encoder.zero_grad()

    totals = dict.fromkeys(whole, 0.0)
    for first, end in pairwise([0, 1, 5, corrupted_batch.batch.subjects]):
        for name, loss in objective.losses(
            encoder, corrupted_batch.slice_subjects(first, end), counts
        ).items():
            totals[name] = totals[name] + loss
    totals["loss"].backward()

    assert float(of_whole["embedding.weight"].abs().max()) > 0
    for name, loss in whole.items():
        torch.testing.assert_close(
            torch.as_tensor(totals[name]), loss, rtol=0, atol=tolerance, check_dtype=False
        )
    assert_near(gradients(encoder.named_parameters()), of_whole, tolerance)


@every_stage
def test_the_same_seed_corrupts_alike(system, stage):
    batch, objective = ragged_batch([[64, 64, 64]] * 2), ready_objective(small_encoder(system), stage)
    first, again, other = (
        tensors(objective.corrupt(batch, torch.Generator().manual_seed(seed))) for seed in (3, 3, 4)
    )
    assert all(map(torch.equal, first, again))
    assert any(a.shape != b.shape or not a.equal(b) for a, b in zip(first, other, strict=True))


@needs_cuda
@all_stages
def test_losses_and_gradients_on_cuda_are_those_on_a_cpu(system, stage):
    encoder, objective, corrupted_batch, counts = ready_step(system, stage)
    expected = objective.losses(encoder, corrupted_batch, counts)
    expected["loss"].backward()
    of_cpu = gradients(encoder.named_parameters())

    encoder.zero_grad()
    on_cuda(encoder, objective)
    losses = objective.losses(encoder, corrupted_batch.to("cuda"), counts)
    losses["loss"].backward()

    for name, loss in expected.items():
        torch.testing.assert_close(losses[name].cpu(), loss, rtol=0, atol=1e-11)
    assert_near({name: of.cpu() for name, of in gradients(encoder.named_parameters()).items()}, of_cpu, 1e-11)


@needs_cuda
@all_stages
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_in_16_bits_on_cuda_are_near_those_of_float64(system, stage, backend, dtype, monkeypatch):
    if not loads(backend, dtype):
        pytest.skip(f"{backend} does not load here")
    encoder, objective, corrupted_batch, counts = ready_step(system, stage)
    expected = objective.losses(encoder, corrupted_batch, counts)["loss"].detach()

    monkeypatch.setattr(plan, "fastest", lambda _, of, **__: "sdpa" if of == torch.float32 else backend)
    on_cuda(encoder, objective, torch.float32)
    with torch.autocast("cuda", dtype):
        loss = objective.losses(encoder, corrupted_batch.to("cuda"), counts)["loss"]
    loss.backward()

    assert float(loss) == pytest.approx(float(expected), rel=0.02)
    assert all(gradient.isfinite().all() for gradient in gradients(encoder.named_parameters()).values())


def on_cuda(encoder: Encoder, objective: Objective, dtype: torch.dtype = torch.float64) -> None:
    """Move an encoder and its objective's second network, as a pretraining does."""
    for module in (encoder, objective.target(encoder)):
        if module is not None:
            module.to("cuda", dtype)


def loads(backend: str, dtype: torch.dtype) -> bool:
    """Return whether a back-end of attention can be used on this device."""
    try:
        plan.BackendProbe(torch.device("cuda"), dtype).attend(BACKENDS[backend])
    except (ImportError, RuntimeError, NotImplementedError, AttributeError, TypeError, ValueError):
        return False
    return True


def tensors(part: object) -> list[torch.Tensor]:
    """Return all tensors of a corrupted batch."""
    if isinstance(part, torch.Tensor):
        return [part]
    return [tensor for value in vars(part).values() for tensor in tensors(value)]


@every_stage
@pytest.mark.parametrize("sizes", [[[1]], [[0]], [[0, 0, 0]], [[0], [1, 0]]])
def test_losses_of_nearly_empty_patients_are_finite(system, stage, sizes):
    batch, encoder = ragged(system, sizes), small_encoder(system)
    objective = ready_objective(encoder, stage)
    corrupted_batch = objective.corrupt(batch, torch.Generator().manual_seed(0))

    losses = objective.losses(encoder, corrupted_batch, objective.counts(corrupted_batch))
    with torch.no_grad():
        scores = objective.scores(encoder, corrupted_batch)
    (losses["loss"] + encoder.patients(batch).sum()).backward()

    assert all(loss.isfinite() for loss in losses.values())
    assert all(value == value for value in scores.values())
    assert all(gradient.isfinite().all() for gradient in gradients(encoder.named_parameters()).values())


CHANGES = {
    "hours": lambda batch: replace(batch, hours=batch.hours * 1.5 + 7),
    "days": lambda batch: replace(batch, days=batch.days * 2 + batch.days**0.5),
    "gaps": lambda batch: replace(batch, gaps=batch.gaps + 40),
    "visit_types": lambda batch: replace(batch, visit_types=(batch.visit_types + 2) % 4 - 1),
    "days_of_year": lambda batch: replace(batch, days_of_year=batch.days_of_year % 366 + 1),
}


def in_another_order(batch):
    """Reverse the events of each set, each with its time."""
    order = []
    for first, end in pairwise(batch.set_offsets.tolist()):
        order += [first, *reversed(range(first + 1, end))]
    return replace(batch, tokens=batch.tokens[order], hours=batch.hours[order])


@every_system
@pytest.mark.parametrize("dependency", sorted(DEPENDENCIES))
def test_an_encoder_depends_on_what_it_declares_and_on_nothing_else(system, dependency):
    batch, encoder = ragged(system, SIZES), small_encoder(system, readout="cls")
    change = CHANGES.get(dependency, in_another_order)

    vectors, other_vectors = encoder.patients(batch), encoder.patients(change(batch))

    if dependency in encoder.depends_on:
        assert float((vectors - other_vectors).abs().max()) > 1e-6
    else:
        torch.testing.assert_close(other_vectors, vectors, **EXACT)


def train(module: torch.nn.Module, loss_of, steps: int) -> list[float]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.parametrize(("system", "stage"), [marked(*names) for names in STAGES])
def test_the_pretraining_of_eight_patients_is_learnt_by_heart(system, stage):
    batch, encoder = (
        ragged(system, [[4, 3], [5], [2, 6], [3, 3, 3]] * 2),
        small_encoder(system, dtype=torch.float32),
    )
    torch.manual_seed(0)
    encoder = encoder_class(system)(encoder.config)
    encoder.describe_tokens(made_up_tokens(VOCAB_SIZE))
    objective = ready_objective(encoder, stage)
    corrupted_batch = objective.corrupt(batch, torch.Generator().manual_seed(5))
    counts = objective.counts(corrupted_batch)

    losses = train(encoder, lambda: objective.losses(encoder, corrupted_batch, counts)["loss"], 300)

    least = references.least_loss(encoder, corrupted_batch)
    assert losses[-1] - least < 0.1 * (losses[0] - least)


@pytest.mark.parametrize("system", [marked(name) for name in systems()])
def test_the_labels_of_eight_patients_are_learnt_by_heart(system):
    batch = ragged(system, [[4, 3], [5], [2, 6], [3, 3, 3]] * 2)
    torch.manual_seed(0)
    encoder = encoder_class(system)(small_config(system))
    classifier = Classifier(encoder, task("made_up", "bool", ("false", "true")), dropout=0.0)
    targets = torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])

    train(classifier, lambda: loss_sum(classifier(Parcel(batch)), targets, "bool"), 150)

    assert classifier(Parcel(batch)).argmax(dim=1).tolist() == targets.tolist()


@every_system
def test_the_announced_number_of_parameters_is_the_built_encoders(system):
    encoder = small_encoder(system)
    assert encoder.num_parameters(encoder.config) == sum(weight.numel() for weight in encoder.parameters())


@pytest.mark.parametrize("system", systems())
@pytest.mark.parametrize("preset", PRESETS)
def test_number_of_weights_of_every_preset_is_the_closed_form(system, preset):
    config = ModelConfig.preset(preset, 20_377, system=system)
    with torch.device("meta"):  # nothing is allocated
        encoder = encoder_class(system)(config)
    assert encoder.num_parameters(config) == sum(weight.numel() for weight in encoder.parameters())


@every_system
@pytest.mark.parametrize("readout", ["cls", "mean_pool", "history"])
def test_each_patient_has_as_many_vectors_as_announced(system, readout):
    encoder = small_encoder(system, readout=readout)
    vectors = encoder.patients(ragged(system, SIZES))
    assert vectors.shape == (4, encoder.vectors_per_patient, encoder.config.d_model)


@every_system
def test_freezing_leaves_out_the_weights_of_the_blocks_alone(system):
    encoder = small_encoder(system)
    blocks = encoder.parts()
    assert list(blocks) == blocks_of(system)
    weights = [{id(weight) for part in parts for weight in part.parameters()} for parts in blocks.values()]
    assert len(set.union(*weights)) == sum(map(len, weights)), "no weight is in two blocks"
    for block in blocks:  # one by one: all of BLOCKS at once are the whole encoder
        freeze_blocks(encoder, [block])
    frozen = {id(weight) for weight in encoder.parameters() if not weight.requires_grad}
    assert frozen == set.union(*weights)


@every_system
def test_freezing_all_blocks_leaves_nothing_of_the_encoder_to_train(system):
    encoder = small_encoder(system)
    freeze_blocks(encoder, BLOCKS)
    assert not [name for name, weight in encoder.named_parameters() if weight.requires_grad]


@pytest.mark.parametrize(
    ("system", "block"),
    [of_table(name, block) for name, system in systems().items() for block in system.blocks],
)
def test_frozen_blocks_stay_bit_equal_and_others_are_trained(system, block):
    encoder, batch = small_encoder(system, dtype=torch.float32), ragged(system, SIZES)
    before = {name: weight.detach().clone() for name, weight in encoder.named_parameters()}
    freeze_blocks(encoder, [block])
    frozen = {name for name, weight in encoder.named_parameters() if not weight.requires_grad}

    train(encoder, lambda: encoder.patients(batch).square().sum(), 1)

    bit_equal = {name for name, weight in encoder.named_parameters() if torch.equal(weight, before[name])}
    assert set() < frozen <= bit_equal
    assert bit_equal < before.keys()


def test_freezing_a_block_that_a_system_does_not_have_is_refused():
    encoder = small_encoder("bert")
    with pytest.raises(NestError, match="freeze swe: bert has no such blocks; it has embedding"):
        freeze_blocks(encoder, ["swe"])


@every_system
def test_units_are_distinct_parts_of_the_encoder(system):
    encoder = small_encoder(system)
    weights = [id(weight) for unit in encoder.units() for weight in unit.parameters()]
    assert len(weights) == len(set(weights)) > 0
    assert set(weights) < {id(weight) for weight in encoder.parameters()}

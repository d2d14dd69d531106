from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_model.config import ModelConfig
from nest_model.model.systems.nest.encoder import NestModel
from nest_model.training.losses import pretraining_loss
from nest_model.training.masking import mask_batch
from tests.support import reference_model
from tests.support.examples import examples
from tests.support.factories.ragged import (
    MAX_SET_ROWS,
    VOCAB_SIZE,
    configs,
    configs_of_all_blocks,
    ragged_batch,
    seeded_model,
    subjects,
)
from tests.support.gradients import assert_near, gradients

SMALL = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=2, max_set_rows=MAX_SET_ROWS)
SIZES = [[3, 0, 8], [5], [1, 1]]


def _count(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def _encoder_millions(vocab_size: int) -> float:
    """Count the paper's encoder parameters as its table does, without Time2Vec."""
    with torch.device("meta"):
        model = NestModel(ModelConfig.preset("paper", vocab_size, time2vec=None))
    return round((_count(model) - _count(model.set_head)) / 1e6, 2)


def test_the_paper_preset_has_the_papers_parameters():
    with torch.device("meta"):
        block = NestModel(ModelConfig.preset("paper", 6)).layers[0].set_wise

    assert round(_count(block) / 1e6, 4) == 7.0794
    assert _encoder_millions(45_000) == 119.51
    assert _encoder_millions(20_377) == 100.60


@settings(max_examples=examples(150))
@given(subjects, configs_of_all_blocks, st.integers(0, 1000))
def test_packed_model_equals_the_padded_reference_with_gradients(sizes, config, seed):
    batch = ragged_batch(sizes, seed, config.cse_position)
    masked_batch = mask_batch(batch, torch.Generator().manual_seed(seed), config)
    model = seeded_model(config, seed)
    plain = {name: weight.detach().clone().requires_grad_() for name, weight in model.named_parameters()}

    losses = pretraining_loss(model, masked_batch)
    losses.total.backward()
    hidden_states, mlm, msm, own_sets = reference_model.losses(plain, config, batch, masked_batch)
    (config.mlm_weight * mlm + config.msm_weight * msm + config.own_set_weight * own_sets).backward()

    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(model(masked_batch.batch), hidden_states, **close)
    torch.testing.assert_close(losses.mlm, mlm, **close)
    torch.testing.assert_close(losses.msm, msm, **close)
    torch.testing.assert_close(
        losses.own, own_sets if config.own_set_weight else torch.zeros_like(own_sets), **close
    )
    # relative to the largest: the norm of a nearly constant row magnifies gradients and their rounding errors
    assert_near(gradients(model.named_parameters()), gradients(plain.items()), 1e-12)


@settings(max_examples=examples(25), deadline=None)
@given(configs, st.integers(0, 1000))
def test_presence_scores_equal_the_reference(config, seed):
    model = seeded_model(config, seed)
    model.set_head.log_presence_ratio.copy_(torch.randn(config.vocab_size))
    cls_rows = torch.randn(4, config.d_model, dtype=torch.float64)

    scores = model.presence_scores(cls_rows)

    logits = reference_model.set_head(dict(model.named_parameters()), config, cls_rows)
    torch.testing.assert_close(scores, logits + model.set_head.log_presence_ratio, rtol=0, atol=1e-12)


@settings(max_examples=examples(25), deadline=None)
@given(subjects, configs, st.integers(0, 1000))
def test_packed_float32_equals_padded_float64_to_1e_5(sizes, config, seed):
    batch = ragged_batch(sizes, seed, config.cse_position)
    masked_batch = mask_batch(batch, torch.Generator().manual_seed(seed), config)
    model = seeded_model(config, seed, torch.float32)
    plain = {name: weight.detach().double() for name, weight in model.named_parameters()}

    losses = pretraining_loss(model, masked_batch)
    hidden_states, mlm, msm, own_sets = reference_model.losses(plain, config, batch, masked_batch)

    close = {"rtol": 1e-5, "atol": 1e-5, "check_dtype": False}
    torch.testing.assert_close(model(masked_batch.batch), hidden_states, **close)
    torch.testing.assert_close(losses.mlm, mlm, **close)
    torch.testing.assert_close(losses.msm, msm, **close)
    torch.testing.assert_close(
        losses.own, own_sets if config.own_set_weight else torch.zeros_like(own_sets), **close
    )


@settings(max_examples=examples(25), deadline=None)
@given(subjects, st.randoms(use_true_random=False))
def test_a_set_without_times_is_permutation_equivariant(sizes, random):
    config = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=2, set_position=None)
    batch, model = ragged_batch(sizes), seeded_model(config)
    bounds = batch.set_offsets.tolist()
    order = []
    for first, end in pairwise(bounds):
        order += [first, *random.sample(range(first + 1, end), end - first - 1)]
    permuted_batch = type(batch)(
        **{**vars(batch), "tokens": batch.tokens[order], "hours": batch.hours[order]}
    )

    torch.testing.assert_close(model(permuted_batch), model(batch)[order], rtol=0, atol=1e-12)


def test_hours_change_the_output_of_a_set_with_times():
    batch, model = ragged_batch([[6]]), seeded_model(SMALL)
    hours = batch.hours.clone()
    hours[1:] = hours[1:].flip(0)

    outputs = model(type(batch)(**{**vars(batch), "hours": hours}))

    assert not torch.allclose(outputs[0], model(batch)[0])


def test_the_cross_set_block_changes_cls_rows_only():
    batch, model = ragged_batch(SIZES), seeded_model(SMALL)
    layer = model.layers[-1]
    outputs = {}
    layer.set_wise.register_forward_hook(lambda _, __, rows: outputs.update(after_set_wise=rows.clone()))
    layer.register_forward_hook(lambda _, __, rows: outputs.update(after_layer=rows.clone()))

    model(batch)

    is_changed = (outputs["after_set_wise"] != outputs["after_layer"]).any(1)
    assert is_changed.nonzero().squeeze(1).tolist() == batch.cls_rows.tolist()


def test_an_output_depends_on_no_other_patient():
    batch, model = ragged_batch(SIZES), seeded_model(SMALL)
    ends = batch.set_offsets[batch.subject_offsets].tolist()
    embeddings = {}
    model.embedding.register_forward_hook(lambda _, __, rows: embeddings.update(rows=rows))
    hidden_states = model(batch)

    for subject in range(batch.subjects):
        own_rows = slice(ends[subject], ends[subject + 1])
        (gradient,) = torch.autograd.grad(
            hidden_states[own_rows].sum(), embeddings["rows"], retain_graph=True
        )
        gradient[own_rows] = 0
        assert gradient.count_nonzero() == 0


def test_a_patient_has_the_same_output_alone_and_in_a_batch():
    batch, model = ragged_batch(SIZES), seeded_model(SMALL)
    ends = batch.set_offsets[batch.subject_offsets].tolist()

    for subject in range(batch.subjects):
        alone = model(batch.slice_subjects(subject, subject + 1))
        torch.testing.assert_close(alone, model(batch)[ends[subject] : ends[subject + 1]], rtol=0, atol=1e-12)


def test_the_same_seed_gives_identical_weights_and_gradients():
    batch = ragged_batch(SIZES)

    def step():
        torch.manual_seed(3)
        model = NestModel(SMALL)
        masked_batch = mask_batch(batch, torch.Generator().manual_seed(3), SMALL)
        losses = pretraining_loss(model, masked_batch)
        losses.total.backward()
        return [losses.total, model(batch), *(weight.grad for weight in model.parameters())]

    assert all(torch.equal(a, b) for a, b in zip(step(), step(), strict=True))


def test_positions_of_ten_years_in_days_keep_float32_outputs_to_1e_5():
    batch = ragged_batch([[4, 5, 3]])
    batch = type(batch)(**{**vars(batch), "days": batch.days + 3_650.123456})
    model = seeded_model(SMALL, dtype=torch.float32)

    single, double = model(batch), seeded_model(SMALL, dtype=torch.float32).double()(batch)

    torch.testing.assert_close(single, double, rtol=1e-5, atol=1e-5, check_dtype=False)


def test_bfloat16_autocast_trains_with_losses_in_float32():
    batch, model = ragged_batch(SIZES), seeded_model(SMALL, dtype=torch.float32)
    masked_batch = mask_batch(batch, torch.Generator().manual_seed(1), SMALL)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = pretraining_loss(model, masked_batch)
    low.total.backward()

    full = pretraining_loss(model, masked_batch)
    assert low.total.dtype == torch.float32
    torch.testing.assert_close(low.total, full.total, rtol=0.05, atol=0.05)
    assert all(weight.grad.isfinite().all() for weight in model.parameters())


def test_an_untrained_model_guesses_almost_evenly():
    torch.manual_seed(0)
    config = ModelConfig.preset("tiny", 2_000, max_set_rows=MAX_SET_ROWS)
    masked_batch = mask_batch(ragged_batch(SIZES * 20), torch.Generator().manual_seed(0), config)

    losses = pretraining_loss(NestModel(config), masked_batch)

    assert 6.5 < float(losses.mlm) < 9.0  # ln 2000 = 7.6

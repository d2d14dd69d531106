"""The padded and the packed forms of a step have the same loss and gradients."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Generator

from benchmarks.model.patients import draw_batch
from benchmarks.model.step import __main__ as command
from benchmarks.model.step.forms import FORMS, Size, prepare
from benchmarks.model.step.padded import PaddedBatch, competent, literal, padded_loss
from nest_model.model.systems.nest.encoder import NestModel, merge_duplicates
from nest_model.training.losses import pretraining_loss
from nest_model.training.masking import mask_batch

SMALL = Size(16, 2, vocab_size=40, max_set_rows=12, max_sets=4, row_budget=100)
PATIENTS = 7


@pytest.mark.parametrize("set_position", ["hours", None])
@pytest.mark.parametrize("attend", [literal, competent])
def test_padded_forms_have_the_loss_and_gradients_of_nest(attend, set_position):
    form = replace(FORMS["pruned_last_layer"], set_position=set_position)
    config, written_out = SMALL.config(form), SMALL.config(replace(form, shortcuts=FORMS["packed"].shortcuts))
    batch = draw_batch(PATIENTS, config, np.random.default_rng(3))
    product, plain = NestModel(config).double(), NestModel(written_out).double()
    plain.load_state_dict(product.state_dict())

    expected = pretraining_loss(product, mask_batch(batch, Generator().manual_seed(5), config)).total
    expected.backward()
    padded_batch = PaddedBatch.of(mask_batch(batch, Generator().manual_seed(5), written_out), written_out)
    for heads_everywhere in (True, False):
        plain.zero_grad()
        loss = padded_loss(plain, padded_batch, attend, heads_everywhere=heads_everywhere)
        loss.backward()
        torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)
        for (name, weight), product_weight in zip(
            plain.named_parameters(), product.parameters(), strict=True
        ):
            torch.testing.assert_close(weight.grad, product_weight.grad, rtol=1e-9, atol=1e-12, msg=name)


def test_every_form_of_a_step_has_the_same_loss():
    def losses(set_position):
        forms = [form for form in FORMS.values() if form.set_position == set_position]
        return [(form.bf16, prepare(form, SMALL, PATIENTS).run()) for form in forms]

    for set_position in ("hours", None):
        of_forms = losses(set_position)
        first = of_forms[0][1]
        assert all(loss == pytest.approx(first, rel=1e-2 if bf16 else 1e-5) for bf16, loss in of_forms)


def test_each_shortcut_never_increases_the_computed_rows():
    steps = [prepare(form, SMALL, PATIENTS) for form in FORMS.values() if not form.padded_by]
    rows, head_rows = zip(*((step.rows, step.head_rows) for step in steps), strict=True)
    assert list(rows[:-2]) == sorted(rows[:-2], reverse=True)
    assert rows[0] > rows[1] > rows[2] >= rows[-1]
    assert head_rows[0] > head_rows[-1]


def test_random_patients_have_the_sizes_of_mimic():
    batch = draw_batch(5_000, Size(64, 1).config(FORMS["packed"]), np.random.default_rng(0))
    sets = batch.subject_offsets.diff().double()
    assert float((sets == 1).double().mean()) == pytest.approx(0.56, abs=0.02)
    assert 2.2 < float(sets.mean()) < 2.5  # 2.46 before the last eight are taken
    assert len(batch.tokens) / batch.subjects == pytest.approx(428, rel=0.05)
    for is_timed, share in ((True, 0.97), (False, 0.46)):  # of the rows of the open demo of 100 patients
        merged_batch, _ = merge_duplicates(batch, hours_matter=is_timed)
        assert len(merged_batch.tokens) / len(batch.tokens) == pytest.approx(share, abs=0.03)
    assert torch.equal(batch.days[batch.subject_offsets[:-1]], torch.zeros(5_000, dtype=torch.float64))


@pytest.mark.long
def test_step_command_writes_a_table_and_the_figures(tmp_path, monkeypatch):
    monkeypatch.setitem(command.SIZES, "small", SMALL)
    flags = ["--sizes", "small", "--forms", "competent", "unordered", "--rounds", "2", "--patients", "4"]
    assert command.main([*flags, "--out", str(tmp_path), "--threads", str(torch.get_num_threads())]) == 0
    forms = json.loads((tmp_path / "model.json").read_text())["sizes"]["small"]["forms"]
    assert forms["competent"]["times_as_fast_as_competent"] == 1
    assert len(forms["unordered"]["milliseconds_per_patient"]) == 2
    assert all(form["peak_bytes"] > 0 for form in forms.values())
    table = (tmp_path / "model.md").read_text()
    assert all(FORMS[name].words in table for name in forms)

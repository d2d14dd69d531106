import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nest_model.config import ModelConfig
from nest_model.model.classifier import Classifier
from nest_model.model.heads import ClassifierHead, HistoryHead
from nest_model.model.parcel import Parcel
from tests.support import reference_model
from tests.support.examples import examples
from tests.support.factories.predictions import task
from tests.support.factories.ragged import (
    MAX_SET_ROWS,
    VOCAB_SIZE,
    configs_of_all_blocks,
    ragged_batch,
    seeded_model,
    subjects,
)

CONFIG = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=1, max_set_rows=MAX_SET_ROWS)
BOOL_TASK = task("mimic_mortality", "bool", ("false", "true"))
CLASS_TASK = task("mimic_icd_chapter", "class", ("I", "II", "IX"))


def random_classifier(config, label_task, seed: int = 0) -> Classifier:
    """Return a float64 classifier in which no weight of the head is 0, as that of the line and the votes would be."""
    classifier = Classifier(seeded_model(config, seed), label_task, dropout=0.5).double().eval()
    for weight in classifier.fresh_weights:
        nn.init.normal_(weight, std=0.5)
    return classifier


@settings(max_examples=examples(60), deadline=None)
@given(
    subjects,
    configs_of_all_blocks,
    st.sampled_from(["cls", "history", "mean_pool"]),
    st.sampled_from([BOOL_TASK, CLASS_TASK]),
    st.integers(0, 1000),
)
def test_classifier_equals_the_padded_reference_with_gradients(sizes, config, readout, label_task, seed):
    """The logits are rounded to float32; the gradients of directions that float32 holds are exact."""
    config = dataclasses.replace(config, readout=readout)
    batch = ragged_batch(sizes, seed, config.cse_position)
    classifier = random_classifier(config, label_task, seed)
    plain = {name: weight.detach().clone().requires_grad_() for name, weight in classifier.named_parameters()}
    directions = torch.randn(batch.subjects, len(label_task.classes))

    logits = classifier(Parcel(batch))
    (logits * directions).sum().backward()
    items = classifier.encoder.item_of_token.tolist()
    expected = reference_model.classifier(plain, config, batch, items)
    (expected * directions.double()).sum().backward()

    torch.testing.assert_close(logits, expected.float(), rtol=2**-22, atol=1e-12)
    for name, weight in classifier.named_parameters():
        of_plain = torch.zeros_like(weight) if plain[name].grad is None else plain[name].grad
        gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
        # relative to the largest gradient of a weight: Time2Vec's sums hours, in the hundreds, that cancel
        scale = max(1.0, float(of_plain.abs().max()))
        torch.testing.assert_close(gradient, of_plain, rtol=0, atol=1e-12 * scale, msg=name)


@pytest.mark.parametrize(
    ("readout", "label_task", "head", "has_line", "has_votes"),
    [
        ("cls", BOOL_TASK, ClassifierHead, False, False),
        ("cls", CLASS_TASK, ClassifierHead, False, False),
        ("history", BOOL_TASK, HistoryHead, True, False),
        ("history", CLASS_TASK, HistoryHead, False, True),
    ],
)
def test_head_follows_the_readout_and_the_label(readout, label_task, head, has_line, has_votes):
    config = dataclasses.replace(CONFIG, readout=readout)

    classifier = random_classifier(config, label_task)

    assert type(classifier.head) is head
    assert (getattr(classifier.head, "line", None) is not None) == has_line
    assert (classifier.votes is not None) == has_votes

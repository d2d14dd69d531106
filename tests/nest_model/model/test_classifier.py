import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from nest_model.config import ModelConfig
from nest_model.model.classifier import Classifier, outputs_of
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
from tests.support.gradients import assert_near, gradients

CONFIG = ModelConfig(VOCAB_SIZE, d_model=16, heads=2, d_ff=24, layers=1, max_set_rows=MAX_SET_ROWS)
BOOL_TASK = task("mimic_mortality", "bool", ("false", "true"))
CLASS_TASK = task("mimic_icd_chapter", "class", ("I", "II", "IX"))
LIST_TASK = task("mimic_icd_category", "list", ("I10", "I50"))
NUMBER_TASK = task("next_creatinine", "number", ())
TIME_TASK = task("time_to_death", "time", ()).model_copy(update={"times_days": (30.0, 90.0, 365.0)})


def random_classifier(config, label_task, seed: int) -> Classifier:
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
    st.sampled_from([BOOL_TASK, CLASS_TASK, LIST_TASK, NUMBER_TASK, TIME_TASK]),
    st.integers(0, 1000),
)
def test_classifier_equals_the_padded_reference_with_gradients(sizes, config, readout, label_task, seed):
    """The logits are rounded to float32; the directions are float32 already, so that no gradient is rounded."""
    config = dataclasses.replace(config, readout=readout)
    batch = ragged_batch(sizes, seed, config.cse_position)
    classifier = random_classifier(config, label_task, seed)
    plain = {name: weight.detach().clone().requires_grad_() for name, weight in classifier.named_parameters()}
    directions = torch.randn(batch.subjects, outputs_of(label_task))

    logits = classifier(Parcel(batch))
    (logits * directions).sum().backward()
    items = classifier.encoder.item_of_token.tolist()
    expected = reference_model.classifier(plain, config, batch, items)
    (expected * directions.double()).sum().backward()

    torch.testing.assert_close(logits, expected.float(), rtol=2**-22, atol=1e-12)
    assert_near(gradients(classifier.named_parameters()), gradients(plain.items()), 1e-12)


@pytest.mark.parametrize(
    ("readout", "label_task", "head", "has_line", "has_votes"),
    [
        ("cls", BOOL_TASK, ClassifierHead, False, False),
        ("cls", CLASS_TASK, ClassifierHead, False, False),
        ("mean_pool", TIME_TASK, ClassifierHead, False, False),
        ("history", BOOL_TASK, HistoryHead, True, False),
        ("history", NUMBER_TASK, HistoryHead, True, False),
        ("history", TIME_TASK, HistoryHead, True, False),
        ("history", CLASS_TASK, HistoryHead, False, True),
        ("history", LIST_TASK, HistoryHead, False, True),
    ],
)
def test_head_follows_the_readout_and_the_label(readout, label_task, head, has_line, has_votes):
    config = dataclasses.replace(CONFIG, readout=readout)

    classifier = Classifier(seeded_model(config), label_task, dropout=0.5)

    assert type(classifier.head) is head
    assert (getattr(classifier.head, "line", None) is not None) == has_line
    assert (classifier.votes is not None) == has_votes

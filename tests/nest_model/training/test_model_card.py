"""The README of a model, whatever source it was trained on."""

import re

from nest_model.config import ModelConfig
from nest_model.model.checkpoint import ModelCard
from nest_model.training.model_card import pretrained_readme


def test_pretrained_readme_has_no_hospital_words():
    recipe = {
        "learning_rate": 1e-4,
        "weight_decay": 0.01,
        "examples_per_step": 36,
        "epochs": 9,
        "patience": 3,
    }
    training = {"seed": 1, "recipe": recipe, "epochs": 2, "best_epoch": 0}
    training |= {"train_patients": 630, "val_patients": 90}
    card = ModelCard("nest", ModelConfig(vocab_size=30), "a" * 64, training)
    text = pretrained_readme(card, {"val_loss": 1.0}, yardsticks={}, not_learnt=[], not_judged=[])
    assert "- train subjects: 630\n- val subjects: 90\n" in text
    assert "## On the validation subjects" in text
    assert re.findall(r"hospital|patient\b|patients|stay\b|laboratory|drug", text) == []

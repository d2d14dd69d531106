import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_model.data.packed import epoch_steps, micro_batches
from nest_model.recipe import Recipe

SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=40)


@given(st.integers(1, 100), st.integers(1, 40), st.integers(0, 5))
def test_epoch_steps_visit_every_example_once(examples, per_step, epoch):
    steps = epoch_steps(examples, per_step, seed=1, epoch=epoch)

    assert sorted(np.concatenate(steps).tolist()) == list(range(examples))
    assert all(len(step) == per_step for step in steps[:-1])
    repeat = epoch_steps(examples, per_step, seed=1, epoch=epoch)
    assert [step.tolist() for step in steps] == [step.tolist() for step in repeat]


def test_epoch_steps_differ_between_epochs():
    first, second = (epoch_steps(50, 50, seed=1, epoch=epoch)[0].tolist() for epoch in (0, 1))
    assert first != second


@given(SIZES, st.integers(1, 80))
def test_micro_batches_keep_the_order_and_the_budget(sizes, budget):
    runs = list(micro_batches(np.array(sizes), budget))

    assert [run.start for run in runs] == [0, *(run.stop for run in runs[:-1])]
    assert runs[-1].stop == len(sizes)
    for run in runs:
        assert sum(sizes[run]) <= budget or run.stop - run.start == 1


def test_the_learning_rate_warms_up_and_decays_by_a_cosine():
    recipe = Recipe(learning_rate=1.0, epochs=1, patience=1, warmup_share=0.2, decay="cosine")

    assert recipe.rate(0, 10) == pytest.approx(1 / 3)
    assert recipe.rate(2, 10) == pytest.approx(1.0)
    assert recipe.rate(6, 10) == pytest.approx(0.5)
    assert recipe.rate(10, 10) == pytest.approx(0.0)


def test_the_learning_rate_warms_up_and_decays_along_a_line():
    recipe = Recipe(learning_rate=1.0, epochs=1, patience=1, warmup_share=0.2, decay="linear")

    assert [recipe.rate(step, 10) for step in (0, 2, 4, 6, 10)] == pytest.approx([1 / 3, 1, 0.75, 0.5, 0])


@pytest.mark.parametrize(
    ("epochs", "of_stages"), [(30, [10, 20]), (10, [3, 7]), (5, [2, 3]), (2, [1, 1]), (1, [1, 1])]
)
def test_stages_of_a_third_and_two_thirds_share_the_epochs(epochs, of_stages):
    recipe = Recipe(learning_rate=1.0, epochs=epochs, patience=3)

    assert [recipe.for_share(share).epochs for share in (1 / 3, 2 / 3)] == of_stages
    assert recipe.for_share(1.0) == recipe


@pytest.mark.parametrize(
    ("examples", "epochs"),
    [(1, 30), (419, 29), (420, 29), (421, 28), (1_999, 6), (2_000, 6), (1_000_000, 6)],
)
def test_few_examples_get_up_to_30_epochs(examples, epochs):
    recipe = Recipe(learning_rate=1.0, epochs=6, patience=3, examples_per_step=12, least_steps=1_000)

    assert recipe.for_examples(examples).epochs == epochs


@pytest.mark.parametrize(
    ("changes", "epochs"),
    [
        ({}, 10),
        ({"least_steps": 2_000}, 20),
        ({"examples_per_step": 24}, 20),
        ({"least_steps": 0}, 6),
        ({"epochs": 3, "least_steps": 2_000}, 3),
        ({"epochs": None, "learning_rate": 1e-3}, 10),
    ],
)
def test_changes_of_a_recipe_shape_the_epochs_that_few_examples_get(changes, epochs):
    recipe = Recipe(learning_rate=1.0, epochs=6, patience=3, examples_per_step=12, least_steps=1_000)

    assert recipe.for_training(1_200, changes).epochs == epochs


def test_few_examples_get_no_more_epochs_without_least_steps():
    recipe = Recipe(learning_rate=1.0, epochs=6, patience=3)

    assert recipe.for_examples(1) == recipe


def test_the_learning_rate_is_constant_without_a_schedule():
    recipe = Recipe(learning_rate=5e-5, epochs=1, patience=1)
    assert {recipe.rate(step, 7) for step in range(7)} == {5e-5}

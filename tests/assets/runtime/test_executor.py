"""Two steps run at a time; on a GPU one training does."""

import pytest

from assets.definitions import defs
from assets.runtime import executor


@pytest.mark.parametrize(
    ("gpu", "limits"), [(True, [{"key": executor.TRAINING_TAG, "limit": 1}]), (False, [])]
)
def test_a_gpu_has_one_training_at_a_time(monkeypatch, gpu, limits):
    monkeypatch.setattr(executor, "has_gpu", lambda: gpu)
    made = executor.exclusive_executor.executor_creation_fn(None)
    assert made._tag_concurrency_limits == limits


def test_every_step_of_torch_has_the_tag_and_no_other_step():
    steps = defs().resolve_asset_graph().assets_defs
    trainings = {step.op.name for step in steps if "dagster/kind/pytorch" in str(step.tags_by_key)}
    tagged = {step.op.name for step in steps if executor.TRAINING_TAG in step.op.tags}
    assert trainings <= tagged
    assert not [name for name in tagged if name.endswith(("_labels", "_report", "_page"))]

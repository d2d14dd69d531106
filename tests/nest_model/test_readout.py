import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nest_model.batch import PackedBatch
from nest_model.config import ModelConfig
from nest_model.model import NestModel
from nest_model.readout import read_sets

SUBJECTS = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4), min_size=1, max_size=5)


@settings(max_examples=30, deadline=None)
@given(SUBJECTS, st.sampled_from(["hours", None]), st.integers(1, 3), st.integers(0, 99))
def test_reading_the_sets_alone_gives_what_the_whole_model_gives_and_its_gradients(
    events_per_set, set_position, layers, seed
):
    torch.manual_seed(seed)
    lengths = torch.tensor([length for subject in events_per_set for length in subject])
    events, sets = int(lengths.sum()), len(lengths)
    batch = PackedBatch.from_events(
        tokens=torch.randint(5, 20, (events,)),
        hours=torch.rand(events) * 99,
        events_per_set=lengths,
        sets_per_subject=torch.tensor([len(subject) for subject in events_per_set]),
        days=torch.rand(sets, dtype=torch.float64) * 999,
    )
    config = ModelConfig(20, d_model=16, heads=2, d_ff=8, layers=layers, set_position=set_position)
    model = NestModel(config).double()
    weights = [weight for name, weight in model.named_parameters() if not name.startswith("set_head")]
    whole, alone = model(batch)[batch.cls_rows], read_sets(model, batch)
    weighing = torch.from_numpy(np.random.default_rng(seed).normal(size=whole.shape))

    torch.testing.assert_close(alone, whole, rtol=0, atol=1e-12)
    for expected, found in zip(
        torch.autograd.grad((whole * weighing).sum(), weights, allow_unused=True),
        torch.autograd.grad((alone * weighing).sum(), weights, allow_unused=True),
        strict=True,
    ):
        if expected is not None:
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)

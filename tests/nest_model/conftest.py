"""Run torch in a single thread: the tensors of these tests are tiny, and more threads would only wait."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)

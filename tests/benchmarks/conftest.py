"""One thread: the tensors of these tests are tiny, and idle threads would only wait for each other."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)

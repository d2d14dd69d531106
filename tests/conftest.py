"""The one whole run of the product that several tests look at."""

import hypothesis
import pytest

from tests.runs import Run, run

hypothesis.settings.register_profile("everywhere", deadline=None)  # a busy machine is no fault of the code's
hypothesis.settings.load_profile("everywhere")


@pytest.fixture(scope="session")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """`dagster job execute -j mimic_full`, word for word, on 150 synthetic patients."""
    folder = tmp_path_factory.mktemp("full_run")
    return run("dagster", "job", "execute", "-j", "mimic_full", folder=folder, NEST_SYNTHETIC_PATIENTS="150")

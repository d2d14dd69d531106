"""Which steps of a broken run are executed when it is resumed."""

from pathlib import Path
from types import SimpleNamespace

import dagster as dg
import pytest
from dagster._core.definitions.reconstruct import ReconstructableJob, ReconstructableRepository

from assets.runtime.resume import _refuse_changed_job, remaining_steps
from schemas.errors import NestError


@dg.asset
def raw() -> None:
    pass


@dg.asset(deps=[raw])
def table() -> None:
    pass


@dg.asset(deps=[raw])
def other_table() -> None:
    pass


@dg.asset(deps=[table])
def model() -> None:
    raise ValueError("broken")


@dg.asset(deps=[model])
def page() -> None:
    pass


def test_a_resumed_run_repeats_all_that_its_broken_steps_come_after():
    """The raw files may have changed: a page that reads them must not begin before the tables between them."""
    assets = [raw, table, other_table, model, page]
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(assets, instance=instance, raise_on_error=False)
        steps = remaining_steps(instance, result.dagster_run)
    assert steps == ["model", "page", "raw", "table"]


def test_of_a_run_without_a_step_left_all_steps_remain():
    """It was killed before its end was recorded; Dagster would take no selection for all steps, without a word."""
    with dg.DagsterInstance.ephemeral() as instance:
        run = dg.materialize([raw, table], instance=instance).dagster_run
        instance.report_run_failed(run)
        assert remaining_steps(instance, instance.get_run_by_id(run.run_id)) == ["raw", "table"]


RUN = SimpleNamespace(run_id="1a2b", job_name="one_cohort_mine")
DEFINITIONS = """
import dagster as dg

@dg.asset
def raw() -> None: ...

@dg.asset(deps=[raw])
def table() -> None: ...

defs = dg.Definitions([raw, table], jobs=[dg.define_asset_job("one_cohort_{name}", [raw, table])])
"""


def job_of(folder: Path, *, cohort: str) -> ReconstructableJob:
    """Return the job `one_cohort_mine` of definitions that now have only the one of another name, or of the same."""
    file = folder / "definitions_now.py"
    file.write_text(DEFINITIONS.replace("{name}", cohort))
    return ReconstructableRepository.for_file(str(file), "defs").get_reconstructable_job(RUN.job_name)


@pytest.mark.parametrize(
    ("cohort", "missing"), [("mine", "mine_labels, mine_nest"), ("yours", "its job")], ids=["steps", "job"]
)
def test_a_run_of_a_cohort_whose_file_is_gone_is_refused_in_words(tmp_path: Path, cohort: str, missing: str):
    with pytest.raises(NestError) as refusal:
        _refuse_changed_job(RUN, job_of(tmp_path, cohort=cohort), ["raw", "mine_nest", "mine_labels"])
    assert str(refusal.value) == (
        "Run 1a2b (one_cohort_mine) cannot be resumed: the cohort files have changed since, and "
        f"{missing} no longer exists. Start a job again."
    )


def test_a_run_of_a_job_that_is_as_it_was_is_not_refused(tmp_path: Path):
    _refuse_changed_job(RUN, job_of(tmp_path, cohort="mine"), ["raw", "table"])

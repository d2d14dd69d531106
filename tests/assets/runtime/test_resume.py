"""Which steps of a broken run are executed when it is resumed."""

import dagster as dg

from assets.runtime.resume import remaining_steps


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

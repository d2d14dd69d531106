"""What HARVEST says of the whole CDM: until when it is complete, and whether its birth dates are real."""

from datetime import date

import polars as pl

from pipelines.sources.pcornet.times import without_sentinels
from pipelines.sources.pcornet.words import strip_text
from schemas.errors import InputError

TRUE_BIRTH_DATES = "01"
VERSIONS = ("6.1", "7.0")


def end_of_data(harvest: pl.DataFrame) -> date:
    """Return the earliest of the refresh dates: from the next day on, some table may be incomplete.

    Raises:
        InputError: there is no row of HARVEST, or no refresh date in it.
    """
    _require_row(harvest)
    dates = [name for name in harvest.columns if name.startswith("REFRESH_")]
    earliest = without_sentinels(harvest, *dates).select(pl.min_horizontal(dates).min()).item()
    if earliest is None:
        raise InputError(
            f"HARVEST: columns {', '.join(dates)}: no date in any of {harvest.height:,} rows, so nobody can say until "
            "when the data are complete. Fill in the refresh dates."
        )
    return date.fromisoformat(str(earliest))


def refuse_shifted_births(harvest: pl.DataFrame, allowed_methods: tuple[str, ...] = ()) -> list[str]:
    """Return how the CDM's birth dates were made where they are not the true ones, and that was allowed by name.

    Args:
        harvest: the rows of HARVEST.
        allowed_methods: values of BIRTH_DATE_MGMT beside 01 that may be gone on with.

    Raises:
        InputError: they are imputed or shifted: neither ages nor the split by day of birth would mean anything.
    """
    _require_row(harvest)
    methods = strip_text(harvest)["BIRTH_DATE_MGMT"].fill_null("none")
    untrue_methods = sorted(set(methods.to_list()) - {TRUE_BIRTH_DATES})
    refusals = [value for value in untrue_methods if value not in allowed_methods]
    if refusals:
        raise InputError(
            f"HARVEST: column BIRTH_DATE_MGMT: {', '.join(refusals)} where {TRUE_BIRTH_DATES} says that birth dates are "
            "the true ones. Imputed or shifted, they make ages wrong and the split by day of birth none; to go on all "
            f"the same, set NEST_PCORNET_BIRTH_DATES={','.join(untrue_methods)}."
        )
    return untrue_methods


def unsupported_versions(harvest: pl.DataFrame) -> list[str]:
    """Return the CDM's versions that are none of those this was written for."""
    versions = strip_text(harvest)["CDM_VERSION"].fill_null("none").unique().sort().to_list()
    return [version for version in versions if not version.startswith(VERSIONS)]


def _require_row(harvest: pl.DataFrame) -> None:
    if not harvest.height:
        raise InputError(
            "HARVEST: the table has no rows. Give the CDM's own: it says until when the data go."
        )

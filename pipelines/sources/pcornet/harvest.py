"""HARVEST: the end of the CDM's data, its version, and whether its birth dates are real."""

from datetime import date

import polars as pl

from pipelines.sources.pcornet.times import without_sentinels
from pipelines.sources.pcornet.words import strip_text
from schemas.errors import InputError
from schemas.nouns import with_noun

TRUE_BIRTH_DATES = "01"
VERSIONS = ("6.1", "7.0")


def end_of_data(harvest: pl.DataFrame) -> date:
    """Return the earliest of the refresh dates; after that day, some table may be incomplete.

    Raises:
        InputError: HARVEST has no row, or no refresh date.
    """
    _require_row(harvest)
    dates = [name for name in harvest.columns if name.startswith("REFRESH_")]
    earliest = without_sentinels(harvest, *dates).select(pl.min_horizontal(dates).min()).item()
    if earliest is None:
        raise InputError(
            f"HARVEST: columns {', '.join(dates)}: no date in {with_noun(harvest.height, 'row')}, so the end of the "
            "data is unknown. Fill in the refresh dates."
        )
    return date.fromisoformat(str(earliest))


def refuse_shifted_births(harvest: pl.DataFrame, allowed_methods: tuple[str, ...] = ()) -> list[str]:
    """Return the methods by which birth dates were imputed or shifted; refuse those that are not allowed.

    Args:
        harvest: the rows of HARVEST.
        allowed_methods: values of BIRTH_DATE_MGMT that are accepted beside 01.

    Raises:
        InputError: a method is not allowed; with imputed or shifted dates, neither ages nor the split by day of birth
            are valid.
    """
    _require_row(harvest)
    methods = strip_text(harvest)["BIRTH_DATE_MGMT"].fill_null("none")
    untrue_methods = sorted(set(methods.to_list()) - {TRUE_BIRTH_DATES})
    refusals = [value for value in untrue_methods if value not in allowed_methods]
    if refusals:
        raise InputError(
            f"HARVEST: column BIRTH_DATE_MGMT: {', '.join(refusals)}, but only {TRUE_BIRTH_DATES} stands for true "
            "birth dates. With imputed or shifted dates, ages and the split by day of birth are wrong; to continue all "
            f"the same, set NEST_PCORNET_BIRTH_DATES={','.join(untrue_methods)}."
        )
    return untrue_methods


def unsupported_versions(harvest: pl.DataFrame) -> list[str]:
    """Return the CDM versions that are not supported."""
    versions = strip_text(harvest)["CDM_VERSION"].fill_null("none").unique().sort().to_list()
    return [version for version in versions if not version.startswith(VERSIONS)]


def _require_row(harvest: pl.DataFrame) -> None:
    if not harvest.height:
        raise InputError(
            "HARVEST: the table has no rows. Give the CDM's own table, which has the end of the data."
        )

"""The population, its ids, and the end of the data."""

from datetime import date

import polars as pl
import pytest

from pipelines.sources.pcornet.harvest import end_of_data, refuse_shifted_births
from pipelines.sources.pcornet.ids import Ids
from pipelines.sources.pcornet.people import deaths, people
from schemas.errors import InputError
from tests.support.pcornet_tables import END_OF_DATA, HARVEST, IDS, at, patient, table


def population_of(*rows: dict[str, object]) -> tuple[pl.DataFrame, dict[str, int], dict[str, int]]:
    population, flow = people(table("DEMOGRAPHIC", *rows), IDS)
    assert flow.reconciles
    return population, flow.dropped, flow.noted


def test_id_is_63_bit_hash_under_salt():
    names = pl.Series(["p1", "p2", None, "p1"])
    ids, other_ids = IDS.of(names, "PATID"), Ids("another salt, as long").of(names, "PATID")
    assert ids[0] == ids[3] != ids[1]
    assert ids[2] is None
    assert ids.drop_nulls().is_between(0, 2**63 - 1).all()
    assert set(ids.drop_nulls()).isdisjoint(other_ids.drop_nulls())


def test_patient_and_visit_of_same_name_have_different_ids():
    name = pl.Series(["1"])
    assert IDS.of(name, "PATID")[0] != IDS.of(name, "ENCOUNTERID")[0]


def test_a_salt_that_could_be_guessed_is_refused_and_not_quoted():
    with pytest.raises(InputError, match=r"NEST_SITE_SALT: a salt of 7 characters is too short") as error:
        Ids("hunter2")
    assert "hunter2" not in str(error.value)


def test_the_population_is_born_from_1999_to_2024_both_days_included():
    rows = [
        {"PATID": "before", "BIRTH_DATE": date(1998, 12, 31)},
        {"PATID": "first", "BIRTH_DATE": date(1999, 1, 1)},
        {"PATID": "last", "BIRTH_DATE": date(2024, 12, 31)},
        {"PATID": "after", "BIRTH_DATE": date(2025, 1, 1)},
    ]
    population, drop_counts, _ = population_of(*rows)
    assert set(population["subject_id"]) == {patient("first"), patient("last")}
    assert drop_counts["born_outside"] == 2


def test_a_sentinel_is_no_date_of_birth():
    sentinels = [date(1900, 1, 1), date(1753, 1, 1), date(9999, 12, 31), None]
    population, drop_counts, notes = population_of(
        *({"PATID": str(place), "BIRTH_DATE": day} for place, day in enumerate(sentinels))
    )
    assert population.height == 0
    assert (drop_counts["no_birth_date"], notes["sentinel_date"]) == (4, 3)


def test_padding_is_stripped_and_no_information_is_null():
    population, _, notes = population_of(
        {"PATID": "p1   ", "BIRTH_DATE": date(2010, 1, 1), "SEX": "F ", "RACE": "05"},
        {"PATID": "p2", "BIRTH_DATE": date(2010, 1, 1), "SEX": "NI", "RACE": "OT"},
        {"PATID": "p3", "BIRTH_DATE": date(2010, 1, 1), "SEX": "", "RACE": "UN"},
    )
    values = {row["subject_id"]: (row["sex"], row["race"]) for row in population.to_dicts()}
    assert values == {patient("p1"): ("F", "White"), patient("p2"): (None, None), patient("p3"): (None, None)}
    assert notes["no_information"] == 2


def test_repeated_patient_is_dropped_and_conflicting_patient_refused():
    row = {"PATID": "p", "BIRTH_DATE": date(2010, 1, 1), "SEX": "F"}
    population, drop_counts, _ = population_of(row, row)
    assert (population.height, drop_counts["repeated"]) == (1, 1)
    with pytest.raises(InputError, match="1 of 2 rows repeat another row's"):
        population_of(row, row | {"SEX": "M"})


def test_earliest_death_counts_and_sentinel_is_dropped():
    rows = [
        {"PATID": "p", "DEATH_DATE": date(2012, 5, 2)},
        {"PATID": "p", "DEATH_DATE": date(2012, 5, 1)},
        {"PATID": "q", "DEATH_DATE": date(9999, 12, 31)},
    ]
    death_rows, flow = deaths(table("DEATH", *rows), IDS)
    assert death_rows.rows() == [(patient("p"), at(date(2012, 5, 1)))]
    assert flow.reconciles
    assert (flow.dropped["repeated"], flow.dropped["no_death_date"], flow.noted["sentinel_date"]) == (1, 1, 1)


def test_the_data_end_with_the_earliest_refresh_that_is_a_date():
    harvest = HARVEST | {"REFRESH_VITAL_DATE": date(2024, 3, 1), "REFRESH_DEATH_DATE": date(1900, 1, 1)}
    assert end_of_data(table("HARVEST", harvest)) == date(2024, 3, 1)
    assert end_of_data(table("HARVEST", HARVEST)) == END_OF_DATA


@pytest.mark.parametrize("rows", [[], [{"BIRTH_DATE_MGMT": "01"}]], ids=["no row", "no date"])
def test_end_of_data_is_refused_without_refresh_date(rows):
    with pytest.raises(InputError, match="HARVEST"):
        end_of_data(table("HARVEST", *rows))


@pytest.mark.parametrize("method", ["02", "03", "NI", None])
def test_untrue_birth_dates_stop_the_run_unless_allowed_by_name(method):
    harvest = table("HARVEST", HARVEST | {"BIRTH_DATE_MGMT": method})
    name = method or "none"
    with pytest.raises(InputError, match=f"NEST_PCORNET_BIRTH_DATES={name}"):
        refuse_shifted_births(harvest)
    with pytest.raises(InputError):
        refuse_shifted_births(harvest, ("04",))
    assert refuse_shifted_births(harvest, (name,)) == [name]
    assert refuse_shifted_births(table("HARVEST", HARVEST)) == []

"""The synthetic CDM is valid, as large as that of the paper, reproducible, and has faults and risks at their rates."""

import hashlib
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from pipelines.sources.pcornet.tables import KEYS, TABLES
from pipelines.synthetic.pcornet.__main__ import main
from pipelines.synthetic.pcornet.children import END_OF_DATA
from pipelines.synthetic.pcornet.rates import RATES
from pipelines.synthetic.pcornet.write import CHILDREN_PER_BLOCK, write_pcornet

CHILDREN = 3_000
REAL = "year(DX_DATE) BETWEEN 1990 AND 2026"


@pytest.fixture(scope="module")
def cdm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cdm")
    write_pcornet(folder, children=CHILDREN, seed=7)
    return folder


def rows(cdm: Path, query: str) -> pl.DataFrame:
    """Run a query in which tables are referred to by name."""
    with duckdb.connect() as db:
        for path in cdm.glob("*.parquet"):
            db.execute(f"CREATE VIEW {path.stem.upper()} AS SELECT * FROM read_parquet('{path}')")
        return pl.DataFrame(pl.from_arrow(db.sql(query).to_arrow_table()))


def share(cdm: Path, condition: str, table: str, row_filter: str = "true") -> float:
    result = rows(cdm, f"SELECT avg(({condition})::INT) AS share FROM {table} WHERE {row_filter}")
    return float(result["share"][0])


def test_tables_have_the_read_columns_in_their_types_and_unread_columns(cdm: Path):
    for name, schema in TABLES.items():
        file_schema = pq.read_schema(cdm / f"{name.lower()}.parquet")
        assert {field.name: field.type for field in file_schema if field.name in schema.names} == {
            field.name: field.type for field in schema
        }
        assert set(file_schema.names) - set(schema.names)


def test_keys_are_unique_over_blocks(tmp_path: Path):
    write_pcornet(tmp_path, children=CHILDREN_PER_BLOCK + 300, seed=1)
    for name, key in KEYS.items():
        keys = pl.read_parquet(tmp_path / f"{name.lower()}.parquet", columns=[key])[key]
        assert keys.is_unique().all(), name


def test_synthetic_cdm_matches_the_size_of_the_paper(cdm: Path):
    def count(table: str) -> int:
        return rows(cdm, f"SELECT count(*) AS n FROM {table}")["n"][0]

    vitals = "count(HT) + count(WT) + count(SYSTOLIC) + count(DIASTOLIC) + count(ORIGINAL_BMI)"
    tables = ("PROCEDURES", "LAB_RESULT_CM", "MED_ADMIN", "PRESCRIBING", "IMMUNIZATION", "DIAGNOSIS")
    events = sum(map(count, tables)) + rows(cdm, f"SELECT {vitals} AS n FROM VITAL")["n"][0]
    assert count("ENCOUNTER") / CHILDREN == pytest.approx(14.7, rel=0.07)
    assert events / count("ENCOUNTER") == pytest.approx(9.8, rel=0.06)
    years = rows(cdm, "SELECT min(year(BIRTH_DATE)) AS a, max(year(BIRTH_DATE)) AS b FROM DEMOGRAPHIC")
    assert years.row(0) == (1999, 2024)


def test_birth_days_17_to_24_are_a_good_quarter(cdm: Path):
    assert share(cdm, "day(BIRTH_DATE) BETWEEN 17 AND 24", "DEMOGRAPHIC") == pytest.approx(0.263, abs=0.03)


SHARES = {
    "encounterid_null": ("ENCOUNTERID IS NULL", "PROCEDURES", "true"),
    "encounterid_unknown": ("ENCOUNTERID LIKE 'X%'", "PROCEDURES", "true"),
    "encounterid_of_another": (
        "EXISTS (SELECT 1 FROM ENCOUNTER e WHERE e.ENCOUNTERID = v.ENCOUNTERID AND e.PATID <> v.PATID)",
        "VITAL v",
        "true",
    ),
    "date_1900": ("MEASURE_DATE = DATE '1900-01-01'", "VITAL", "true"),
    "date_1753": ("MEASURE_DATE = DATE '1753-01-01'", "VITAL", "true"),
    "date_9999": ("MEASURE_DATE = DATE '9999-12-31'", "VITAL", "true"),
    "date_before_birth": (
        "MEASURE_DATE < BIRTH_DATE AND year(MEASURE_DATE) > 1900",
        "(SELECT * FROM VITAL JOIN DEMOGRAPHIC USING (PATID))",
        "true",
    ),
    "date_after_end": (
        f"MEASURE_DATE > DATE '{END_OF_DATA}' AND year(MEASURE_DATE) < 9999",
        "VITAL",
        "true",
    ),
    "date_long_after_death": (
        "MEASURE_DATE > DEATH_DATE + 30 AND year(MEASURE_DATE) < 9999",
        "(SELECT * FROM VITAL JOIN DEATH USING (PATID))",
        "true",
    ),
    "code_malformed": ("DX LIKE '%?%'", "DIAGNOSIS", "true"),
    "code_lower": ("DX <> upper(DX)", "DIAGNOSIS", "true"),
    "code_blanks": ("DX <> trim(DX)", "DIAGNOSIS", "true"),
    "code_dotless": ("DX NOT LIKE '%.%'", "DIAGNOSIS", "length(trim(DX)) > 3"),
    "icd10_as_09": ("trim(DX_TYPE) = '09'", "DIAGNOSIS", "upper(trim(DX)) SIMILAR TO '[A-DF-UW-Z].*'"),
    "cpt_modifier": ("PX LIKE '%-25'", "PROCEDURES", "trim(PX_TYPE) = 'CH'"),
    "unit_other": ("RESULT_UNIT = 'g/L'", "LAB_RESULT_CM", "LAB_LOINC = '718-7'"),
    "unit_unknown": ("RESULT_UNIT = 'NI'", "LAB_RESULT_CM", "RESULT_NUM IS NOT NULL"),
    "time_24": ("MEASURE_TIME = '24:00'", "VITAL", "true"),
    "time_bad": ("MEASURE_TIME IN ('25:61', '9.5', 'NI', '1260')", "VITAL", "true"),
    "time_null": ("MEASURE_TIME IS NULL", "VITAL", "true"),
    "discharge_before_admit": ("DISCHARGE_DATE < ADMIT_DATE", "ENCOUNTER", "DISCHARGE_DATE IS NOT NULL"),
    "stay_open": ("DISCHARGE_DATE IS NULL", "ENCOUNTER", "trim(ENC_TYPE) IN ('IP', 'EI', 'OS')"),
    "stay_twice": ("ENCOUNTERID LIKE 'D%'", "ENCOUNTER", "trim(ENC_TYPE) IN ('IP', 'EI', 'OS')"),
    "padded": ("ENC_TYPE LIKE '% '", "ENCOUNTER", "true"),
    "empty_text": ("RXNORM_CUI = ''", "PRESCRIBING", "true"),
    "no_information": ("RXNORM_CUI IN ('NI', 'UN', 'OT')", "PRESCRIBING", "true"),
    "vaccine_not_given": ("VX_STATUS <> 'CP'", "IMMUNIZATION", "true"),
}


@pytest.mark.parametrize("trap", SHARES)
def test_data_fault_occurs_at_the_stated_rate(cdm: Path, trap: str):
    condition, table, row_filter = SHARES[trap]
    count = rows(cdm, f"SELECT count(*) AS n FROM {table} WHERE {row_filter}")["n"][0]
    expected = RATES[trap]
    # five standard errors, and the effect of other faults
    slack = 5 * np.sqrt(expected / count) + 0.07 * expected
    assert 0 < share(cdm, condition, table, row_filter) == pytest.approx(expected, abs=slack)


def test_copies_of_a_diagnosis_differ_only_in_id_and_origin(cdm: Path):
    columns = "PATID, ENCOUNTERID, DX, DX_TYPE, DX_SOURCE, PDX, DX_POA, DX_DATE, ADMIT_DATE"
    copies = rows(
        cdm,
        f"SELECT count(*) AS n FROM DIAGNOSIS GROUP BY {columns} "
        "HAVING count(*) = 3 AND list_contains(list(DX_ORIGIN), 'BI') AND list_contains(list(DX_ORIGIN), 'CL')",
    )
    originals = rows(cdm, "SELECT count(*) AS n FROM DIAGNOSIS")["n"][0] / (1 + 2 * RATES["copied"])
    assert copies.height / originals == pytest.approx(RATES["copied"], rel=0.15)
    assert set(SHARES) | {"copied"} == set(RATES)


def test_otitis_recurs_more_often_with_recorded_risk_factors(cdm: Path):
    episodes = rows(
        cdm,
        "SELECT PATID, count(DISTINCT DX_DATE) >= 3 AS recurs, "
        "max(exists(SELECT 1 FROM DIAGNOSIS s WHERE s.PATID = d.PATID AND s.DX IN ('Z77.22', 'E869.4'))) AS smoke "
        "FROM DIAGNOSIS d WHERE DX LIKE 'H66%' OR DX LIKE '382%' GROUP BY PATID",
    )
    by_smoke = dict(episodes.group_by("smoke").agg(pl.col("recurs").mean()).iter_rows())
    assert by_smoke[True] > 1.3 * by_smoke[False] > 0


def test_autism_follows_a_delay_recorded_before_18_months(cdm: Path):
    children = rows(
        cdm,
        "SELECT PATID, bool_or(DX LIKE 'F84.0%' OR DX LIKE '299.0%') AS asd, "
        "bool_or(DX LIKE 'R62.50' OR DX LIKE '783.40') AS delay FROM DIAGNOSIS GROUP BY PATID",
    )
    by_delay = dict(children.group_by("delay").agg(pl.col("asd").mean()).iter_rows())
    assert by_delay[True] > 5 * by_delay[False] > 0


def test_planted_probabilities_match_the_rates_of_the_paper(cdm: Path):
    truth = rows(
        cdm, "SELECT outcome, avg(probability) AS mean, stddev(probability) AS sd FROM PLANTED GROUP BY 1"
    )
    mean = dict(truth.select("outcome", "mean").iter_rows())
    assert mean["recurrent_aom"] == pytest.approx(0.22, abs=0.06)
    assert mean["asd"] == pytest.approx(0.0205, abs=0.01)
    assert 0.15 < mean["return_30d"] < 0.4
    assert (truth["sd"] > 0.03).all()


def test_planted_parts_add_up_to_the_log_odds(cdm: Path):
    truth = rows(
        cdm,
        "SELECT outcome, main, history, ln(probability / (1 - probability)) AS log_odds, "
        "exists(SELECT 1 FROM DIAGNOSIS s WHERE s.PATID = p.PATID AND s.DX IN ('Z77.22', 'E869.4')) AS smoke "
        "FROM PLANTED p WHERE probability > 0",
    )
    rest = truth.with_columns(rest=pl.col("log_odds") - pl.col("main") - pl.col("history").fill_null(0))
    intercepts = rest.group_by("outcome").agg(low=pl.col("rest").min(), high=pl.col("rest").max())
    for outcome, low, high in intercepts.iter_rows():
        assert low == pytest.approx(high, abs=1e-9), outcome
    has_history = dict(truth.group_by("outcome").agg(pl.col("history").is_not_null().all()).iter_rows())
    assert has_history == {"recurrent_aom": True, "return_30d": True, "asd": False}
    aom = truth.filter(pl.col("outcome") == "recurrent_aom")
    assert set(aom["history"].round(2)) == {0.0, 0.55, 1.1, 1.65, 2.2, 2.75}
    stays = truth.filter(pl.col("outcome") == "return_30d")
    assert set(stays["history"].round(2)) == {0.0, 0.9, 1.8}
    assert set(stays["main"].round(2)) == {0.0, 0.8, 1.5, 2.3}
    by_smoke = dict(aom.group_by("smoke").agg(pl.col("main").mean()).iter_rows())
    assert by_smoke[True] - by_smoke[False] > 0.9, "smoke adds 1.4, where its code is not lost"


def test_returns_come_as_often_as_planted_and_none_is_drawn_after_a_return(cdm: Path):
    """A return is a stay or an emergency visit within 30 days of a stay's end; some come by chance."""
    stays = rows(
        cdm,
        "SELECT p.probability, p.main, exists(SELECT 1 FROM ENCOUNTER n WHERE n.PATID = p.PATID AND n.ENC_TYPE "
        "IN ('IP', 'EI', 'ED') AND n.ADMIT_DATE > e.DISCHARGE_DATE "
        "AND n.ADMIT_DATE <= e.DISCHARGE_DATE + INTERVAL 30 DAY) AS returns "
        "FROM PLANTED p JOIN ENCOUNTER e USING (ENCOUNTERID) WHERE p.outcome = 'return_30d' "
        "AND e.DISCHARGE_DATE IS NOT NULL",
    )
    is_possible = pl.col("probability") > 0
    possible, impossible = stays.filter(is_possible), stays.filter(~is_possible)
    assert 0.05 < impossible.height / stays.height < 0.2
    assert impossible["main"].is_null().all()
    assert impossible["returns"].mean() < 0.12
    assert possible["returns"].mean() == pytest.approx(possible["probability"].mean(), abs=0.06)


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


@pytest.mark.long
def test_equal_seeds_give_equal_bytes_for_any_number_of_workers(tmp_path: Path):
    children = CHILDREN_PER_BLOCK + 100
    write_pcornet(tmp_path / "a", children=children, seed=7)
    write_pcornet(tmp_path / "b", children=children, seed=7, workers=2)
    write_pcornet(tmp_path / "c", children=children, seed=8)
    first_run, repeat_run, other_seed = (hashes(tmp_path / name) for name in "abc")
    assert first_run == repeat_run
    assert first_run["vital.parquet"] != other_seed["vital.parquet"]


def test_single_child_is_enough_for_every_table(tmp_path: Path):
    assert main(["--children", "1", "--out", str(tmp_path / "cdm")]) == 0
    assert {path.stem for path in (tmp_path / "cdm").glob("[!.]*")} == {*map(str.lower, TABLES), "planted"}
    assert (tmp_path / "cdm").stat().st_mode & 0o077 == 0


def test_folder_that_cannot_be_created_gives_a_single_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    assert main(["--children", "5", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith("error: ")

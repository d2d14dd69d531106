"""Every fault planted in the synthetic CDM is found at the rate it was planted."""

from pathlib import Path

import duckdb
import polars as pl
import pytest

from assets.cohorts import COHORT_FOLDER
from nest_model.report.planted import LEAST_PLANTED
from pipelines.cohorts import write_labels
from pipelines.inputs.pcornet import ready_pcornet
from pipelines.sources.pcornet import steps as pcornet
from pipelines.sources.pcornet.tables import TABLES
from pipelines.synthetic.pcornet.rates import RATES
from schemas.cards import Flow
from schemas.cohort import parse_cohort
from schemas.errors import NestError
from schemas.io.outputs import MARK
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.settings import Settings

CHILDREN = 300
VALUED = ("DIAGNOSIS", "PROCEDURES", "LAB_RESULT_CM", "PRESCRIBING", "IMMUNIZATION", "MED_ADMIN")


@pytest.fixture(scope="module")
def synthetic_cdm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Layout, dict[str, Flow]]:
    """The layout of 300 synthetic children, and the flow of each source table."""
    layout, settings = (
        Layout(tmp_path_factory.mktemp("rates") / "pcornet"),
        Settings(synthetic_children=CHILDREN),
    )
    source = ready_pcornet(settings, layout)
    pcornet.inspect_raw(source, layout)
    cards = [
        pcornet.extract_subjects(source, layout, DataRules()),
        pcornet.extract_encounters(source, layout),
        pcornet.extract_events(source, layout),
    ]
    assert all(flow.reconciles for card in cards for flow in card.flows.values())
    return layout, {table: flow for card in cards for table, flow in card.flows.items()}


@pytest.fixture
def flows(synthetic_cdm: tuple[Layout, dict[str, Flow]]) -> dict[str, Flow]:
    return synthetic_cdm[1]


@pytest.mark.parametrize(
    "name",
    [
        "pcornet_autism",
        "pcornet_readmission_30d_home",
        pytest.param("pcornet_recurrent_aom", marks=pytest.mark.long),
    ],
)
def test_a_risk_was_planted_for_the_index_of_each_paediatric_cohort(
    name: str, synthetic_cdm: tuple[Layout, dict[str, Flow]]
):
    layout, _ = synthetic_cdm
    write_labels(parse_cohort(COHORT_FOLDER / f"{name}.yaml"), layout, DataRules())
    rows = pl.read_parquet(layout.labels(name))
    risks = pl.read_parquet(layout.planted).filter(cohort=name)
    of_stay = risks["encounter_id"].null_count() == 0
    assert of_stay == (name == "pcornet_readmission_30d_home")
    key = ("index_encounter", "encounter_id") if of_stay else ("subject_id", "subject_id")
    assert risks[key[1]].is_unique().all()
    assert rows.height > 10
    assert rows[key[0]].is_in(risks[key[1]].implode()).mean() >= LEAST_PLANTED


def test_input_of_synthetic_cdm_equals_database(
    synthetic_cdm: tuple[Layout, dict[str, Flow]],
):
    layout, _ = synthetic_cdm
    assert {path.name for path in layout.raw.iterdir()} == {
        *(f"{name.lower()}.parquet" for name in TABLES),
        "vocab",
        MARK,
    }
    with duckdb.connect(layout.cdm, read_only=True) as database:
        for name, schema in TABLES.items():
            rows = pl.read_parquet(layout.raw / f"{name.lower()}.parquet")
            assert rows.columns == schema.names
            assert rows.equals(database.sql(f"SELECT {', '.join(schema.names)} FROM {name}").pl())
        ((children,),) = database.sql("SELECT count(*) FROM DEMOGRAPHIC").fetchall()
    assert children == CHILDREN


def test_planted_risks_are_removed_when_own_tables_are_used(tmp_path: Path):
    layout = Layout(tmp_path / "pcornet")
    layout.root.mkdir()
    layout.planted.touch()
    with pytest.raises(NestError):
        ready_pcornet(
            Settings(pcornet_dir=tmp_path / "none", site_salt="correct horse battery staple"), layout
        )
    assert not layout.planted.exists()


def assert_rate(count: int, total: int, rate: float) -> None:
    """Assert a rate within five standard deviations: a hundred such tests fail by chance once in ten thousand runs."""
    expected = total * rate
    assert abs(count - expected) <= 5 * max(expected, 1) ** 0.5, (
        f"{count} of {total}, not about {expected:.0f}"
    )


@pytest.mark.parametrize("table", VALUED)
def test_missing_and_unknown_encounters_are_counted_at_planted_rate(flows, table):
    flow = flows[table]
    assert_rate(flow.noted["no_encounterid"], flow.source_rows, RATES["encounterid_null"])
    assert_rate(flow.noted["foreign_encounterid"], flow.source_rows, RATES["encounterid_unknown"])
    assert_rate(flow.dropped["encounter_of_another"], flow.source_rows, RATES["encounterid_of_another"])


def test_impossible_dates_are_dropped_at_planted_rate(flows):
    rows = flows["DIAGNOSIS"].source_rows + flows["PROCEDURES"].source_rows
    for reason, rate in (("before_birth", "date_before_birth"), ("after_end_of_data", "date_after_end")):
        num_dropped = sum(flows[table].dropped[reason] for table in ("DIAGNOSIS", "PROCEDURES"))
        assert_rate(num_dropped, rows, RATES[rate])


def test_copies_codes_and_modifiers_are_counted_at_planted_rate(flows):
    assert_rate(
        flows["DIAGNOSIS"].dropped["malformed_code"], flows["DIAGNOSIS"].source_rows, RATES["code_malformed"]
    )
    once = flows["DIAGNOSIS"].source_rows / (1 + 2 * RATES["copied"])
    assert flows["DIAGNOSIS"].dropped["repeated"] >= 2 * RATES["copied"] * once * 0.8
    assert_rate(
        flows["PROCEDURES"].noted["modifier_cut"], flows["PROCEDURES"].kept_rows, RATES["cpt_modifier"]
    )


def test_odd_times_are_counted_at_planted_rate(flows):
    rows = flows["PRESCRIBING"]
    for note, rate in (("time_24_00", "time_24"), ("bad_time", "time_bad"), ("no_time", "time_null")):
        assert_rate(rows.noted[note], rows.source_rows, RATES[rate])


def test_few_rows_are_lost(flows):
    for table in VALUED:
        assert flows[table].kept_rows >= 0.85 * flows[table].source_rows
        assert flows[table].dropped["unknown_patient"] == flows[table].dropped["not_in_population"] == 0


def test_icd_9_codes_are_mapped_if_they_have_a_target(flows):
    assert flows["DIAGNOSIS"].noted["not_in_gem"] <= 0.02 * flows["DIAGNOSIS"].kept_rows


def test_own_cdm_is_refused_without_salt_and_salt_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from assets.runtime.executor import run_environment

    layout = Layout(tmp_path / "pcornet")
    monkeypatch.delenv("NEST_SITE_SALT", raising=False)
    with pytest.raises(NestError, match="NEST_SITE_SALT is not"):
        ready_pcornet(Settings(pcornet_dir=tmp_path), layout)
    monkeypatch.setenv("NEST_SITE_SALT", "correct horse battery staple")
    assert "horse" not in run_environment(Settings()) + repr(Settings()) + Settings().model_dump_json()

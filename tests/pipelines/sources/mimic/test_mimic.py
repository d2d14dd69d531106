"""From raw files to shards: golden tables, agreement with naive rules, and changes without an effect."""

import gzip
import json
import random
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.sources.mimic import steps as mimic
from pipelines.sources.mimic.steps import MimicSource, find_source
from schemas.cards import StepCard
from schemas.layout import Layout
from schemas.rules import PRESETS, DataRules
from tests.support.compare import assert_agreement, run_all
from tests.support.raw_tables import make_tables, write_tables

GOLDEN = Path(__file__).parents[3] / "golden" / "mimic"
GOLDEN_RULES = DataRules(fit_on="all", min_count=1, top_labs=2)
TABLES = ("subjects", "encounters", "events", "drug_lookup", "vocab", "seqset")


def lines_of(layout: Layout) -> dict[str, list[str]]:
    """Return every output table as JSON lines."""
    lines = {}
    for table in TABLES:
        path = getattr(layout, table)
        frame = pl.read_parquet(path / "*.parquet" if path.is_dir() else path)
        lines[table] = frame.write_ndjson().splitlines()
    return lines


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The tables extracted from the golden input, as JSON lines."""
    layout = Layout(tmp_path_factory.mktemp("golden"))
    run_all(MimicSource(GOLDEN / "hosp", GOLDEN / "vocab"), layout, GOLDEN_RULES)
    return lines_of(layout)


@pytest.mark.parametrize("table", TABLES)
def test_golden_tables_come_out_of_golden_tables(golden, table):
    expected = (GOLDEN / "expected" / f"{table}.ndjson").read_text().splitlines()
    lines = golden[table]
    assert [json.loads(line) for line in lines] == [json.loads(line) for line in expected]


@pytest.mark.parametrize("folds", [False, True])
def test_golden_tables_agree_with_naive_rules(tmp_path, monkeypatch, folds):
    """The result does not depend on how often vocabulary counts are compacted."""
    if folds:
        monkeypatch.setattr("pipelines.corpus.build._ROWS_TO_COMPACT", 0)
    run_all(MimicSource(GOLDEN / "hosp", GOLDEN / "vocab"), Layout(tmp_path), GOLDEN_RULES)
    assert_agreement(Layout(tmp_path), GOLDEN / "hosp", GOLDEN / "vocab", GOLDEN_RULES)


RULES = st.builds(
    DataRules,
    fit_on=st.sampled_from(["train", "all"]),
    min_count=st.sampled_from([1, 3, 8, 40]),
    med_link=st.sampled_from(["name", "pharmacy"]),
    top_labs=st.sampled_from([2, 4, 200]),
)
# patients in all and per bucket; single-patient buckets are costly, so only with few patients
SIZES = st.sampled_from([(15, 1), (60, 7), (60, 4000)])


@pytest.mark.parametrize("tables", [3, pytest.param(20, marks=pytest.mark.long)])
def test_random_odd_tables_agree_with_naive_rules(tmp_path_factory, tables: int):
    @settings(max_examples=tables, deadline=None)
    @given(seed=st.integers(0, 10_000), rules=RULES, sizes=SIZES)
    def agree(seed, rules, sizes):
        assert_naive_rules_agree(tmp_path_factory, seed, rules, *sizes)

    agree()


def assert_naive_rules_agree(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    rules: DataRules,
    patients: int,
    subjects_per_bucket: int,
) -> None:
    folder = tmp_path_factory.mktemp("invented")
    hosp, crosswalks = write_tables(folder / "raw", make_tables(seed, patients))
    source, layout = find_source(folder / "raw", crosswalks), Layout(folder)
    run_all(source, layout, rules, subjects_per_bucket=subjects_per_bucket)
    assert_agreement(Layout(folder), hosp, crosswalks, rules)


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with raw/hosp, raw/vocab, and data as extracted under the default preset."""
    folder = tmp_path_factory.mktemp("invented")
    write_tables(folder / "raw", make_tables(1))
    run_all(
        find_source(folder / "raw", folder / "raw" / "vocab"), Layout(folder / "data"), PRESETS["default"]
    )
    return folder


def outcome(source: MimicSource, folder: Path) -> dict[str, bytes]:
    """Return the bytes of every output except the card with the hashes of the raw files."""
    run_all(source, Layout(folder), PRESETS["default"])
    return {name: data for name, data in files_of(folder).items() if name != "cards/raw.card.json"}


def as_csv(path: Path, folder: Path) -> None:
    (folder / path.name.removesuffix(".gz")).write_bytes(gzip.decompress(path.read_bytes()))


def as_parquet(path: Path, folder: Path) -> None:
    rows = pl.read_csv(
        path, infer_schema_length=None, null_values=[""], schema_overrides=TEXT_COLUMNS, try_parse_dates=True
    )
    rows.write_parquet(folder / path.name.replace(".csv.gz", ".parquet"))


TEXT_COLUMNS = dict.fromkeys(
    ("icd_code", "gsn", "atc", "icd_9", "icd_10", "value", "comments", "dod"), pl.String
)


def shuffle_rows(path: Path, folder: Path) -> None:
    rows = pl.read_csv(path, infer_schema=False).sample(fraction=1, shuffle=True, seed=3)
    columns = random.Random(3).sample(rows.columns, len(rows.columns))
    (folder / path.name).write_bytes(gzip.compress(rows.select(columns).write_csv().encode()))


@pytest.mark.parametrize("rewrite", [as_csv, as_parquet, shuffle_rows])
def test_layout_and_order_of_the_files_do_not_change_a_byte(synthetic, tmp_path, rewrite):
    for name in ("hosp", "vocab"):
        (tmp_path / "raw" / name).mkdir(parents=True)
        for path in (synthetic / "raw" / name).iterdir():
            rewrite(path, tmp_path / "raw" / name)
    files = outcome(find_source(tmp_path / "raw" / "hosp", tmp_path / "raw" / "vocab"), tmp_path / "data")
    clean = files_of(synthetic / "data")
    clean.pop("cards/raw.card.json")
    assert files == clean


def test_every_flow_reconciles_from_source_rows_to_tokens(synthetic):
    layout = Layout(synthetic / "data")
    cards = [
        StepCard.read(layout.cards, step)
        for step in ("subjects", "encounters", "events", "drug_lookup", "seqset")
    ]
    assert all(flow.reconciles for card in cards for flow in card.flows.values())
    seqset = cards[-1]
    assert sum(flow.kept_rows for flow in seqset.flows.values()) == seqset.counts["tokens"]
    set_counts = {name: count for name, count in seqset.counts.items() if name.startswith("tokens_per_set[")}
    assert sum(set_counts.values()) == seqset.counts["sets"]


def test_open_stays_and_foreign_rows_below_limits_are_warnings(synthetic):
    layout = Layout(synthetic / "data")
    (odd,) = StepCard.read(layout.cards, "encounters").warnings
    assert odd.startswith("admissions: column dischtime: < 11 of ")
    foreign = StepCard.read(layout.cards, "events").warnings
    tables = ("diagnoses_icd", "procedures_icd", "emar", "labevents")
    assert len(foreign) == len(tables)
    for table, sentence in zip(tables, foreign, strict=True):
        assert sentence.startswith(f"{table}: column hadm_id: < 11 of ")


def test_subject_is_in_one_split_and_pretraining_split_follows_rules(synthetic, tmp_path):
    source = find_source(synthetic / "raw", synthetic / "raw" / "vocab")
    mimic.extract_subjects(source, Layout(tmp_path), PRESETS["paper"])
    default = pl.read_parquet(Layout(synthetic / "data").subjects)
    paper = pl.read_parquet(Layout(tmp_path).subjects)
    assert default["subject_id"].is_unique().all()
    assert default["split"].equals(default["pretrain_split"])
    assert paper["split"].equals(default["split"])
    assert not paper["pretrain_split"].equals(paper["split"])


def test_rows_without_a_time_a_stay_or_a_known_subject_are_dropped_by_name(tmp_path):
    tables = make_tables(1)

    def first(table: str, **values: object) -> list:
        header, rows = tables[table]
        return next(
            row for row in rows if all(row[header.index(name)] == value for name, value in values.items())
        )

    def change(table: str, row: list, **values: object) -> None:
        for name, value in values.items():
            row[tables[table][0].index(name)] = value

    change("diagnoses_icd", first("diagnoses_icd"), hadm_id="")
    change("procedures_icd", first("procedures_icd"), chartdate="")
    change("labevents", first("labevents", valuenum="2"), charttime="")
    change("labevents", first("labevents", valuenum="3", hadm_id=""), subject_id=10**9)
    change("emar", first("emar", event_txt="Administered", medication="Heparin"), charttime="")
    write_tables(tmp_path / "raw", tables)
    run_all(find_source(tmp_path / "raw", tmp_path / "raw" / "vocab"), Layout(tmp_path), PRESETS["default"])
    flows = StepCard.read(Layout(tmp_path).cards, "events").flows
    assert flows["diagnoses_icd"].dropped["no_hadm_id"] == 1
    assert flows["procedures_icd"].dropped["no_time"] == 1
    assert flows["emar"].dropped["no_time"] == 1
    assert flows["labevents"].dropped["no_time"] == flows["labevents"].dropped["unknown_subject"] == 1


def test_subject_years_are_the_anchor_year_groups(tmp_path):
    layout = Layout(tmp_path)
    mimic.extract_subject_years(MimicSource(GOLDEN / "hosp", GOLDEN / "vocab"), layout)
    patients = pl.read_csv(GOLDEN / "hosp" / "patients.csv")
    expected = dict(patients.select("subject_id", "anchor_year_group").iter_rows())
    assert dict(pl.read_parquet(layout.subject_years).iter_rows()) == expected


def test_subject_years_are_empty_without_their_column(tmp_path):
    patients = pl.read_csv(GOLDEN / "hosp" / "patients.csv", infer_schema=False).drop("anchor_year_group")
    patients.write_csv(tmp_path / "patients.csv")
    card = mimic.extract_subject_years(MimicSource(tmp_path, GOLDEN / "vocab"), Layout(tmp_path / "mimic"))
    assert card.counts == {"subjects": patients.height, "without_years": patients.height}

import itertools
from pathlib import Path

import pytest

from pipelines.__main__ import format_counts, main
from pipelines.sources.mimic.steps import find_source
from pipelines.sources.mimic.tables import TABLES
from schemas.cards import Flow, StepCard
from schemas.contract import read_table
from schemas.errors import ContractError
from schemas.io.lock import sole_writer
from schemas.layout import Layout
from schemas.rules import PRESETS
from schemas.tables.events import ENCOUNTERS
from schemas.tables.seqset import SEQSET
from tests.support.bit_damage import flip_bit
from tests.support.compare import run_all
from tests.support.raw_tables import make_tables, write_tables


@pytest.fixture(scope="module")
def fitted_run(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("fitted")
    write_tables(folder / "raw", make_tables(1))
    run_all(
        find_source(folder / "raw", folder / "raw" / "vocab"), Layout(folder / "mimic"), PRESETS["default"]
    )
    return folder


def tokenize(raw, frozen, out) -> int:
    flags = {"--hosp": raw, "--crosswalks": raw / "vocab", "--frozen": frozen, "--out": out}
    return main(["tokenize", *(str(part) for pair in flags.items() for part in pair)])


def test_tokenize_reproduces_the_shards_of_the_fitted_patients(fitted_run, tmp_path, capsys):
    assert tokenize(fitted_run / "raw", fitted_run / "mimic", tmp_path / "new") == 0
    output = capsys.readouterr().out
    assert "LAB" in output
    assert "[UNK]" in output
    shards = [
        folder / "seqset" / "shard-00000.parquet" for folder in (fitted_run / "mimic", tmp_path / "new")
    ]
    assert shards[0].read_bytes() == shards[1].read_bytes()
    new_layout = Layout(tmp_path / "new")
    flip_bit(new_layout.encounters, 0.5)
    with pytest.raises(ContractError, match="changed after new_encounters wrote it"):
        read_table(new_layout.encounters, ENCOUNTERS)


def test_tokenize_prints_no_counts_that_disclose_small_counts():
    flow = Flow(source_rows=400, kept_rows=393, dropped={"no_time": 4, "no_hadm_id": 3})
    counts = {"subjects": 9, "sets": 60, "tokens": 393}
    shares = {"unk": 0.0, "backed_off": 0.0}
    text = format_counts(
        StepCard(step="seqset", contract="seqset/2", flows={"DX": flow}, counts=counts, shares=shares)
    )
    assert "DX               400    withheld    withheld" in text
    assert "< 11 subjects, 60 sets" in text


def test_tokenize_does_not_change_the_fitted_run(fitted_run, tmp_path):
    bytes_before = {path: path.read_bytes() for path in (fitted_run / "mimic").rglob("*") if path.is_file()}
    write_tables(tmp_path / "raw", make_tables(2))
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", tmp_path / "new") == 0
    assert not (tmp_path / "new" / "vocab.parquet").exists()
    assert {
        path: path.read_bytes() for path in (fitted_run / "mimic").rglob("*") if path.is_file()
    } == bytes_before


def test_tokenize_of_patients_without_tokens_fails_without_shards(fitted_run, tmp_path, capsys):
    tables = make_tables(2)
    unknown = {
        "diagnoses_icd": {"icd_code": "99999", "icd_version": 9},
        "procedures_icd": {"icd_code": "9999", "icd_version": 9},
        "emar": {"medication": "Nothing known"},
        "labevents": {"itemid": 99},
    }
    for name, values in unknown.items():
        header, rows = tables[name]
        for row, (column, value) in itertools.product(rows, values.items()):
            row[header.index(column)] = value
    write_tables(tmp_path / "raw", tables)
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", tmp_path / "new") == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "error: diagnoses_icd: " in output.err
    assert "rows are lost (more than half)" in output.err
    assert not (tmp_path / "new" / "seqset").exists()


def test_tokenize_accepts_patients_without_a_procedure(fitted_run, tmp_path):
    header, _ = (tables := make_tables(2))["procedures_icd"]
    write_tables(tmp_path / "raw", {**tables, "procedures_icd": (header, [])})
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", tmp_path / "new") == 0
    counts = StepCard.read(Layout(tmp_path / "new").cards, "seqset").counts
    assert counts["sets"] > 0
    assert "tokens_PR" not in counts


def test_tokenize_of_a_night_without_admissions_replaces_the_shards_of_the_last(fitted_run, tmp_path, capsys):
    out = Layout(tmp_path / "new")
    assert tokenize(fitted_run / "raw", fitted_run / "mimic", out.root) == 0
    write_tables(tmp_path / "raw", {**(tables := make_tables(2)), **without_rows(tables)})
    capsys.readouterr()
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", out.root) == 0
    assert "0 subjects, 0 sets, 0 tokens" in capsys.readouterr().out
    assert read_table(out.seqset / "shard-00000.parquet", SEQSET).num_rows == 0


@pytest.mark.parametrize(("rows", "warns"), [pytest.param(7, False, marks=pytest.mark.long), (120, True)])
def test_tokenize_of_a_night_when_no_drug_was_given_has_no_medication(
    fitted_run, tmp_path, capsys, rows, warns
):
    header, emar = (tables := make_tables(2))["emar"]
    rows_not_given = [list(emar[k % len(emar)]) for k in range(rows)]
    for number, row in enumerate(rows_not_given):
        row[header.index("event_txt")] = "Not Given"
        row[header.index("emar_seq")] = number
    write_tables(tmp_path / "raw", {**tables, "emar": (header, rows_not_given)})
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", tmp_path / "new") == 0
    assert "tokens_MED" not in StepCard.read(Layout(tmp_path / "new").cards, "seqset").counts
    warning = "WARN emar: column event_txt: 120 of 120 rows are not Administered (usual: at most 60%)"
    assert (warning in capsys.readouterr().out) == warns


def test_tokenize_refuses_a_night_whose_drugs_were_given_and_have_no_name(fitted_run, tmp_path, capsys):
    header, emar = (tables := make_tables(2))["emar"]
    for row in emar:
        row[header.index("medication")] = ""
    write_tables(tmp_path / "raw", {**tables, "emar": (header, emar)})
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", tmp_path / "new") == 2
    assert "emar: none of " in capsys.readouterr().err


def test_tokenize_refuses_events_of_admissions_that_the_empty_table_lacks(fitted_run, tmp_path, capsys):
    tables = make_tables(2)
    write_tables(tmp_path / "raw", {**tables, "admissions": (tables["admissions"][0], [])})
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", tmp_path / "new") == 2
    assert "name another patient's admission or none" in capsys.readouterr().err


def without_rows(tables):
    """Return the tables of patients and of what happened to them, with their headers alone."""
    return {name: (tables[name][0], []) for name in TABLES}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_tokenize_replaces_a_folder_completely_or_not_at_all(fitted_run, tmp_path, capsys):
    out = tmp_path / "new"
    assert tokenize(fitted_run / "raw", fitted_run / "mimic", out) == 0
    (out / "notes.txt").write_text("of the user")
    earlier = contents(out)
    write_tables(tmp_path / "raw", make_tables(2))
    labs = tmp_path / "raw" / "hosp" / "labevents.csv.gz"
    whole = labs.read_bytes()
    labs.write_bytes(whole[: len(whole) // 2])
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", out) == 2
    assert "labevents.csv.gz" in capsys.readouterr().err
    assert contents(out) == earlier
    labs.write_bytes(whole)
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", out) == 0
    assert tokenize(tmp_path / "raw", fitted_run / "mimic", tmp_path / "fresh") == 0
    assert contents(out) == {"notes.txt": b"of the user", **contents(tmp_path / "fresh")}
    assert earlier.items() - contents(out).items()


@pytest.mark.parametrize(
    ("frozen", "out", "message"),
    [("nothing", "new", "Give --frozen"), ("mimic", "mimic", "--out is the fitted run itself")],
)
def test_tokenize_with_a_wrong_folder_exits_with_2(fitted_run, capsys, frozen, out, message):
    assert tokenize(fitted_run / "raw", fitted_run / frozen, fitted_run / out) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1


def test_tokenize_refuses_a_vocabulary_that_is_being_written(fitted_run, tmp_path, capsys):
    with sole_writer(fitted_run):  # like a run that locks the data folder
        assert tokenize(fitted_run / "raw", fitted_run / "mimic", tmp_path / "new") == 2
    assert "another run is writing there" in capsys.readouterr().err
    with sole_writer(tmp_path):
        assert tokenize(fitted_run / "raw", fitted_run / "mimic", tmp_path) == 2
    assert "another run is writing there" in capsys.readouterr().err

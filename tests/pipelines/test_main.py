import itertools
from pathlib import Path

import pytest

from pipelines.__main__ import format_counts, main
from pipelines.sources.mimic.steps import find_source
from schemas.cards import Flow, StepCard
from schemas.contract import read_table
from schemas.errors import ContractError
from schemas.io.lock import sole_writer
from schemas.layout import Layout
from schemas.rules import PRESETS
from schemas.tables.events import ENCOUNTERS
from tests.support.bit_damage import flip_bit
from tests.support.compare import run_all
from tests.support.raw_tables import make_tables, write_tables


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("fitted")
    write_tables(folder / "raw", make_tables(1))
    run_all(
        find_source(folder / "raw", folder / "raw" / "vocab"), Layout(folder / "mimic"), PRESETS["default"]
    )
    return folder


def tokenize(raw, frozen, out) -> int:
    flags = {"--hosp": raw, "--crosswalks": raw / "vocab", "--frozen": frozen, "--out": out}
    return main(["tokenize", *(str(part) for pair in flags.items() for part in pair)])


def test_the_same_patients_give_the_same_shards_by_the_frozen_vocabulary(fitted, tmp_path, capsys):
    assert tokenize(fitted / "raw", fitted / "mimic", tmp_path / "new") == 0
    printed = capsys.readouterr().out
    assert "LAB" in printed
    assert "[UNK]" in printed
    shards = [folder / "seqset" / "shard-00000.parquet" for folder in (fitted / "mimic", tmp_path / "new")]
    assert shards[0].read_bytes() == shards[1].read_bytes()
    made = Layout(tmp_path / "new")
    flip_bit(made.encounters, 0.5)
    with pytest.raises(ContractError, match="changed after new_encounters wrote it"):
        read_table(made.encounters, ENCOUNTERS)


def test_no_small_count_is_printed_nor_follows_from_the_others():
    flow = Flow(source_rows=400, kept_rows=393, dropped={"no_time": 4, "no_hadm_id": 3})
    counts = {"subjects": 9, "sets": 60, "tokens": 393}
    shares = {"unk": 0.0, "backed_off": 0.0}
    printed = format_counts(
        StepCard(step="seqset", contract="seqset/1", flows={"DX": flow}, counts=counts, shares=shares)
    )
    assert "DX               400    withheld    withheld" in printed
    assert "< 11 subjects, 60 sets" in printed


def test_new_patients_never_change_what_was_fitted(fitted, tmp_path):
    before = {path: path.read_bytes() for path in (fitted / "mimic").rglob("*") if path.is_file()}
    write_tables(tmp_path / "raw", make_tables(2))
    assert tokenize(tmp_path / "raw", fitted / "mimic", tmp_path / "new") == 0
    assert not (tmp_path / "new" / "vocab.parquet").exists()
    assert {path: path.read_bytes() for path in (fitted / "mimic").rglob("*") if path.is_file()} == before


def test_new_patients_of_whom_nothing_is_known_are_one_message_and_no_shard(fitted, tmp_path, capsys):
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
    assert tokenize(tmp_path / "raw", fitted / "mimic", tmp_path / "new") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "error: diagnoses_icd: " in printed.err
    assert "rows are lost (more than half)" in printed.err
    assert not (tmp_path / "new" / "seqset").exists()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_used_folder_holds_the_new_patients_alone_or_if_they_cannot_be_read_the_earlier_alone(
    fitted, tmp_path, capsys
):
    out = tmp_path / "new"
    assert tokenize(fitted / "raw", fitted / "mimic", out) == 0
    (out / "notes.txt").write_text("of the user")
    earlier = contents(out)
    write_tables(tmp_path / "raw", make_tables(2))
    labs = tmp_path / "raw" / "hosp" / "labevents.csv.gz"
    whole = labs.read_bytes()
    labs.write_bytes(whole[: len(whole) // 2])
    assert tokenize(tmp_path / "raw", fitted / "mimic", out) == 2
    assert "labevents.csv.gz" in capsys.readouterr().err
    assert contents(out) == earlier
    labs.write_bytes(whole)
    assert tokenize(tmp_path / "raw", fitted / "mimic", out) == 0
    assert tokenize(tmp_path / "raw", fitted / "mimic", tmp_path / "fresh") == 0
    assert contents(out) == {"notes.txt": b"of the user", **contents(tmp_path / "fresh")}
    assert earlier.items() - contents(out).items()


@pytest.mark.parametrize(
    ("frozen", "out", "said"),
    [("nothing", "new", "Give --frozen"), ("mimic", "mimic", "--out is the fitted run itself")],
)
def test_a_wrong_folder_is_one_line_and_exit_code_two(fitted, capsys, frozen, out, said):
    assert tokenize(fitted / "raw", fitted / frozen, fitted / out) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_nobody_tokenizes_by_a_vocabulary_that_a_run_is_writing(fitted, tmp_path, capsys):
    with sole_writer(fitted):  # as a run holds the data folder
        assert tokenize(fitted / "raw", fitted / "mimic", tmp_path / "new") == 2
    assert "another run is writing there" in capsys.readouterr().err
    with sole_writer(tmp_path):
        assert tokenize(fitted / "raw", fitted / "mimic", tmp_path) == 2
    assert "another run is writing there" in capsys.readouterr().err

"""Tests that a full disk or an unwritable folder raises one message and leaves earlier outputs unchanged."""

import shutil
from pathlib import Path

import pytest

from pipelines.corpus import build as corpus
from pipelines.sources.mimic import steps as mimic
from pipelines.sources.mimic.tables import TABLE_OF_KIND
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.bad_inputs.clean import write_clean
from tests.support.compare import run_all
from tests.support.full_disk import no_room
from tests.support.raw_tables import make_tables, write_tables

RULES = PRESETS["default"]
STEPS = {
    "extract_subjects": lambda source, layout: mimic.extract_subjects(source, layout, RULES),
    "extract_encounters": mimic.extract_encounters,
    "extract_events": lambda source, layout: mimic.extract_events(source, layout, RULES),
    "fit_drug_lookup": lambda source, layout: mimic.fit_drug_lookup(source, layout, RULES),
    "fit_vocab": lambda _, layout: corpus.fit_vocab(layout, RULES),
    "write_seqset": lambda _, layout: corpus.write_seqset(layout, RULES, tables=TABLE_OF_KIND),
}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean")
    write_clean(folder / "raw")
    run_all(mimic.find_source(folder / "raw", folder / "raw" / "vocab"), Layout(folder / "data"), RULES)
    return folder


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("step", STEPS)
def test_full_disk_raises_one_message_and_leaves_outputs_unchanged(clean: Path, tmp_path: Path, step: str):
    shutil.copytree(clean / "data", tmp_path / "data")
    files = everything(tmp_path / "data")
    source = mimic.find_source(clean / "raw", clean / "raw" / "vocab")
    with pytest.raises(NestError, match=r"cannot (be )?writ.*Free space") as error, no_room():
        STEPS[step](source, Layout(tmp_path / "data"))
    assert "\n" not in str(error.value)
    assert everything(tmp_path / "data") == files


def test_unwritable_card_raises_one_message(clean: Path, tmp_path: Path):
    layout = Layout(tmp_path)
    layout.cards.write_text("a file where a folder should be")
    with pytest.raises(NestError, match=r"subjects\.card\.json: cannot be written .*Free space"):
        mimic.extract_subjects(mimic.find_source(clean / "raw", clean / "raw" / "vocab"), layout, RULES)


def test_odd_share_causes_a_warning_with_the_share(tmp_path: Path):
    tables = make_tables(1)
    for row in tables["prescriptions"][1]:
        row[-1] = "" if row[-2] in ("Heparin", "Saline") else row[-1]
    write_tables(tmp_path / "raw", tables)
    run_all(mimic.find_source(tmp_path / "raw", tmp_path / "raw" / "vocab"), Layout(tmp_path), RULES)
    (warning,) = [
        sentence
        for sentence in corpus.write_seqset(Layout(tmp_path), RULES, tables=TABLE_OF_KIND).warnings
        if sentence.startswith("MED")
    ]
    assert "% of" in warning
    assert "no_atc" in warning

"""Dictionaries of codes as hospitals have them: real ones, dirty ones, and none."""

import gzip
from pathlib import Path

import polars as pl
import pytest

from pipelines.reading.code_names import find_dictionaries, write_code_names
from schemas.cards import StepCard
from schemas.contract import read_table
from schemas.layout import Layout
from schemas.tables.code_names import CODE_NAMES

ITEMS = 'itemid,label,fluid,category\n50912,Creatinine,Blood,Chemistry\n51082,"Creatinine, Urine",Urine,Chemistry\n'
DIAGNOSES = (
    "icd_code,icd_version,long_title\n"
    '0090,9,"Infectious colitis, enteritis, and gastroenteritis"\n'
    "E119 ,10,Type 2 diabetes mellitus without complications\n"
)
ATC = "atc_code,atc_name\nA10BA02,metformin\n"


@pytest.fixture
def names_of(tmp_path: Path):
    """Return a function that writes dictionaries, reads them, and returns the names and the card."""
    number = iter(range(100))

    def names(**texts: str | bytes | pl.DataFrame) -> tuple[dict[tuple[str, str], str], StepCard]:
        folder = tmp_path / str(next(number))
        folder.mkdir()
        for name, content in texts.items():
            if isinstance(content, pl.DataFrame):
                content.write_parquet(folder / f"{name}.parquet")
            else:
                data = content if isinstance(content, bytes) else content.encode()
                (folder / f"{name}.csv.gz").write_bytes(gzip.compress(data))
        layout = Layout(folder / "mimic")
        card = write_code_names(layout, find_dictionaries([tmp_path / "no such folder", folder]))
        rows = read_table(layout.code_names, CODE_NAMES).to_pylist()
        return {(row["vocab"], row["code"]): row["name"] for row in rows}, card

    return names


def test_names_come_from_every_dictionary_at_hand(names_of):
    names, card = names_of(d_labitems=ITEMS, d_icd_diagnoses=DIAGNOSES, atc_coding=ATC)
    assert names == {
        ("itemid", "50912"): "Creatinine (Blood)",
        ("itemid", "51082"): "Creatinine, Urine",
        ("icd9cm", "0090"): "Infectious colitis, enteritis, and gastroenteritis",
        ("icd10cm", "E119"): "Type 2 diabetes mellitus without complications",
        ("atc", "A10BA02"): "Metformin",
    }
    assert (card.warnings, card.notes, card.counts["names"]) == ([], [], 5)


def test_no_dictionary_gives_no_names_and_no_warning(names_of):
    names, card = names_of()
    assert (names, card.warnings, card.counts) == ({}, [], {"names": 0})


def test_a_sites_own_names_come_before_the_others(names_of):
    own = "vocab,code,name\nITEMID,50912,Kreatinin\nloinc,2160-0,Kreatinin im Serum\n"
    names, _ = names_of(code_names=own, d_labitems=ITEMS)
    assert names["itemid", "50912"] == "Kreatinin"
    assert names["loinc", "2160-0"] == "Kreatinin im Serum"


@pytest.mark.parametrize(
    ("dictionary", "sentence"),
    [
        ("label,fluid\nCreatinine,Blood\n", "no column itemid"),
        (
            "itemid,label,fluid\nfifty,Creatinine,Blood\n",
            "column itemid: 1 of 1 values are not a whole number",
        ),
        (ITEMS.replace("Blood", "Bl\xe4").encode("latin-1"), "not entirely UTF-8"),
        (b"itemid;label;fluid\n50912;Creatinine;Blood\n", "separated by semicolons"),
        (pl.DataFrame({"itemid": [50912], "label": [7], "fluid": ["Blood"]}), "label is stored as Int64"),
        ("", "empty"),
    ],
)
def test_a_dictionary_that_cannot_be_read_costs_its_names_and_one_sentence(names_of, dictionary, sentence):
    names, card = names_of(d_labitems=dictionary, atc_coding=ATC)
    assert names == {("atc", "A10BA02"): "Metformin"}
    assert len(card.warnings) == 1
    assert sentence in card.warnings[0]
    assert card.warnings[0].endswith("Its codes are shown without names.")
    assert "fifty" not in card.warnings[0]


def test_a_dictionary_that_is_there_twice_is_not_read(names_of, tmp_path: Path):
    (tmp_path / "d_labitems.csv").write_text(ITEMS)
    (tmp_path / "d_labitems.csv.gz").write_bytes(gzip.compress(ITEMS.encode()))
    dictionaries = find_dictionaries([tmp_path])
    assert not dictionaries.files
    assert len(dictionaries.warnings) == 1
    assert "found 2 times" in dictionaries.warnings[0]


def test_unusable_rows_are_counted_in_one_sentence(names_of):
    rows = [
        "50912,Creatinine,Blood",
        "50912,Creatinine,Blood",
        "50912,Crea,Blood",
        "50971,,Blood",
        "50983,Sodium\ufffd,Blood",
        "50902,ChlorÃ¼re,Blood",
        "50931,Glucose,",
    ]
    names, card = names_of(d_labitems="itemid,label,fluid\n" + "\n".join(rows) + "\n")
    assert names == {("itemid", "50912"): "Creatinine (Blood)", ("itemid", "50931"): "Glucose"}
    assert card.warnings == [
        "d_labitems.csv.gz: of 7 rows 1 have no code or no name and 2 have a name that an export has garbled and 1 "
        "give another name to a code that has one; they are not used."
    ]


def test_a_few_items_without_a_label_are_no_warning(names_of):
    rows = "".join(f"{number},Item {number},Blood\n" for number in range(50000, 50400))
    _, card = names_of(d_labitems=f"itemid,label,fluid\n{rows}51771,,Blood\n")
    assert card.warnings == []
    assert card.notes == ["d_labitems.csv.gz: of 401 rows 1 have no code or no name; they are not used."]

"""`python -m pipelines.cohorts codes`: codes by name or beginning, their patients, and the lines that use them."""

import re
from pathlib import Path

import polars as pl
import pytest

from pipelines.cohorts.__main__ import main
from pipelines.cohorts.read import scan_events
from pipelines.cohorts.tables import matches
from pipelines.reading.code_names import find_dictionaries, write_code_names
from pipelines.synthetic.catalog import FOLDER as CATALOG
from schemas.cohort import parse_text
from schemas.contract import write_table
from schemas.layout import Layout
from schemas.tables.code_names import CODE_NAMES
from schemas.tables.events import DRUG_LOOKUP
from tests.support.cohort_tables import DAY, DAY_ZERO, Row, diagnosis, stay, subject, write

PAGE = (Path(__file__).parents[3] / "docs" / "cohorts.md").read_text()
NAMES = (
    ("atc", "A10B", "Blood glucose lowering drugs, excl. insulins"),
    ("atc", "A10BA02", "Metformin"),
    ("atc", "C03CA01", "Furosemide"),
    ("icd10cm", "E10", "Type 1 diabetes mellitus"),
    ("icd10cm", "E109", "Type 1 diabetes mellitus without complications"),
    ("icd10cm", "E11", "Type 2 diabetes mellitus"),
    ("icd10cm", "E1165", "Type 2 diabetes mellitus with hyperglycemia"),
    ("icd10cm", "E119", "Type 2 diabetes mellitus without complications"),
    ("icd9cm", "25000", "Diabetes mellitus without mention of complication, type II"),
    ("icd9cm", "25001", "Diabetes mellitus without mention of complication, type I"),
    ("icd9cm", "2501", "Ketoacidosis"),
    ("itemid", "50912", "Creatinine (Blood)"),
    ("itemid", "51082", "Creatinine, Urine"),
)
PATIENTS = 60
WHO_HAS = {
    ("DX", "icd10cm", "E1165"): range(1, 16),
    ("DX", "icd10cm", "E119"): range(10, 40),
    ("DX", "icd10cm", "E109"): range(1, 4),
    ("DX", "icd9cm", "25000"): range(1, 13),
    ("LAB", "itemid", "50912"): range(1, 41),
    ("LAB", "itemid", "51082"): range(1, 6),
    ("MED", "name", "glucophage"): range(1, 21),
    ("MED", "name", "metformin"): range(15, 31),
    ("MED", "name", "lasix of one family"): range(1, 3),
}
LOOKUP = {"glucophage": "A10BA02", "metformin": "A10BA02", "lasix of one family": "C03CA01"}


def event(kind: str, vocab: str, code: str, number: int) -> Row:
    return {**diagnosis(number, code, None, vocab=vocab, of=number), "kind": kind}


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Tables in six buckets, so that patients are summed over buckets; each event is there twice."""
    layout = Layout(tmp_path / "mimic")
    numbers = range(1, PATIENTS + 1)
    events = [event(*code, number) for code, those in WHO_HAS.items() for number in those]
    stays = [stay(number, DAY_ZERO, DAY_ZERO + DAY, of=number) for number in numbers]
    write(layout, [*map(subject, numbers)], stays, [*events, *events], subjects_per_bucket=10)
    lookup = pl.DataFrame({"name": list(LOOKUP), "atc": list(LOOKUP.values()), "rows": 1})
    write_table(lookup.to_arrow(), layout.drug_lookup, DRUG_LOOKUP, made_by="the test")
    write_names(layout)
    return layout


def write_names(layout: Layout) -> None:
    table = pl.DataFrame(NAMES, schema=CODE_NAMES.names, orient="row")
    write_table(table.to_arrow(), layout.code_names, CODE_NAMES, made_by="the test")


@pytest.fixture
def find(layout: Layout, capsys: pytest.CaptureFixture[str]):
    """Return a function that looks for words and returns the exit code, the rows of the table and the snippet."""

    def find(*words: str) -> tuple[int, list[list[str]], str]:
        code = main(["codes", *words, "--data", str(layout.root.parent)])
        table, _, snippet = capsys.readouterr().out.partition("\n\n")
        return code, [line.split(maxsplit=2) for line in table.splitlines()], snippet

    return find


def test_a_word_finds_codes_by_name_with_patients_and_small_counts_withheld(find):
    code, rows, snippet = find("creatinine")
    assert code == 0
    assert rows[1:] == [
        ["itemid", "50912", "40  Creatinine (Blood)"],
        ["itemid", "51082", "< 11  Creatinine, Urine"],
    ]
    assert [line.split() for line in snippet.splitlines()] == [
        ["codes:"],
        ["creatinine:"],
        ["itemid:"],
        ["-", "'50912'", "#", "Creatinine", "(Blood)"],
        ["-", "'51082'", "#", "Creatinine,", "Urine"],
    ]


def test_the_beginning_of_a_code_finds_all_that_begin_so(find):
    _, rows, snippet = find("e11")
    assert [row[:2] for row in rows[1:]] == [["icd10cm", "E119"], ["icd10cm", "E1165"]]
    assert [row[2].split()[0] for row in rows[1:]] == ["30", "15"]
    assert "- E11*        # Type 2 diabetes mellitus, 3 codes" in snippet


@pytest.mark.parametrize("has_names", [True, False])
def test_a_pattern_of_a_cohort_file_finds_what_it_means(find, layout, has_names):
    if not has_names:
        layout.code_names.unlink()
    assert find("E11*") == find("e11.*") == find("E11")


def test_several_words_must_all_be_in_the_name(find):
    _, rows, _ = find("diabetes", "type 2")
    assert {row[1] for row in rows[1:]} == {"E119", "E1165"}, "the 2 of 25000 is no word"
    _, rows, _ = find("diabetes", "complication")
    assert {row[1] for row in rows[1:]} == {"E109", "E119", "25000"}


def test_a_drug_is_found_by_its_name_and_by_the_name_on_record(find):
    patients_with_either = len({*range(1, 21), *range(15, 31)})
    assert find("metformin")[1][1:] == [["atc", "A10BA02", f"{patients_with_either}  Metformin"]]
    _, rows, snippet = find("glucophage")
    assert rows[1:] == [["atc", "A10BA02", f"{patients_with_either}  Metformin, on record as glucophage"]]
    assert "- A10BA02" in snippet


def test_a_name_on_record_of_few_patients_is_not_shown(find):
    code, rows, _ = find("lasix")
    assert code == 1
    assert "family" not in str(rows)


@pytest.mark.parametrize("words", [("creatinine",), ("E11",), ("diabetes",), ("metformin",), ("250",)])
def test_snippet_in_a_cohort_file_means_the_codes_of_the_table(find, layout, words):
    _, rows, snippet = find(*words)
    name = snippet.splitlines()[1].strip(" :")
    text = f"""
cohort: x
about: what the snippet means
source: mimic
{snippet}
index: {{encounter: {{with: {name}}}, keep: every}}
looks_ahead: index
predict_at: index.end
features: {{until: predict_at}}
outcome: {{any_encounter: {{}}, within: 30 days}}
split: {{hash: [70, 15, 15]}}
"""
    cohort = parse_text(text, file="x.yaml")
    events = pl.concat(scan_events(layout, ("DX", "LAB", "MED"), bucket) for bucket in range(6))
    meant = events.filter(matches(cohort.codes[name])).with_columns(
        code=pl.when(pl.col("kind") == "MED").then("mapped").otherwise("code")
    )
    assert set(meant.collect()["code"]) == {row[1] for row in rows[1:]}


def test_codes_that_share_a_parent_with_others_are_not_folded(find):
    _, _, snippet = find("hyperglycemia")
    assert "- E1165 " in snippet
    assert "*" not in snippet


def test_a_misspelt_word_is_answered_with_the_nearest_name(find):
    code, rows, _ = find("creatinnine")
    assert code == 1
    assert " ".join(rows[0]).endswith("Do you mean 'creatinine'?")


@pytest.mark.parametrize("words", ["creatinine glucose", "creatinnine glucose"])
def test_words_that_no_name_has_together_are_not_proposed_again(find, words):
    code, rows, _ = find(words)
    assert code == 1
    assert " ".join(rows[0]) == (
        f"No code of mimic is named '{words}' or begins with it. Names have 'creatinine', 'glucose', but none has all "
        "of these words: look for fewer of them."
    )


def test_a_name_that_no_patient_has_is_said_to_be_so(find):
    code, rows, _ = find("ketoacidosis")
    assert code == 1
    assert " ".join(rows[0]) == (
        "1 code is named 'ketoacidosis', but no patient of mimic has one: e.g. icd9cm 2501, Ketoacidosis."
    )


def test_without_names_codes_are_found_by_their_beginning(find, layout):
    layout.code_names.unlink()
    code, rows, snippet = find("E11")
    assert code == 0
    assert [row[1] for row in rows[1:]] == ["E119", "E1165"]
    assert "- E11* " in snippet
    assert "run mimic_code_names" in snippet
    assert "run mimic_code_names" in " ".join(find("creatinine")[1][0])


def test_only_as_many_rows_as_asked_for_are_shown(layout, capsys):
    main(["codes", "diabetes", "--data", str(layout.root.parent), "--most", "2"])
    table = capsys.readouterr().out.partition("\n\n")[0]
    assert table.splitlines()[3] == "… and 2 more; --most 4 shows all."


def test_no_data_yet_is_one_sentence_that_says_what_to_run(tmp_path, capsys):
    assert main(["codes", "creatinine", "--data", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "no events of mimic" in error
    assert "dagster job execute -j mimic_full" in error


def test_no_word_is_refused(tmp_path, capsys):
    assert main(["codes", " ", "--data", str(tmp_path)]) == 2
    assert "No word to look for" in capsys.readouterr().err


def test_example_of_the_page_for_clinicians_is_what_the_command_prints(tmp_path, capsys):
    command, text = re.search(r"\$ \S+ -m pipelines.cohorts (codes .*?)\n(.*?)```", PAGE, re.DOTALL).groups()
    rows = [line.split(maxsplit=2) for line in text.splitlines()[1:] if line.startswith("icd")]
    layout = Layout(tmp_path / "mimic")
    counts = [
        (vocab, code, 5 if rest.startswith("<") else int(rest.split()[0])) for vocab, code, rest in rows
    ]
    events = [event("DX", vocab, code, n) for vocab, code, count in counts for n in range(1, count + 1)]
    write(layout, [subject(n) for n in range(1, 101)], [stay(1, DAY_ZERO, DAY_ZERO + DAY)], events)
    write_code_names(layout, find_dictionaries([CATALOG]))
    assert main([*command.split(), "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == text

"""Names of codes: tokens in words, and code lists of a cohort said back."""

from pathlib import Path

import pyarrow as pa
import pytest

from schemas.code_names import NO_NAMES, CodeNames, shorten
from schemas.cohort import parse_text
from schemas.cohort.code_words import codes_in_words
from schemas.cohort.english import in_english
from schemas.cohort.model import CodeList
from schemas.contract import write_table
from schemas.tables.code_names import CODE_NAMES
from schemas.tables.leak_audit import LeakAudit, Measure, Suspect

ROWS = (
    ("itemid", "50912", "Creatinine (Blood)"),
    ("icd10cm", "E11", "Type 2 diabetes mellitus"),
    ("icd10cm", "E119", "Type 2 diabetes mellitus without complications"),
    ("icd10cm", "E1165", "Type 2 diabetes mellitus with hyperglycemia"),
    ("icd9cm", "4280", "Congestive heart failure, unspecified"),
    ("icd9cm", "42821", "Acute systolic heart failure"),
    ("icd10pcs", "5A1935Z", "Respiratory Ventilation, Less than 24 Consecutive Hours"),
    ("atc", "A10BA02", "Metformin"),
    ("atc", "A10B", "Blood glucose lowering drugs, excl. insulins"),
    ("rxnorm", "161", "Acetaminophen"),
    ("loinc", "6556-5", "Streptococcus A antigen"),
    ("meds", "HR//bpm", "Heart rate"),
)
NAMES = CodeNames({vocab: {code: name for of, code, name in ROWS if of == vocab} for vocab, _, _ in ROWS})


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("LAB:50912_Q1", "Creatinine (Blood), lowest tenth"),
        ("LAB:50912_Q2", "Creatinine (Blood), 2nd tenth"),
        ("LAB:50912_Q4", "Creatinine (Blood), 4th tenth"),
        ("LAB:50912_Q10", "Creatinine (Blood), highest tenth"),
        ("LAB:50912//mg/dL_Q3", "Creatinine (Blood), mg/dL, 3rd tenth"),
        ("LAB:6556-5_POS", "Streptococcus A antigen, positive"),
        ("DX:E1165", "Type 2 diabetes mellitus with hyperglycemia"),
        ("DX:E1188", "Type 2 diabetes mellitus (E1188)"),
        ("DX:4280", "Congestive heart failure, unspecified"),
        ("PR:5A1935Z", "Respiratory Ventilation, Less than 24 Consecutive Hours"),
        ("MED:A10BA02", "Metformin"),
        ("MED:A10BX99", "Blood glucose lowering drugs, excl. insulins (A10BX99)"),
        ("MED:RX161", "Acetaminophen"),
        ("VIT:HT_Q10", "Height, highest tenth"),
        ("ITEM:HR//bpm_Q2", "Heart rate, 2nd tenth"),
        ("DX:I10", "DX:I10"),
        ("LAB:99999_Q3", "LAB:99999_Q3"),
        ("[UNK]", "[UNK]"),
    ],
)
def test_token_has_the_name_of_its_code(token: str, words: str):
    assert NAMES.of_token(token) == words


def test_text_names_every_token_and_kind_in_it():
    assert NAMES.in_text("LAB:50912_Q10 before it") == "Creatinine (Blood), highest tenth before it"
    assert NAMES.in_text("DX of the index stay") == "Diagnoses of the index stay"
    assert NAMES.in_text("DX:I10 comes first") == "DX:I10 comes first"
    assert NAMES.in_text("Palliative care, MEDICINE") == "Palliative care, MEDICINE"


def test_names_are_read_from_the_table_and_none_without_it(tmp_path: Path):
    file = tmp_path / "code_names.parquet"
    assert CodeNames.read(file) == NO_NAMES
    columns = dict(zip(CODE_NAMES.names, map(list, zip(*ROWS, strict=True)), strict=True))
    write_table(pa.table(columns), file, CODE_NAMES, made_by="the test")
    assert CodeNames.read(file) == NAMES
    assert NAMES.codes("icd10cm", "E11") == ["E11", "E1165", "E119"]
    assert NAMES.codes("icd10cm", "F") == []


def test_long_name_is_cut_with_an_ellipsis():
    assert shorten("short", 10) == "short"
    assert shorten("Diabetes, unspecified", 11) == "Diabetes…"


COHORT = """
cohort: diabetes
about: diabetes with a creatinine
source: mimic
codes:
  diabetes: {icd10cm: [E11*], icd9cm: ['428*', '250*']}
  measured: {itemid: ['50912', '50971'], cpt: ['99213']}
index: {encounter: {with: diabetes}, keep: every}
require:
  - measured: {event: measured, before: predict_at}
looks_ahead: index
predict_at: index.end
features: {until: predict_at}
outcome: {any_encounter: {}, within: 30 days}
split: {hash: [70, 15, 15]}
"""


def test_cohort_in_english_names_its_codes():
    cohort = parse_text(COHORT, file="c.yaml")
    assert in_english(cohort, NAMES)[-2:] == [
        "Codes of diabetes: ICD-10-CM Type 2 diabetes mellitus (E11*, 3 codes); ICD-9-CM 428* (2 codes: Congestive "
        "heart failure, unspecified …), 250* (no name in the dictionary).",
        "Codes of measured: CPT 99213; MIMIC item Creatinine (Blood) (50912), 50971 (no name in the dictionary).",
    ]
    assert in_english(cohort)[-1] == "Codes of measured: CPT 99213; MIMIC item 50912, 50971."


def test_codes_without_a_category_are_called_by_their_common_words():
    names = {
        "5845": "Acute kidney failure with lesion of tubular necrosis",
        "5849": "Acute kidney failure, unspecified",
        "4280": "Congestive heart failure, unspecified",
        "4281": "Left heart failure",
        "0010": "Other and unspecified cholera",
        "0011": "Other and mixed cholera",
    }
    codes = CodeList.model_validate({"icd9cm": ["584*", "428*", "001*"]})
    assert codes_in_words(codes, CodeNames({"icd9cm": names})) == (
        "ICD-9-CM 584* (2 codes: Acute kidney failure …), 428* (2 codes: Congestive heart failure, unspecified …), "
        "001* (2 codes: Other and unspecified cholera …)"
    )


def test_leak_audit_in_words_names_its_suspects():
    nothing = Measure(value=None, low=None, high=None)
    suspect = Suspect(
        name="LAB:50912_Q10 in the index stay",
        why="found in the data",
        predictions="20",
        auroc_with=nothing,
        auroc_without=nothing,
        inflation=nothing,
        verdict="raises the AUROC",
        warns=True,
    )
    audit = LeakAudit(cohort="c", judged="", suspects=[suspect]).in_words(NAMES)
    assert audit.warnings == ["Creatinine (Blood), highest tenth in the index stay: raises the AUROC"]

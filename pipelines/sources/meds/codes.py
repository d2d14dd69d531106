"""MEDS codes to our kinds, vocabularies and codes, and back, by the prefixes that public MEDS extractions write.

A code without a known prefix stays whole, as an ITEM. Kinds decide when a code is known: whatever could have been coded
for billing counts as a diagnosis or a procedure.
"""

from collections.abc import Mapping

import polars as pl

from pipelines.events.code_limits import CODE_FAULTS
from pipelines.events.code_mapping import (
    DIAGNOSIS_CODES,
    PROCEDURE_CODES,
    clean_code,
    code_faults,
    to_plain_letters,
)

UNKNOWN = "UNK"  # stands for an unknown part of a composite code
SEPARATOR = "//"

BIRTH, DEATH = "MEDS_BIRTH", "MEDS_DEATH"
GENDER, RACE, INSURANCE = "GENDER", "RACE", "INSURANCE"
ADMISSION, DISCHARGE, STAY_DEATH = "HOSPITAL_ADMISSION", "HOSPITAL_DISCHARGE", "HOSPITAL_DEATH"
DIED, ALIVE = "DIED", "ALIVE"
# as converters from OMOP write a stay
VISIT, VISIT_END = ("VISIT", "VISIT_OCCURRENCE"), "VISIT_END"

SUBJECT_CODES = (BIRTH, DEATH, GENDER, RACE, INSURANCE, "LANGUAGE", "MARITAL_STATUS", "ETHNICITY")
ENCOUNTER_CODES = (ADMISSION, DISCHARGE, STAY_DEATH, *VISIT, VISIT_END)
"""Codes of patients and stays: attributes and times, never tokens."""
CONDITION_END = "condition_end"
"""The code of a row that says when a diagnosis ended; the diagnosis itself has its own row."""

WRITTEN_PREFIXES = {
    ("DX", "icd9cm"): "DIAGNOSIS//ICD//9//",
    ("DX", "icd10cm"): "DIAGNOSIS//ICD//10//",
    ("PR", "icd9pcs"): "PROCEDURE//ICD//9//",
    ("PR", "icd10pcs"): "PROCEDURE//ICD//10//",
    ("MED", "name"): "MEDICATION//",
    ("LAB", "itemid"): "LAB//",
}
ADMINISTERED = "//Administered"  # after a drug's name

CODE_PATTERNS = (
    (r"^DIAGNOSIS//ICD//9//([\w.\s]+)$", "DX", "icd9cm"),
    (r"^DIAGNOSIS//ICD//10//([\w.\s]+)$", "DX", "icd10cm"),
    (r"(?i)^ICD9CM//?([\w.\s]+)$", "DX", "icd9cm"),
    (r"(?i)^ICD10(?:CM)?//?([\w.\s]+)$", "DX", "icd10cm"),
    (r"(?i)^SNOMED//?(\w+)$", "DX", "snomed"),
    (r"^PROCEDURE//ICD//9//([\w.\s]+)$", "PR", "icd9pcs"),
    (r"^PROCEDURE//ICD//10//([\w.\s]+)$", "PR", "icd10pcs"),
    (r"(?i)^ICD9Proc//?([\w.\s]+)$", "PR", "icd9pcs"),
    (r"(?i)^ICD10PCS//?([\w.\s]+)$", "PR", "icd10pcs"),
    (r"(?i)^CPT4?//?(\w+)$", "PR", "cpt"),
    (r"(?i)^HCPCS//?(\w+)$", "PR", "hcpcs"),
    (r"^ATC//?([A-Z]\d\d(?:[A-Z](?:[A-Z](?:\d\d)?)?)?)$", "MED", "atc"),
    (r"(?i)^RxNorm(?: Extension)?//?(\w+)$", "MED", "rxnorm"),
    (r"(?i)^NDC//?(\w+)$", "MED", "ndc"),
    (r"(?i)^CVX//?(\w+)$", "IMM", "cvx"),
)
"""Pattern of a MEDS code, its kind and vocabulary; the pattern's group is our code."""

WHOLE_CODE_PATTERNS = (
    (r"(?i)^(?:procedure_occurrence\w*|PROCEDURE//ICD|ICD9Proc|ICD10PCS|CPT4?|HCPCS)/(.+)$", "PR"),
    (r"(?i)^(?:condition_(?:occurrence|era)\w*|DIAGNOSIS|ICD(?:9|10|O3)\w*|SNOMED)/(.+)$", "DX"),
    (r"(?i)^drug_(?:exposure|era)\w*/(.+)$", "MED"),
)
"""Pattern and kind of codes that name their kind, but in a vocabulary or by an id we do not know: they stay whole."""

SELF_DESCRIBING_CODES = {
    "condition": r"(?i)^(?:condition_|SNOMED/|ICD)",
    "procedure": r"(?i)^(?:procedure_|ICD(?:9Proc|10PCS)/|CPT|HCPCS)",
    "visit": r"(?i)^visit",
    "visit_detail": r"(?i)^visit_detail",
}
"""By OMOP table, the codes that show by themselves that they are from it; all others are prefixed with its name."""

OMOP_NAMES = {name: f"{name}_occurrence" for name in ("condition", "procedure", "visit")}
"""OMOP tables that a converter calls by the first word of their name."""

NO_DIAGNOSES = ("measurement", "drug_exposure", "device_exposure", "specimen")
"""OMOP tables whose SNOMED codes are not diagnoses; they are prefixed with the table's name."""

VALUE_PATTERNS = (
    (r"^LAB//(?:RESULT//)?(\d.*)$", "itemid"),
    (r"^LOINC//?(.+)$", "loinc"),
)
"""Pattern and vocabulary of codes with values; the unit stays in the code, as it makes another measurement."""

TOKEN_PREFIX = {"rxnorm": "RX", "ndc": "NDC/", "snomed": "SNOMED/"}
"""The prefix of a vocabulary's codes in tokens, so that a code without parents is not taken for one with parents."""

OTHER_VOCAB = "meds"
"""The vocabulary of a code without a known prefix."""

PARENTS = {"DX": "ICD10CM", "PR": "ICD10PCS", "MED": "ATC"}
"""The vocabulary that events of each kind are mapped to, by its name in MEDS."""


def write_code() -> pl.Expr:
    """Return an event's MEDS code: prefix, code, and the unit of a value or the suffix of an administered drug."""
    return pl.concat_str(_prefix(), "code", _suffix())


def read_written_code() -> pl.Expr:
    """Return the code of an event from its MEDS code; the inverse of `write_code`, given kind, vocab and unit."""
    return pl.col("code").str.strip_prefix(_prefix()).str.strip_suffix(_suffix())


def _prefix() -> pl.Expr:
    pair = [
        pl.when((pl.col("kind") == kind) & (pl.col("vocab") == vocab)).then(pl.lit(prefix))
        for (kind, vocab), prefix in WRITTEN_PREFIXES.items()
    ]
    return pl.coalesce(*pair, pl.concat_str("kind", pl.lit(SEPARATOR), "vocab", pl.lit(SEPARATOR)))


def _suffix() -> pl.Expr:
    unit = pl.concat_str(pl.lit(SEPARATOR), pl.col("unit").fill_null(UNKNOWN))
    return (
        pl.when(pl.col("kind") == "LAB")
        .then(unit)
        .when((pl.col("kind") == "MED") & (pl.col("vocab") == "name"))
        .then(pl.lit(ADMINISTERED))
        .otherwise(pl.lit(""))
    )


def has_prefix(*names: str) -> pl.Expr:
    """Return whether a MEDS code is one of `names`, or one followed by a slash, in upper or lower case."""
    return pl.col("code").str.contains(rf"^(?i:{'|'.join(names)})(?:$|/)")


def part_after(*names: str) -> pl.Expr:
    """Return the part of a composite code after one of `names`, up to the next `//`; null where it is unknown."""
    part = pl.col("code").str.extract(rf"^(?i:{'|'.join(names)})//?(.+?)(?://|$)")
    return pl.when(part != UNKNOWN).then(part)


def with_table_prefix(rows: pl.DataFrame) -> pl.DataFrame:
    """Prefix a code with the OMOP table of its row, where the code alone would be read as another kind.

    Args:
        rows: code, table.
    """
    code, table = pl.col("code"), pl.col("table").str.to_lowercase().str.strip_suffix("_occurrence")
    table_name = table.replace_strict(OMOP_NAMES, default=table, return_dtype=pl.String)
    is_unsaid = pl.any_horizontal(
        (table == name) & ~code.str.contains(alone) for name, alone in SELF_DESCRIBING_CODES.items()
    )
    is_misread = table.is_in(NO_DIAGNOSES) & code.str.contains(r"(?i)^SNOMED/")
    return rows.with_columns(
        code=pl.when(is_unsaid | is_misread)
        .then(pl.concat_str(table_name, pl.lit(SEPARATOR), code))
        .otherwise(code)
    )


def classify_codes(codes: pl.Series, numeric_codes: pl.Series) -> pl.DataFrame:
    """Return the kind, vocabulary and code of each MEDS code, one row each.

    ICD-9 codes stay ICD-9; E and V codes are prefixed with a 9, since they would pass for ICD-10 codes.

    Args:
        codes: distinct codes.
        numeric_codes: those with enough values for deciles.

    Returns:
        meds_code, kind, vocab, code, mapped, unit (null); valued_kind …, the same for a row with a value; is_valued;
        is_mended where letters were replaced by to_plain_letters ones; fault, one of CODE_FAULTS or null.
    """
    code, legible = pl.col("meds_code"), pl.col("legible")
    matches = pl.DataFrame({"meds_code": codes, "legible": to_plain_letters(codes)}).with_columns(
        own_kind=_first_match(legible, {pattern: kind for pattern, kind, _ in CODE_PATTERNS}),
        vocab=_first_match(legible, {pattern: vocab for pattern, _, vocab in CODE_PATTERNS}).fill_null(
            OTHER_VOCAB
        ),
        whole_kind=_first_match(code, dict(WHOLE_CODE_PATTERNS)),
        recorded=pl.coalesce(legible.str.extract(pattern) for pattern, _, _ in CODE_PATTERNS),
    )
    bare = clean_code("recorded")
    whole = code.str.strip_chars()
    code_rows = matches.with_columns(
        kind=pl.coalesce("own_kind", "whole_kind", pl.lit("ITEM")),
        code=pl.coalesce(bare, whole),
        unit=pl.lit(None, pl.String),
        valued_kind=pl.lit("LAB"),
        valued_vocab=_first_match(code, dict(VALUE_PATTERNS)).fill_null(OTHER_VOCAB),
        valued_code=pl.coalesce(*(code.str.extract(pattern) for pattern, _ in VALUE_PATTERNS), whole),
        valued_mapped=pl.lit(None, pl.String),
        valued_unit=code.str.extract(r"^LAB//(?:RESULT//)?\d[^/]*//(.+)$"),
        is_valued=code.is_in(numeric_codes.implode()) & pl.coalesce("own_kind", "whole_kind").is_null(),
        is_mended=pl.col("own_kind").is_not_null() & (code != legible),
    ).with_columns(fault=_fault())
    mistakable = (pl.col("vocab") == "icd9cm") & pl.col("code").str.contains("^[EV]")
    prefix = (
        pl.when(mistakable)
        .then(pl.lit("9"))
        .otherwise(pl.col("vocab").replace_strict(TOKEN_PREFIX, default="", return_dtype=pl.String))
    )
    return code_rows.with_columns(mapped=pl.concat_str(prefix, "code")).drop(
        "own_kind", "whole_kind", "legible", "recorded"
    )


def _fault() -> pl.Expr:
    """Return which of CODE_FAULTS a code with a known prefix has; null without a fault."""
    vocab = pl.col("vocab")
    diagnosis_faults = code_faults("recorded", DIAGNOSIS_CODES, is_nine=vocab == "icd9cm")
    procedure_faults = code_faults("recorded", PROCEDURE_CODES, is_nine=vocab == "icd9pcs")
    is_coded = pl.col("own_kind").is_not_null()
    faults = {fault: is_coded & (diagnosis_faults[fault] | procedure_faults[fault]) for fault in CODE_FAULTS}
    return pl.coalesce(pl.when(holds).then(pl.lit(fault)) for fault, holds in faults.items())


def _first_match(code: pl.Expr, names: Mapping[str, str]) -> pl.Expr:
    """Return the name of the first pattern that matches a code; null without a match."""
    return pl.coalesce(
        pl.when(code.str.contains(pattern)).then(pl.lit(name)) for pattern, name in names.items()
    )

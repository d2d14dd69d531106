"""Codes of a CDM as (vocabulary, code): cleaned, assigned to their vocabulary, and checked for their format.

Each function takes a table's rows and adds `vocab` and `code`; boolean columns beside them say why a row has no usable
code, and what was corrected.
"""

from collections.abc import Mapping

import polars as pl

from pipelines.events.code_limits import CODE_FAULTS, damaged_codes, lost_zeros
from pipelines.events.code_mapping import (
    DIAGNOSIS_CODES,
    PROCEDURE_CODES,
    Icd,
    clean_code,
    code_faults,
    is_decimal,
    is_in_other_letters,
    to_plain_letters,
)
from pipelines.sources.pcornet.words import NO_INFORMATION, coded_value
from schemas.cards import Flow
from schemas.errors import InputError

# and HCPCS, which shares its type in the CDM
CPT = r"^([0-9]{4}[0-9A-Z]|[A-Z][0-9]{4})$"
LOINC, RXCUI, NDC, CVX = r"^[0-9]{1,7}-[0-9]$", r"^[0-9]{1,8}$", r"^[0-9]{9,11}$", r"^[0-9]{2,3}$"
CPT_LENGTH = 5  # modifiers follow

QUALITATIVE = {
    "POSITIVE": "POS",
    "NEGATIVE": "NEG",
    "BORDERLINE": "BORD",
    "INDETERMINATE": "IND",
    "UNDETERMINED": "IND",
}
"""RESULT_QUAL -> the suffix of its token."""

MEASURES = {"HT": "in", "WT": "lb", "SYSTOLIC": "mmHg", "DIASTOLIC": "mmHg", "ORIGINAL_BMI": "kg/m2"}
"""The columns of VITAL and their units."""

VITAL_CODES = {"SYSTOLIC": "SBP", "DIASTOLIC": "DBP", "ORIGINAL_BMI": "BMI"}

CODE_COLUMNS = {
    "DIAGNOSIS": "DX",
    "PROCEDURES": "PX",
    "LAB_RESULT_CM": "LAB_LOINC",
    "MED_ADMIN": "MEDADMIN_CODE",
    "PRESCRIBING": "RXNORM_CUI",
    "IMMUNIZATION": "VX_CODE",
}
"""The column of codes of each table."""

NO_CODE = {
    "no_code": pl.col("code").is_null(),
    "code_type": pl.col("vocab").is_null(),
    **{fault: pl.col(fault) for fault in CODE_FAULTS},
    "malformed_code": ~pl.col("well_formed"),
}
"""The reasons why a row has no usable code; the first that holds counts."""


MIN_CODES = 100  # fewer codes are not judged by shares


def refuse_lost_codes(table: str, flow: Flow) -> None:
    """Refuse a table whose codes are damaged, or of which more than half are malformed or of an unknown type."""
    num_lost = flow.dropped.get("malformed_code", 0) + flow.dropped.get("code_type", 0)
    num_codes = flow.source_rows - flow.dropped.get("no_code", 0)
    if fault := damaged_codes(flow, CODE_COLUMNS.get(table, ""), num_codes):
        raise InputError(f"{table}: {fault}")
    if num_codes >= MIN_CODES and 2 * num_lost > num_codes:
        raise InputError(
            f"{table}: {num_lost:,} of {num_codes:,} codes do not fit their type (more than half). "
            f"Check that {CODE_COLUMNS[table]} and its type are the CDM's, and extract them as text."
        )


def refuse_lost_zeros(table: str, flow: Flow) -> None:
    """Refuse a table whose ICD-9 codes are in the crosswalk only with leading or trailing zeros added."""
    if fault := lost_zeros(flow, CODE_COLUMNS.get(table, ""), flow.kept_rows):
        raise InputError(f"{table}: {fault}")


def normalize_letters(table: str, rows: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Return a table with its codes in plain letters, and the number of rows whose code changed."""
    if table not in CODE_COLUMNS:
        return rows, 0
    raw_codes = rows[CODE_COLUMNS[table]]
    codes = to_plain_letters(raw_codes).str.strip_chars()
    return rows.with_columns(codes), int((codes != raw_codes).sum())


def diagnosis_codes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add vocab, code, well_formed, cleaned, retyped to DIAGNOSIS."""
    with_type = _with_code(rows, "DX").with_columns(type=coded_value("DX_TYPE").str.zfill(2))
    return _icd(with_type, "DX", {"10": "icd10cm", "09": "icd9cm"}, DIAGNOSIS_CODES)


def procedure_codes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add vocab, code, well_formed, cleaned, retyped, modifier to PROCEDURES; CPT codes are cut to five characters."""
    with_type = _with_code(rows, "PX").with_columns(type=coded_value("PX_TYPE").str.zfill(2))
    is_long = (pl.col("type") == "CH") & (pl.col("code").str.len_chars() > CPT_LENGTH)
    without_modifier = with_type.with_columns(
        code=pl.when(is_long).then(pl.col("code").str.head(CPT_LENGTH)).otherwise("code"),
        modifier=is_long,
    )
    return _icd(without_modifier, "PX", {"10": "icd10pcs", "09": "icd9pcs", "CH": "cpt"}, PROCEDURE_CODES)


def laboratory_codes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add vocab, code, well_formed to LAB_RESULT_CM."""
    code = coded_value("LAB_LOINC")
    return _well_formed(rows.with_columns(code=code, vocab=pl.lit("loinc")), {"loinc": LOINC})


def laboratory_values(rows: pl.DataFrame) -> pl.DataFrame:
    """Add value and unit where the result is a number, and mapped (`<LOINC>_POS` …) where it is qualitative."""
    number = pl.col("RESULT_NUM")
    is_number = number.is_finite() & (coded_value("RESULT_MODIFIER") != "TX").fill_null(True)
    word = coded_value("RESULT_QUAL").replace_strict(QUALITATIVE, default=None, return_dtype=pl.String)
    unit = pl.when(coded_value("RESULT_UNIT").is_not_null()).then("RESULT_UNIT")
    with_value = rows.with_columns(value=pl.when(is_number).then(number))
    return with_value.with_columns(
        unit=pl.when(pl.col("value").is_not_null()).then(unit),
        mapped=pl.when(pl.col("value").is_null()).then(pl.concat_str("code", pl.lit("_"), word)),
    )


def administered_codes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add vocab, code, well_formed to MED_ADMIN: RxNorm, or the product's NDC."""
    vocab = _vocab(coded_value("MEDADMIN_TYPE"), {"RX": "rxnorm", "ND": "ndc"})
    code = coded_value("MEDADMIN_CODE").str.replace_all(r"[-\s]", "")
    return _well_formed(rows.with_columns(code=code, vocab=vocab), {"rxnorm": RXCUI, "ndc": NDC})


def prescribed_codes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add vocab, code, well_formed to PRESCRIBING."""
    return _well_formed(
        rows.with_columns(code=coded_value("RXNORM_CUI"), vocab=pl.lit("rxnorm")), {"rxnorm": RXCUI}
    )


def vaccine_codes(rows: pl.DataFrame) -> pl.DataFrame:
    """Add vocab, code, well_formed to IMMUNIZATION: CVX codes of two or three digits."""
    vocab = _vocab(coded_value("VX_CODE_TYPE"), {"CX": "cvx"})
    return _well_formed(
        rows.with_columns(code=coded_value("VX_CODE").str.zfill(2), vocab=vocab), {"cvx": CVX}
    )


def measurements(rows: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Return VITAL with a row for each of its five measures: code, value, unit, and the given columns."""
    long = rows.unpivot(on=list(MEASURES), index=list(columns), variable_name="measure", value_name="value")
    return long.with_columns(
        code=pl.col("measure").replace(VITAL_CODES),
        unit=pl.col("measure").replace_strict(MEASURES),
        vocab=pl.lit("vital"),
    )


def _with_code(rows: pl.DataFrame, column: str) -> pl.DataFrame:
    """Add `code` (upper case, without dots and blanks, null if empty) and `cleaned` (whether that changed it).

    `dot_at_3` says whether a dot followed the third character.
    """
    code = clean_code(column)
    is_given = (code != "") & ~code.is_in(NO_INFORMATION)
    return rows.with_columns(
        code=pl.when(is_given).then(code),
        cleaned=code != pl.col(column),
        dot_at_3=pl.col(column).str.slice(3, 1) == ".",
    )


def _icd(rows: pl.DataFrame, column: str, vocabs: dict[str, str], system: Icd) -> pl.DataFrame:
    """Add vocab by `type`, and the faults of a code; a code typed 09 that can only be ICD-10 is retyped.

    V and E codes of ICD-9 can look like ICD-10 codes; they keep their type, except for an E code with its dot where
    only ICD-10 has it (E66.9; ICD-9 has E849.0).
    """
    ten, nine = vocabs["10"], vocabs["09"]
    code, shapes = pl.col("code"), {ten: system.ten, nine: system.nine, "cpt": CPT}
    is_e_of_ten = code.str.starts_with("E") & pl.col("dot_at_3")
    is_ten_only = code.str.contains(shapes[ten]) & (~code.str.contains(shapes[nine]) | is_e_of_ten)
    is_retyped = ((pl.col("type") == "09") & is_ten_only).fill_null(False)
    vocab = pl.when(is_retyped).then(pl.lit(ten)).otherwise(_vocab(pl.col("type"), vocabs))
    is_nine, is_cpt = pl.col("vocab") == nine, pl.col("vocab") == "cpt"
    faults = code_faults(column, system, is_nine=is_nine)
    faults["code_as_float"] |= is_cpt & is_decimal(column)
    return _well_formed(rows.with_columns(vocab=vocab, retyped=is_retyped), shapes, faults)


def _vocab(types: pl.Expr, vocabs: dict[str, str]) -> pl.Expr:
    return types.replace_strict(vocabs, default=None, return_dtype=pl.String)


def _well_formed(
    rows: pl.DataFrame, shapes: dict[str, str], faults: Mapping[str, pl.Expr] | None = None
) -> pl.DataFrame:
    """Add `well_formed`, whether a code has the format of its vocabulary, and a column for each of CODE_FAULTS."""
    faults = faults or {
        "code_as_float": is_decimal("code"),
        "code_in_other_letters": is_in_other_letters("code"),
    }
    fits = [
        (pl.col("vocab") == vocab) & pl.col("code").str.contains(shape) for vocab, shape in shapes.items()
    ]
    fault_columns = {fault: faults.get(fault, pl.lit(False)) for fault in CODE_FAULTS}
    return rows.with_columns(well_formed=pl.any_horizontal(fits).fill_null(False), **fault_columns)

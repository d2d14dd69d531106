"""Code patterns: what each vocabulary's codes look like, dots optional, `*` only at the end."""

import re

# 9 a digit, A a letter, X either; beside it the least length without dots
_SHAPES: dict[str, tuple[tuple[str, int], ...]] = {
    "icd10cm": (("A9X.XXXX", 3),),
    "icd9cm": (("999.99", 3), ("V99.99", 3), ("E999.9", 4)),
    "icd10pcs": (("XXXXXXX", 7),),
    "icd9pcs": (("99.99", 3),),
    "cpt": (("99999", 5), ("9999A", 5), ("A9999", 5)),
    "itemid": (("99999999", 4),),
    "rxnorm": (("99999999", 1),),
    "atc": (("A99AA99", 1),),
    "cvx": (("999", 1),),
}
_LOINC = (re.compile(r"\d{1,7}-\d"), re.compile(r"\d{1,7}(-\d?)?"))  # whole, and before a `*`

VOCAB_NAMES = {
    "icd10cm": "ICD-10-CM",
    "icd9cm": "ICD-9-CM",
    "icd10pcs": "ICD-10-PCS",
    "icd9pcs": "an ICD-9 procedure",
    "cpt": "CPT",
    "loinc": "LOINC",
    "itemid": "a MIMIC itemid",
    "rxnorm": "RxNorm",
    "atc": "ATC",
    "cvx": "CVX",
}


def clean_pattern(pattern: str) -> str:
    """Return a pattern as the events hold codes: upper case, no dots or blanks; a `*` at the end stays."""
    return pattern.upper().replace(".", "").replace(" ", "")


def pattern_fault(vocab: str, pattern: str) -> str | None:
    """Return what is wrong with a code pattern, or None."""
    stem, star = (pattern[:-1], True) if pattern.endswith("*") else (pattern, False)
    if "*" in stem:
        return f"'{pattern}': '*' may stand only at the end"
    stem = stem.strip().upper()
    fits = _fits_loinc(stem, star) if vocab == "loinc" else _fits_a_shape(vocab, stem, star)
    return None if fits else f"'{pattern}' does not look like {VOCAB_NAMES[vocab]}"


def _fits_loinc(stem: str, star: bool) -> bool:
    return _LOINC[star].fullmatch(stem) is not None


def _fits_a_shape(vocab: str, stem: str, star: bool) -> bool:
    length = len(stem.replace(".", ""))
    for shape, least in _SHAPES[vocab]:
        enough = length >= (1 if star else least)
        if enough and (_fits(stem, shape) or _fits(stem, shape.replace(".", ""))):
            return True
    return False


def _fits(stem: str, shape: str) -> bool:
    return len(stem) <= len(shape) and all(map(_fits_symbol, stem, shape))


def _fits_symbol(letter: str, symbol: str) -> bool:
    if symbol == "9":
        return letter.isascii() and letter.isdigit()
    if symbol == "A":
        return letter.isascii() and letter.isalpha()
    if symbol == "X":
        return letter.isascii() and letter.isalnum()
    return letter == symbol

"""Check code patterns against the format of each vocabulary: dots are optional, `*` is allowed at the end only."""

import re

# (shape, minimum length without dots); in a shape 9 is a digit, A a letter, X either
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
_LOINC = (re.compile(r"\d{1,7}-\d"), re.compile(r"\d{1,7}(-\d?)?"))  # a full code; the part before a `*`

VOCAB_NAMES = {
    "icd10cm": "ICD-10-CM",
    "icd9cm": "ICD-9-CM",
    "icd10pcs": "ICD-10-PCS",
    "icd9pcs": "ICD-9 procedure",
    "cpt": "CPT",
    "loinc": "LOINC",
    "itemid": "MIMIC item",
    "rxnorm": "RxNorm",
    "atc": "ATC",
    "cvx": "CVX",
}


def clean_pattern(pattern: str) -> str:
    """Return a pattern in the form of the codes in the events: upper case, no dots or blanks; a final `*` stays."""
    return pattern.upper().replace(".", "").replace(" ", "")


def pattern_fault(vocab: str, pattern: str) -> str | None:
    """Return a sentence that says what is wrong with a code pattern, or None if it is valid."""
    stem, star = (pattern[:-1], True) if pattern.endswith("*") else (pattern, False)
    if "*" in stem:
        return f"'{pattern}': '*' is allowed only at the end of a code"
    stem = stem.strip().upper()
    fits = _fits_loinc(stem, star) if vocab == "loinc" else _fits_a_shape(vocab, stem, star)
    return None if fits else f"'{pattern}' is not a valid {VOCAB_NAMES[vocab]} code"


def _fits_loinc(stem: str, star: bool) -> bool:
    return _LOINC[star].fullmatch(stem) is not None


def _fits_a_shape(vocab: str, stem: str, star: bool) -> bool:
    length = len(stem.replace(".", ""))
    for shape, min_length in _SHAPES[vocab]:
        is_long_enough = length >= (1 if star else min_length)
        if is_long_enough and (_fits(stem, shape) or _fits(stem, shape.replace(".", ""))):
            return True
    return False


def _fits(stem: str, shape: str) -> bool:
    return len(stem) <= len(shape) and all(map(_fits_symbol, stem, shape))


def _fits_symbol(character: str, symbol: str) -> bool:
    if symbol == "9":
        return character.isascii() and character.isdigit()
    if symbol == "A":
        return character.isascii() and character.isalpha()
    if symbol == "X":
        return character.isascii() and character.isalnum()
    return character == symbol

"""Say the names of a code list's codes back, so that its author sees which codes were written."""

from itertools import takewhile

from schemas.code_names import CodeNames, shorten
from schemas.cohort.codes import VOCAB_NAMES
from schemas.cohort.model import CodeList
from schemas.nouns import with_noun

UNNAMED = "no name in the dictionary"

JOINING = {"and", "by", "due", "for", "in", "of", "or", "other", "the", "to", "with", "without"}
"""Words that a name does not end with."""

FEWEST_WORDS = 2
"""How many words say what several codes have in common; one alone would be `Other` or `Acute`."""


def codes_in_words(codes: CodeList, names: CodeNames) -> str:
    """Return a code list in words: `MIMIC item Creatinine (50912); ICD-10-CM Heart failure (I50*, 26 codes)`."""
    return "; ".join(
        f"{VOCAB_NAMES[vocab]} {', '.join(_pattern(vocab, pattern, names) for pattern in patterns)}"
        for vocab, patterns in codes.patterns.items()
    )


def _pattern(vocab: str, pattern: str, names: CodeNames) -> str:
    if not names.has(vocab):
        return pattern
    stem = pattern.removesuffix("*")
    name = names.name(vocab, stem)
    if stem == pattern:
        return f"{shorten(name)} ({pattern})" if name else f"{pattern} ({UNNAMED})"
    codes = sorted(names.codes(vocab, stem))
    if not codes:
        return f"{pattern} ({UNNAMED})"
    if name:
        return f"{shorten(name)} ({pattern}, {with_noun(len(codes), 'code')})"
    return f"{pattern} ({with_noun(len(codes), 'code')}: {_in_common([names.names[vocab][code] for code in codes])})"


def _in_common(code_names: list[str]) -> str:
    """Return the words that all names begin with, else the first name: ICD-9 has no names of its categories."""
    first, *others = code_names
    columns = zip(*(name.replace(",", "").split() for name in code_names), strict=False)
    words = [column[0] for column in takewhile(lambda column: len(set(column)) == 1, columns)]
    while words and words[-1].lower() in JOINING:
        words.pop()
    name = " ".join(words) if len(words) >= FEWEST_WORDS and others else first
    return f"{shorten(name)} …" if others else shorten(name)

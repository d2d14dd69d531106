"""Say the names of a code list's codes back, so that its author sees which codes were written."""

from schemas.code_names import CodeNames, shorten
from schemas.cohort.codes import VOCAB_NAMES
from schemas.cohort.model import CodeList
from schemas.nouns import with_noun

UNNAMED = "no name in the dictionary"


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
    example = shorten(names.names[vocab][codes[0]])
    return f"{pattern} ({with_noun(len(codes), 'code')}: {example}{' …' if len(codes) > 1 else ''})"

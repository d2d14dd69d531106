"""Shows the codes a search matches as a table, and as the part of a cohort file that uses them."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby

import polars as pl

from pipelines.cohorts.find_codes import SHORTEST_STEM, CodeMatch, Search, find_codes
from pipelines.events.store import scan_table
from schemas.code_names import CodeNames, shorten
from schemas.cohort.codes import VOCAB_NAMES, pattern_fault
from schemas.contract import read_table
from schemas.io.verify import is_written
from schemas.layout import Layout
from schemas.nouns import with_noun
from schemas.suppress import suppress_count
from schemas.tables.events import SUBJECTS
from schemas.tables.vocab import VOCAB

FOLDED = ("icd10cm", "icd9cm", "icd9pcs", "atc")
"""The vocabularies in which codes that begin alike belong together."""
_NAME_WIDTH = 90


def codes_page(words: Sequence[str], layout: Layout, most: int) -> tuple[list[str], bool]:
    """Return what to print about the codes that words mean, and whether any patient has one.

    Reads code_names.parquet, the number of subjects, and of the events those kinds that may hold such a code.

    Raises:
        NestError: there are no events yet.
    """
    names = CodeNames.read(layout.code_names)
    search = Search.of(words, names)
    codes = find_codes(search, layout, names)
    if not codes:
        return _nothing(words, search, layout, names), False
    patients = scan_table(layout.subjects, SUBJECTS).select(pl.len()).collect().item()
    lines = [*code_lines(codes, patients, most), "", *snippet(search, codes, names)]
    if not names.names:
        lines += [
            "",
            f"No code has a name yet: run {layout.source}_code_names, which reads the dictionaries.",
        ]
    return lines, True


def _nothing(words: Sequence[str], search: Search, layout: Layout, names: CodeNames) -> list[str]:
    """Return what to say where no patient has such a code."""
    query, source = " ".join(words), layout.source
    unseen_codes = [
        (vocab, code, name) for vocab, part in search.code_names.items() for code, name in part.items()
    ]
    if unseen_codes:
        vocab, code, name = unseen_codes[0]
        example = f"{vocab} {code}, {shorten(name)}"
        return [
            f"{_are_named(len(unseen_codes))} '{query}', but no patient of {source} has one: e.g. {example}."
        ]
    if not names.names:
        return [
            f"No code of {source} begins with '{query}', and no code has a name yet: run {source}_code_names."
        ]
    tokens = read_table(layout.vocab, VOCAB)["code"].to_pylist() if is_written(layout.vocab) else []
    near = nearest_words(search.words, names, set(tokens))
    hint = f" Do you mean '{' '.join(near)}'?" if near else ""
    if len(near) > 1 and not Search.of(near, names).code_names:
        quoted = ", ".join(f"'{word}'" for word in near)
        hint = f" Names have {quoted}, but none has all of these words: look for fewer of them."
    return [f"No code of {source} is named '{query}' or begins with it.{hint}"]


def _are_named(number: int) -> str:
    return "1 code is named" if number == 1 else f"{number:,} codes are named"


def code_lines(codes: Sequence[CodeMatch], of_patients: int, most: int) -> list[str]:
    """Return a table of codes with small counts of patients suppressed."""
    rows = [("vocab", "code", "patients", "name")]
    for match in codes[:most]:
        patients = suppress_count(match.patients, of_patients)
        rows.append((match.vocab, match.code, patients, shorten(match.name or "–", _NAME_WIDTH)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{vocab:<{widths[0]}}  {code:<{widths[1]}}  {patients:>{widths[2]}}  {name}"
        for vocab, code, patients, name in rows
    ]
    if len(codes) > most:
        lines.append(f"… and {len(codes) - most:,} more; --most {len(codes)} shows all.")
    return lines


def snippet(search: Search, codes: Sequence[CodeMatch], names: CodeNames) -> list[str]:
    """Return the lines of a cohort file's `codes:` that mean these codes, each with its name."""
    usable = sorted((match for match in codes if match.vocab in VOCAB_NAMES), key=lambda match: match.vocab)
    others = {match.vocab for match in codes} - VOCAB_NAMES.keys()
    comments = [f"# A cohort file cannot name codes of {', '.join(sorted(others))}."] if others else []
    if not usable:
        return comments
    lines = [*comments, "codes:", f"  {_list_name(search.words)}:"]
    for vocab, group in groupby(usable, key=lambda match: match.vocab):
        lines.append(f"    {vocab}:")
        lines += [
            f"      - {pattern:<10}  # {about}"
            for pattern, about in _patterns(vocab, list(group), search, names)
        ]
    return lines


def _list_name(words: Sequence[str]) -> str:
    name = re.sub(r"[^a-z0-9]+", "_", " ".join(words).lower()).strip("_")
    return name if name[:1].isalpha() else f"codes_{name}".strip("_")


def _patterns(
    vocab: str, codes: Sequence[CodeMatch], search: Search, names: CodeNames
) -> Iterator[tuple[str, str]]:
    """Yield the patterns of a vocabulary and what each means; codes whose parent has no others become one pattern."""
    stems = search.stems.get(vocab, ())
    meant = {match.code for match in codes} | search.code_names.get(vocab, {}).keys()
    meant |= {code for stem in stems for code in names.codes(vocab, stem)}
    last_stem: str | None = None
    for match in sorted(codes, key=lambda match: match.code):
        if last_stem is not None and match.code.startswith(last_stem):
            continue
        last_stem = (
            _stem(vocab, match.code, meant, names) if names.has(vocab) else _first_stem(stems, match.code)
        )
        if last_stem is None:
            yield _quoted(match.code), shorten(match.name or "no name")
        else:
            name = names.name(vocab, last_stem) or f"{shorten(match.name or 'no name')} …"
            count = len(names.codes(vocab, last_stem))
            yield (
                _quoted(f"{last_stem}*"),
                f"{shorten(name)}, {with_noun(count, 'code')}" if count else "every code that begins so",
            )


def _stem(vocab: str, code: str, meant: AbstractSet[str], names: CodeNames) -> str | None:
    """Return the shortest beginning of a code that only meant codes have, and at least two; None if there is none."""
    if vocab not in FOLDED:
        return None
    for length in range(SHORTEST_STEM, len(code) + 1):
        family = names.codes(vocab, code[:length])
        if len(family) > 1 and meant >= set(family) and pattern_fault(vocab, f"{code[:length]}*") is None:
            return code[:length]
    return None


def _first_stem(stems: Sequence[str], code: str) -> str | None:
    """Return what was typed of a code's beginning, where no dictionary says which other codes begin so."""
    return max((stem for stem in stems if stem != code), key=len, default=None)


def _quoted(pattern: str) -> str:
    """Return a code as YAML reads it as text: in quotes if it could be a number."""
    return pattern if re.fullmatch(r"[A-Z][A-Z0-9]+\*?", pattern) else f"'{pattern}'"


def nearest_words(words: Iterable[str], names: CodeNames, codes: Collection[str]) -> list[str]:
    """Return the words of names most like those searched for, first among names of `codes`, then of all."""
    return [near for word in words if (near := _nearest(word.lower(), names, codes))]


def _nearest(word: str, names: CodeNames, codes: Collection[str]) -> str | None:
    for candidates in (codes, None):
        vocabulary = {
            part
            for dictionary in names.names.values()
            for code, name in dictionary.items()
            if candidates is None or code in candidates
            for part in re.findall(r"[a-z][a-z0-9-]{2,}", name.lower())
        }
        if word in vocabulary:
            return word
        near: list[str] = difflib.get_close_matches(word, sorted(vocabulary), n=1, cutoff=0.75)
        if near:
            return near[0]
    return None

"""Finds the codes that a few words mean, by name or by code, with the number of patients who have each."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import polars as pl

from pipelines.cohorts.read import scan_events
from pipelines.engine.buckets import Buckets
from pipelines.engine.workers import each_bucket
from pipelines.events.store import kinds_of
from schemas.code_names import CodeNames
from schemas.cohort.codes import VOCAB_NAMES as COHORT_VOCABS
from schemas.cohort.codes import clean_pattern, pattern_fault
from schemas.errors import NestError
from schemas.layout import Layout
from schemas.suppress import is_small

KINDS_OF_VOCAB = {
    "icd10cm": ("DX",),
    "icd9cm": ("DX",),
    "icd10pcs": ("PR",),
    "icd9pcs": ("PR",),
    "cpt": ("PR",),
    "itemid": ("LAB",),
    "loinc": ("LAB",),
    "rxnorm": ("MED",),
    "atc": ("MED",),
    "cvx": ("IMM",),
}
"""The kinds of events that hold a vocabulary's codes; a vocabulary that is not here may be in any."""

SHORTEST_STEM = 3
"""Characters of a word that is looked for as the beginning of a code."""

NamesByVocabulary = Mapping[str, Mapping[str, str]]
"""vocabulary -> code -> name."""


@dataclass(frozen=True)
class CodeMatch:
    """A code in the data."""

    vocab: str
    code: str
    name: str | None
    patients: int


@dataclass(frozen=True)
class Search:
    """What a few words mean: the codes they name, and the beginnings of codes they may be."""

    words: tuple[str, ...]
    code_names: NamesByVocabulary  # every code whose name, with the code, has all words
    stems: Mapping[str, tuple[str, ...]]  # by vocabulary, where every word may begin one of its codes
    drugs: Mapping[str, str] = field(
        default_factory=dict
    )  # ATC -> the name on record, where that has all words

    @classmethod
    def of(cls, words: Sequence[str], names: CodeNames) -> "Search":
        """Return what the words mean with these names of codes; blanks within a word separate words.

        Raises:
            NestError: there is no word.
        """
        parts = tuple(part for word in words for part in word.lower().split())
        if not parts:
            raise NestError("No word to look for: write a part of a name or the beginning of a code.")
        stems = {
            vocab: tuple(clean_pattern(part).removesuffix("*") for part in parts)
            for vocab in COHORT_VOCABS
            if _are_stems(vocab, parts)
        }
        code_names: dict[str, dict[str, str]] = {}
        for vocab, dictionary in names.names.items():
            for code, name in dictionary.items():
                if _has_all(parts, code, name.lower()):
                    code_names.setdefault(vocab, {})[code] = name
        return cls(parts, code_names, stems)

    def kinds(self, present: Sequence[str]) -> tuple[str, ...]:
        """Return the kinds of events that may hold such a code."""
        vocabs = {*self.code_names, *self.stems, *(["atc"] if self.drugs else [])}
        kinds = {kind for vocab in vocabs for kind in KINDS_OF_VOCAB.get(vocab, present)}
        return tuple(kind for kind in present if kind in kinds)

    def matches(self) -> pl.Expr:
        """Return whether a row's vocab and code are searched for."""
        vocab, code = pl.col("vocab"), pl.col("code")
        code_names = [
            (vocab == name) & code.is_in(list(codes))
            for name, codes in [*self.code_names.items(), ("atc", self.drugs)]
        ]
        stems = [
            (vocab == name) & pl.all_horizontal(code.str.starts_with(stem) for stem in stems)
            for name, stems in self.stems.items()
        ]
        return pl.any_horizontal(pl.lit(False), *code_names, *stems)


def _are_stems(vocab: str, words: Sequence[str]) -> bool:
    """Return whether all words may begin codes of a vocabulary."""
    return all(
        _is_code(word) and pattern_fault(vocab, f"{word.removesuffix('*')}*") is None for word in words
    )


def _has_all(words: Sequence[str], code: str, name: str) -> bool:
    return all(
        word in name or (_is_code(word) and code.startswith(clean_pattern(word).removesuffix("*")))
        for word in words
    )


def _is_code(word: str) -> bool:
    """Return whether a word may begin a code: of `type 2 diabetes` none does."""
    return len(word.removesuffix("*")) >= SHORTEST_STEM and any(map(str.isdigit, word))


def find_codes(search: Search, layout: Layout, names: CodeNames) -> list[CodeMatch]:
    """Return the codes in the data that a search means, those of most patients first.

    Raises:
        NestError: there are no events yet.
    """
    present = kinds_of(layout.events) if layout.events.is_dir() else ()
    if not present or not layout.buckets.exists():
        source = layout.source
        raise NestError(
            f"There are no events of {source} in {layout.root.parent} yet, so no code can be counted. Run "
            f"`.venv/bin/dagster job execute -j {source}_full` first, or only {source}_events in the UI."
        )
    if "MED" in present:
        search = replace(search, drugs=_drugs_on_record(search.words, layout))
    kinds = search.kinds(present)
    counts = _sum(layout, partial(_count_codes, layout, kinds, search), "codes") if kinds else []
    codes = [
        CodeMatch(vocab, code, _name(search, names, vocab, code), patients)
        for vocab, code, patients in counts
    ]
    return sorted(codes, key=_by_patients)


def _by_patients(match: CodeMatch) -> tuple[int, str, str]:
    """Return the key to sort by: the most patients first, and small counts, whose order would say more, by code."""
    return (0 if is_small(match.patients) else -match.patients, match.vocab, match.code)


def _name(search: Search, names: CodeNames, vocab: str, code: str) -> str | None:
    """Return a code's name, with the name on record where only that has the words."""
    name, record_name = names.name(vocab, code), search.drugs.get(code) if vocab == "atc" else None
    if name is None or record_name is None or code in search.code_names.get(vocab, {}):
        return name or record_name
    return f"{name}, on record as {record_name}"


def _drugs_on_record(words: Sequence[str], layout: Layout) -> dict[str, str]:
    """Return ATC -> the commonest drug name on record with all words, among those of at least 11 patients."""
    counts = _sum(layout, partial(_count_drugs, layout, words), "drug names")
    common = [(patients, atc, name) for atc, name, patients in counts if not is_small(patients)]
    return {atc: name for _, atc, name in sorted(common)}


def _sum(
    layout: Layout, work: Callable[[int], list[tuple[str, str, int]]], step: str
) -> list[tuple[str, str, int]]:
    """Return the sums over all buckets, which share no patient."""
    total = Counter[tuple[str, str]]()
    for counts in each_bucket(step, work, len(Buckets.read(layout))):
        total.update({(first, second): patients for first, second, patients in counts})
    return [(first, second, patients) for (first, second), patients in sorted(total.items())]


def _count_codes(
    layout: Layout, kinds: tuple[str, ...], search: Search, bucket: int
) -> list[tuple[str, str, int]]:
    """Return vocab, code, patients of a bucket's codes that are searched for; drugs also by their ATC code."""
    events = scan_events(layout, kinds, bucket)
    own_codes = events.select("subject_id", "vocab", "code")
    drugs = events.filter((pl.col("kind") == "MED") & (pl.col("vocab") != "atc"))
    as_atc = drugs.select("subject_id", vocab=pl.lit("atc"), code="mapped").drop_nulls()
    matching = pl.concat([own_codes, as_atc]).filter(search.matches())
    return _patients(matching, "vocab", "code")


def _count_drugs(layout: Layout, words: Sequence[str], bucket: int) -> list[tuple[str, str, int]]:
    """Return ATC, name on record, patients of a bucket's drugs whose name has all words."""
    events = scan_events(layout, ("MED",), bucket).filter(pl.col("vocab") == "name").drop_nulls("mapped")
    has_words = [pl.col("code").str.to_lowercase().str.contains(word, literal=True) for word in words]
    return _patients(events.filter(pl.all_horizontal(has_words)), "mapped", "code")


def _patients(events: pl.LazyFrame, *by: str) -> list[tuple[str, str, int]]:
    return events.group_by(by).agg(pl.col("subject_id").n_unique()).collect(engine="streaming").rows()

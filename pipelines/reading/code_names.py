"""Reads what dictionaries are at hand into names of codes; none is needed, and a bad one costs only its names.

The dictionaries are MIMIC-IV's `d_labitems`, `d_icd_diagnoses` and `d_icd_procedures`, the ATC names of the crosswalks
(`atc_coding`), and a table `code_names` of the user's own, whose names come first.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pipelines.events.code_mapping import clean_code
from pipelines.reading.files import find_file
from pipelines.reading.tables import INTEGER, TEXT, Table, read
from schemas.cards import StepCard
from schemas.contract import contract_name, write_table
from schemas.errors import InputError
from schemas.io.hashing import file_sha256
from schemas.layout import Layout
from schemas.nouns import with_noun
from schemas.tables.code_names import CODE_NAMES

OWN = "code_names"
WITHOUT_NAMES = "Its codes are shown without names."
USUALLY_UNUSABLE = 0.01
"""MIMIC-IV's own `d_labitems` has three rows without a label; more than this share is worth a warning."""
_GARBLED = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u{fffd}]|Ã[\u{80}-\u{bf}]|Â[\u{a0}-\u{bf}]|â€"
"""Control characters, the replacement character, and UTF-8 that was read as Latin-1 and written again."""


@dataclass(frozen=True)
class Dictionary:
    """A table with names of codes: its columns, and its rows as vocab, code, name."""

    table: Table
    names: Callable[[pl.LazyFrame], pl.LazyFrame]


def _icd(nine: str, ten: str) -> Dictionary:
    def names(rows: pl.LazyFrame) -> pl.LazyFrame:
        version = pl.col("icd_version")
        vocab = pl.when(version == 9).then(pl.lit(nine)).when(version == 10).then(pl.lit(ten))
        return rows.select(vocab=vocab, code=clean_code("icd_code"), name="long_title")

    return Dictionary(Table({"icd_code": TEXT, "icd_version": INTEGER, "long_title": TEXT}), names)


def _items(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Return the names of laboratory items with what was measured in: Creatinine is one in blood, another in urine."""
    label, fluid = pl.col("label").str.strip_chars(), pl.col("fluid").str.strip_chars()
    is_said = label.str.ends_with(pl.concat_str(pl.lit(", "), fluid))  # Protein, Urine
    in_fluid = pl.when(~is_said).then(pl.concat_str(pl.lit(" ("), fluid, pl.lit(")"))).fill_null("")
    name = pl.concat_str(label, in_fluid)
    return rows.select(vocab=pl.lit("itemid"), code=pl.col("itemid").cast(pl.String), name=name)


def _drugs(rows: pl.LazyFrame) -> pl.LazyFrame:
    name = pl.col("atc_name").str.strip_chars()
    capital = pl.concat_str(name.str.head(1).str.to_uppercase(), name.str.slice(1))
    return rows.select(vocab=pl.lit("atc"), code=clean_code("atc_code"), name=capital)


DICTIONARIES: Mapping[str, Dictionary] = {
    OWN: Dictionary(
        Table({"vocab": TEXT, "code": TEXT, "name": TEXT}),
        lambda rows: rows.select(
            pl.col("vocab").str.strip_chars().str.to_lowercase(), clean_code("code"), "name"
        ),
    ),
    "d_labitems": Dictionary(Table({"itemid": INTEGER, "label": TEXT, "fluid": TEXT}), _items),
    "d_icd_diagnoses": _icd("icd9cm", "icd10cm"),
    "d_icd_procedures": _icd("icd9pcs", "icd10pcs"),
    "atc_coding": Dictionary(Table({"atc_code": TEXT, "atc_name": TEXT}), _drugs),
}
"""By the name of the file, in order of precedence."""


@dataclass(frozen=True)
class FoundDictionaries:
    """The dictionaries at hand, and a sentence on each that cannot be one."""

    files: Mapping[str, Path]  # by name in DICTIONARIES
    warnings: list[str]

    @property
    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each file."""
        return {name: file_sha256(path) for name, path in self.files.items()}


def find_dictionaries(folders: Sequence[Path]) -> FoundDictionaries:
    """Return the dictionaries in these folders, each from the first folder that has it."""
    files, warnings = dict[str, Path](), list[str]()
    for name in DICTIONARIES:
        try:
            paths = [path for folder in folders if (path := find_file(folder, name))]
        except InputError as error:
            warnings.append(f"{error} {WITHOUT_NAMES}")
            continue
        if paths:
            files[name] = paths[0]
    return FoundDictionaries(files, warnings)


def write_code_names(
    layout: Layout,
    dictionaries: FoundDictionaries,
    more: pl.DataFrame | None = None,
    more_warnings: Sequence[str] = (),
) -> StepCard:
    """Write codes/1 from the dictionaries that can be read; the card has a sentence on each that cannot.

    Args:
        layout: where the names are written.
        dictionaries: what to read.
        more: vocab, code, name of codes that the source itself names; a dictionary's name comes first.
        more_warnings: sentences about `more`.
    """
    parts, warnings = [pl.DataFrame(CODE_NAMES.empty_table())], [*dictionaries.warnings, *more_warnings]
    notes = list[str]()
    for name, path in dictionaries.files.items():
        try:
            rows, sentence, is_warning = _clean(path.name, _read(path, DICTIONARIES[name]))
        except InputError as error:
            warnings.append(f"{error} {WITHOUT_NAMES}")
            continue
        parts.append(rows)
        if sentence:
            (warnings if is_warning else notes).append(sentence)
    names = (
        pl.concat([*parts, *([] if more is None else [more])])
        .unique(["vocab", "code"], keep="first")
        .sort("vocab", "code")
    )
    write_table(names.to_arrow(), layout.code_names, CODE_NAMES, made_by="write_code_names")
    card = StepCard(
        step="code_names",
        contract=contract_name(CODE_NAMES),
        counts={"names": names.height, **dict(names.group_by("vocab").len().sort("vocab").iter_rows())},
        hashes={"names": hashlib.sha256(names.write_csv().encode()).hexdigest()},
        warnings=warnings,
        notes=notes,
    )
    card.write(layout.cards)
    return card


def _read(path: Path, dictionary: Dictionary) -> pl.DataFrame:
    names = dictionary.names(read(path, dictionary.table).lazy())
    return names.with_columns(pl.col("name").str.strip_chars()).collect()


_IS_WHOLE = (pl.col("code") != "") & (pl.col("name") != "")


def legible_names(names: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that have a code and a name that no export has garbled."""
    return names.drop_nulls().filter(_IS_WHOLE & ~pl.col("name").str.contains(_GARBLED))


def _clean(file: str, rows: pl.DataFrame) -> tuple[pl.DataFrame, str, bool]:
    """Return the rows with a legible name, each code once; a sentence on the others; and whether it is a warning."""
    whole = rows.drop_nulls().filter(_IS_WHOLE)
    legible = legible_names(whole)
    distinct = legible.unique(maintain_order=True)
    unique = distinct.unique(["vocab", "code"], keep="first", maintain_order=True)
    faults = {
        "have no code or no name": rows.height - whole.height,
        "have a name that an export has garbled": whole.height - legible.height,
        "give another name to a code that has one": distinct.height - unique.height,
    }
    words = [f"{count:,} {fault}" for fault, count in faults.items() if count]
    sentence = (
        f"{file}: of {with_noun(rows.height, 'row')} {' and '.join(words)}; they are not used."
        if words
        else ""
    )
    return unique, sentence, rows.height - legible.height > USUALLY_UNUSABLE * rows.height

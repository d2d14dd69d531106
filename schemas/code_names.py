"""Turns codes and tokens into names that a clinician can read: LAB:50912_Q10 is Creatinine (Blood), highest tenth."""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from schemas.contract import read_table
from schemas.io.verify import is_written
from schemas.tables.code_names import CODE_NAMES

KIND_NAMES = {
    "DX": "Diagnoses",
    "PR": "Procedures",
    "MED": "Drugs",
    "LAB": "Laboratory values",
    "VIT": "Vital signs",
    "IMM": "Vaccines",
    "ITEM": "Other items",
}
"""What the kinds of events are, in words."""

TOKEN_VOCABS = {
    "DX": ("icd10cm", "icd9cm", "meds"),
    "PR": ("icd10pcs", "icd9pcs", "cpt", "hcpcs", "meds"),
    "MED": ("atc", "meds"),
    "LAB": ("itemid", "loinc", "meds"),
    "VIT": ("vital",),
    "IMM": ("cvx",),
    "ITEM": ("meds",),
}
"""The vocabularies that a token of each kind may be from, in the order they are looked in."""

_PREFIXED = {"RX": "rxnorm", "NDC/": "ndc", "SNOMED/": "snomed"}
_WITHOUT_DICTIONARY = {
    ("vital", "HT"): "Height",
    ("vital", "WT"): "Weight",
    ("vital", "SBP"): "Systolic blood pressure",
    ("vital", "DBP"): "Diastolic blood pressure",
    ("vital", "BMI"): "Body mass index",
}
_RESULTS = {"POS": "positive", "NEG": "negative", "BORD": "borderline", "IND": "indeterminate"}
_TENTHS = {1: "lowest tenth", 2: "2nd tenth", 3: "3rd tenth", 10: "highest tenth"}
_SHORTEST = {"icd10cm": 3, "icd9cm": 3, "atc": 3}
"""The vocabularies whose codes begin with their parents' codes, and the length of the shortest that says something."""

_LAST = "\uffff"  # after every character of a code
_VALUE = re.compile(r"^(?P<item>.+)_(?:Q(?P<tenth>10|[1-9])|(?P<result>[A-Z]+))$")
_TOKEN = re.compile(rf"\b(?:{'|'.join(KIND_NAMES)})(?::\S+|\b)")


def kind_in_words(name: str) -> str:
    """Return the name of a kind of events; any other name as it is."""
    return KIND_NAMES.get(name, name)


@dataclass(frozen=True)
class CodeNames:
    """The names of a source's codes; a code without a name stays a code."""

    names: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # vocabulary -> code -> name

    @classmethod
    def read(cls, file: Path) -> "CodeNames":
        """Read codes/1; without the file no code has a name.

        Raises:
            ContractError: the file is damaged or under another contract.
        """
        if not is_written(file):
            return cls()
        names: dict[str, dict[str, str]] = {}
        table = read_table(file, CODE_NAMES)
        columns = (table[name].to_pylist() for name in CODE_NAMES.names)
        for vocab, code, name in zip(*columns, strict=True):
            names.setdefault(vocab, {})[code] = name
        return cls(names)

    def name(self, vocab: str, code: str) -> str | None:
        """Return the name of a code; None if it has none."""
        return self.names.get(vocab, {}).get(code) or _WITHOUT_DICTIONARY.get((vocab, code))

    def has(self, vocab: str) -> bool:
        """Return whether there is a dictionary of a vocabulary."""
        return bool(self.names.get(vocab))

    def codes(self, vocab: str, stem: str) -> list[str]:
        """Return the codes of a vocabulary's dictionary that begin with `stem`."""
        codes = self._sorted_codes.get(vocab, [])
        return codes[bisect_left(codes, stem) : bisect_left(codes, f"{stem}{_LAST}")]

    @cached_property
    def _sorted_codes(self) -> dict[str, list[str]]:
        return {vocab: sorted(names) for vocab, names in self.names.items()}

    def of_token(self, token: str) -> str:
        """Return the readable name of a token, or the token itself if its code has no name."""
        kind, _, code = token.partition(":")
        if name := self._of_code(kind, code):
            return name
        match = _VALUE.match(code)
        if match is None:
            return self._of_item(kind, code) or token
        name = self._of_item(kind, match["item"])
        if name is None:
            return token
        value = (
            _tenth(int(match["tenth"])) if match["tenth"] else _RESULTS.get(match["result"], match["result"])
        )
        return f"{name}, {value}"

    def in_text(self, text: str) -> str:
        """Return a text with each token and each kind of event in it replaced by its name."""
        return _TOKEN.sub(lambda match: KIND_NAMES.get(match[0]) or self.of_token(match[0]), text)

    def _of_code(self, kind: str, code: str) -> str | None:
        for prefix, vocab in _PREFIXED.items():
            if code.startswith(prefix) and (name := self.name(vocab, code.removeprefix(prefix))):
                return name
        for vocab in TOKEN_VOCABS.get(kind, ()):
            if name := self.name(vocab, code) or self._of_parent(vocab, code):
                return name
        return None

    def _of_item(self, kind: str, code: str) -> str | None:
        """Return the name of a code, or of the item in `50912//mg/dL` with its unit."""
        item, _, unit = code.partition("//")
        name = self._of_code(kind, code)
        if name or not unit:
            return name
        return f"{name}, {unit}" if (name := self._of_code(kind, item)) else None

    def _of_parent(self, vocab: str, code: str) -> str | None:
        """Return the name of the nearest code above, followed by the code itself; None if there is none."""
        for length in range(len(code) - 1, _SHORTEST.get(vocab, len(code)) - 1, -1):
            if name := self.name(vocab, code[:length]):
                return f"{name} ({code})"
        return None


NO_NAMES = CodeNames()


def shorten(name: str, width: int = 60) -> str:
    """Return a name of at most `width` characters, cut with an ellipsis: titles of ICD run to 200."""
    return name if len(name) <= width else f"{name[: width - 1].rstrip(' ,')}…"


def _tenth(number: int) -> str:
    return _TENTHS.get(number, f"{number}th tenth")

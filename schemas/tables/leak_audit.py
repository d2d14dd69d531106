"""What the audit of a cohort's features found: suspects, what each is worth to a score, and what was proved; no row."""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.errors import ContractError
from schemas.io.verify import verified

THRESHOLD = 0.01
"""An inflation whose whole interval lies above this is worth a warning."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Measure(_Part):
    """A score with its 95 % interval; None where it is withheld or means nothing, for the reason in `note`."""

    value: float | None
    low: float | None
    high: float | None
    note: str = ""

    def in_words(self, *, with_sign: bool = False) -> str:
        """Return `+0.031 (+0.012 to +0.050)`; the value alone without an interval; a dash where there is none."""
        if self.value is None:
            return "–"
        sign = "+" if with_sign else ""
        value, *ends = (
            f"{number:{sign}.3f}".replace("-", "−")
            for number in (self.value, self.low, self.high)
            if number is not None
        )
        return f"{value} ({' to '.join(ends)})" if ends else value


class Suspect(_Part):
    """Something the features hold that may tell the outcome, and what the AUROC loses without it."""

    name: str
    why: str
    predictions: str  # how many hold it, small counts withheld
    auroc_with: Measure
    auroc_without: Measure
    inflation: Measure  # with minus without
    verdict: str
    warns: bool = False


class Proof(_Part):
    """Something that holds of every prediction, or is an error."""

    name: str
    passed: bool
    message: str


class LeakAudit(_Part):
    """The audit of one cohort, `leak_audit.json`."""

    contract: Literal["leak_audit/1"] = "leak_audit/1"
    cohort: str
    judged: str  # on whom the scores are, in words
    proofs: list[Proof] = []
    looks_ahead: list[str] = []  # what of the eligibility is known only after the prediction, in sentences
    suspects: list[Suspect] = []
    unseen: list[str] = []  # lists of codes that were looked for and are in no prediction
    kinds: list[Suspect] = []  # each kind of event of the index stay as a whole, which no suspicion falls on
    unnamed: int = 0  # suspects found in the data beyond those listed

    @property
    def warnings(self) -> list[str]:
        """Return a sentence for each suspect that is worth a warning."""
        return [f"{suspect.name}: {suspect.verdict}" for suspect in self.suspects if suspect.warns]

    @property
    def failures(self) -> list[str]:
        """Return a sentence for each proof that failed."""
        return [proof.message for proof in self.proofs if not proof.passed]

    @classmethod
    def read(cls, path: Path) -> "LeakAudit":
        """Read an audit.

        Raises:
            ContractError: there is none, or it is no whole one.
        """
        try:
            return cls.model_validate_json(verified(path).read_bytes())
        except FileNotFoundError:
            raise ContractError(f"no file {path}; materialize the asset that writes it first.") from None
        except (ValidationError, json.JSONDecodeError):
            raise ContractError(f"{path}: is no whole leak audit; materialize its asset again.") from None

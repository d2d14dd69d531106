"""The audit of a cohort's features: suspects, the effect of each on the score, and proofs; never a row."""

import json
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from schemas.code_names import CodeNames
from schemas.errors import ContractError
from schemas.io.verify import verified

THRESHOLD = 0.01
"""An inflation whose whole interval is above this value causes a warning."""


class _AuditModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Measure(_AuditModel):
    """A score with its 95 % interval; None if it is withheld or meaningless, for the reason in `note`."""

    value: float | None
    low: float | None
    high: float | None
    note: str = ""

    def in_words(self, *, with_sign: bool = False) -> str:
        """Return `+0.031 (+0.012 to +0.050)`, only the value if there is no interval, or a dash without a value."""
        if self.value is None:
            return "–"
        sign = "+" if with_sign else ""
        value, *ends = (
            f"{number:{sign}.3f}".replace("-", "−")
            for number in (self.value, self.low, self.high)
            if number is not None
        )
        return f"{value} ({' to '.join(ends)})" if ends else value


class Suspect(_AuditModel):
    """Something in the features that may reveal the outcome, and how much AUROC is lost without it."""

    name: str
    why: str
    predictions: str  # number of predictions that have it, small counts withheld
    auroc_with: Measure
    auroc_without: Measure
    inflation: Measure  # with minus without
    verdict: str
    warns: bool = False


class Proof(_AuditModel):
    """A statement that must be true of every prediction; otherwise it is an error."""

    name: str
    passed: bool
    message: str


class LeakAudit(_AuditModel):
    """The audit of one cohort, `leak_audit.json`."""

    contract: Literal["leak_audit/1"] = "leak_audit/1"
    cohort: str
    judged: str  # the patients the scores are about, in words
    proofs: list[Proof] = []
    looks_ahead: list[str] = []  # sentences on eligibility criteria known only after the prediction
    suspects: list[Suspect] = []
    unseen: list[str] = []  # code lists without a match in any prediction
    kinds: list[Suspect] = []  # each kind of event of the index stay as a whole, not under suspicion
    unnamed: int = 0  # suspects beyond those listed

    @property
    def warnings(self) -> list[str]:
        """Return a sentence for each suspect that is worth a warning."""
        return [f"{suspect.name}: {suspect.verdict}" for suspect in self.suspects if suspect.warns]

    @property
    def failures(self) -> list[str]:
        """Return a sentence for each proof that failed."""
        return [proof.message for proof in self.proofs if not proof.passed]

    def in_words(self, names: CodeNames) -> "LeakAudit":
        """Return the audit with the names of codes in place of their tokens."""
        suspects = [
            suspect.model_copy(update={"name": names.in_text(suspect.name)}) for suspect in self.suspects
        ]
        return self.model_copy(update={"suspects": suspects})

    @classmethod
    def read(cls, path: Path) -> "LeakAudit":
        """Read an audit.

        Raises:
            ContractError: the file is missing or invalid.
        """
        try:
            return cls.model_validate_json(verified(path).read_bytes())
        except FileNotFoundError:
            raise ContractError(f"no file {path}; materialize the asset that writes it first.") from None
        except (ValidationError, json.JSONDecodeError):
            raise ContractError(
                f"{path}: this is not a valid leak audit; materialize its asset again."
            ) from None

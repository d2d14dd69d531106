"""Codes that reveal how a stay ended or how long it was; they are assigned after the stay, whatever their time."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class OutcomeCodes:
    """Tokens that reveal the outcome of their stay, given by a pattern of the whole token."""

    name: str
    reason: str
    pattern: str


CODE_LISTS = (
    OutcomeCodes(
        "Do-not-resuscitate order",
        "ordered when death is expected, coded after the stay (Z66; V49.86)",
        r"DX:(Z66|V4986)",
    ),
    OutcomeCodes(
        "Palliative care",
        "begins when no cure is expected, coded after the stay (Z51.5; V66.7)",
        r"DX:(Z515|V667)",
    ),
    OutcomeCodes(
        "Brain death",
        "the outcome itself, as a diagnosis (G93.82; 348.82)",
        r"DX:(G9382|34882)",
    ),
    OutcomeCodes(
        "Cardiac arrest, death of unknown cause",
        "often the diagnosis of a death (I46, R99; 427.5, 798, 799.9)",
        r"DX:(I46\w*|R99|4275|798\w*|7999)",
    ),
    OutcomeCodes(
        "Autopsy, donation",
        "performed after death (CPT 88000 to 88099, 89.8; Z52.89)",
        r"(PR:(880\d\d|898)|DX:Z5289)",
    ),
    OutcomeCodes(
        "Length of a treatment",
        "gives the duration but is dated by the first day (ventilation over 96 hours: 5A1955Z; 96.72)",
        r"PR:(5A1935Z|5A1945Z|5A1955Z|5A09[345]\w\w|5A1D[789]0Z|967[012])",
    ),
    OutcomeCodes(
        "How the stay ended",
        "says that the patient died, or where they were discharged to",
        r"[A-Z]+:.*(?i:died|death|deceased|expired|morgue|autopsy|hospice|discharge).*|PR:9923[89]",
    ),
)
"""Checked for outcomes of the index stay that are predicted before its end."""


def token_ids(codes: OutcomeCodes, tokens: Sequence[str]) -> np.ndarray:
    """Return the ids of a list's tokens; `tokens` are in the order of their ids."""
    whole = re.compile(codes.pattern)
    return np.array([place for place, token in enumerate(tokens) if whole.fullmatch(token)], dtype=np.int64)

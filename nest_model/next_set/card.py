"""The `metrics.json` of one system, as others read it."""

import json
from pathlib import Path
from typing import Any

from schemas.errors import NestError
from schemas.io.verify import verified

FORMAT = "next_basket/1"


def read_card(folder: Path) -> dict[str, Any]:
    """Return the metrics.json that `next-basket` wrote into a folder.

    Raises:
        NestError: there is none, or it is not of this version.
    """
    path = folder / "metrics.json"
    if not path.exists():
        raise NestError(f"{path}: no such file; give the output folder of a finished next-basket run.")
    try:
        card = json.loads(verified(path).read_text())
    except ValueError:
        card = None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise NestError(f"{path}: not written by this version of next-basket; run next-basket again.")
    return card

"""What a run of one system has finished, kept so that a killed run goes on where it was.

It holds people's lists and exact scores of few of them: it stays in the data folder and is not meant for readers.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from nest_model.next_set.list_tables import ranking_of, rankings_table
from nest_model.next_set.questions import Questions, Shop
from nest_model.next_set.ranking import Ranking
from nest_model.next_set.tuning import Trial
from schemas.contract import read_table, write_table
from schemas.io.hashing import file_sha256
from schemas.io.outputs import write_json
from schemas.tables.next_sets import RANKINGS

_KEY_DIGITS = 16
_PACKAGES = ("nest_model", "schemas")
_ROOT = Path(__file__).parents[2]


class State:
    """What a run has finished, below its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def open(cls, out: Path, key: str) -> Self:
        """Return what a run of this key has finished, and remove what runs of other keys left."""
        folder = out / "state" / key[:_KEY_DIGITS]
        folder.mkdir(parents=True, exist_ok=True)
        for other in folder.parent.iterdir():
            if other != folder and re.fullmatch(f"[0-9a-f]{{{_KEY_DIGITS}}}", other.name):
                shutil.rmtree(other)
        return cls(folder)

    def trials(self) -> list[Trial]:
        content = self._read("trials")
        return [Trial(**trial) for trial in content["trials"]] if content else []

    def save_trials(self, trials: list[Trial]) -> None:
        self._write("trials", {"trials": [trial.model_dump() for trial in trials]})

    def ranking(self, seed: int, questions: Questions) -> tuple[Ranking, dict[str, Any]] | None:
        content = self._read(f"seed-{seed}")
        if content is None:
            return None
        table = read_table(self.folder / f"seed-{seed}.parquet", RANKINGS)
        return ranking_of(table, len(questions)), content["finding"]

    def save_ranking(
        self,
        seed: int,
        ranking: Ranking,
        questions: Questions,
        finding: Mapping[str, Any],
        nameable: np.ndarray,
    ) -> None:
        table = rankings_table({seed: ranking}, questions.subject_id)
        write_table(table, self.folder / f"seed-{seed}.parquet", RANKINGS, made_by="next-basket")
        self._write("nameable", {"product_ids": nameable.tolist()})
        self._write(f"seed-{seed}", {"finding": dict(finding)})

    def read_nameable(self) -> np.ndarray:
        content = self._read("nameable")
        return np.array(content["product_ids"] if content else [], dtype=np.int64)

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / f"{name}.json"
        if not path.exists():
            return None
        content: dict[str, Any] = json.loads(path.read_text())
        return content

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        write_json(self.folder / f"{name}.json", dict(content))


def key_of(*parts: Any) -> str:
    """Return a hash of all that a run's result depends on."""
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


@cache
def code_key() -> str:
    """Return a hash of the code that a run can reach, so that no run goes on with what other code left."""
    files = sorted(file for package in _PACKAGES for file in (_ROOT / package).rglob("*.py"))
    return key_of([(str(file.relative_to(_ROOT)), file_sha256(file)) for file in files])


def fingerprint(shop: Shop) -> str:
    """Return a hash of all that a system can see and of what it is asked."""
    digest = hashlib.sha256()
    questions = [part for part in (shop.validation, shop.test) if part is not None]
    parts = [
        shop.learning_data.training,
        shop.learning_data.test_histories,
        *(part.histories.baskets for part in questions),
    ]
    arrays = [getattr(part, field.name) for part in parts for field in fields(part)]
    arrays += [
        array for part in questions for array in (part.histories.query_days, part.truth_offsets, part.truth)
    ]
    for array in arrays:
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()


def backbone_hashes(pretrained_model: Path | None, vocab: Path | None) -> list[str]:
    """Return the hashes of the pretrained model's weights and of its vocabulary."""
    weights = sorted(pretrained_model.glob("*.safetensors")) if pretrained_model else []
    return [file_sha256(path) for path in (*weights, *([vocab] if vocab else []))]

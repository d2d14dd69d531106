"""A synthetic hospital whose outcome depends weakly on one value, with leaks planted into the features."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import yaml

from schemas.cohort import parse_cohort
from schemas.contract import read_table, write_table
from schemas.tables.events import KINDS
from schemas.tables.labels import Features, Task, labels_schema
from schemas.tables.vocab import SPECIALS, VOCAB, content_sha256
from tests.support.commands import ROOT
from tests.support.factories.shards import DAY_US, HOUR_US, set_row, write_shards

PATIENTS, PREVALENCE = 800, 0.2
WORDS = (
    *(f"LAB:{item}_Q{decile}" for item in (1, 2, 3) for decile in range(1, 11)),
    *(f"MED:A0{k}" for k in range(6)),
    *("DX:Z66", "DX:Z515", "DX:G9382", "DX:I10", "PR:5A1955Z", "PR:0DTJ4ZZ", "LAB:9_Q1", "MED:N02AA01"),
    *("ITEM:DISCHARGE//HOSPICE", "ITEM:YES"),
)
TOKENS = (*SPECIALS, *WORDS)


@dataclass
class Stay:
    """The index stay of a patient with one earlier stay; it lasts five days, the prediction is after one day."""

    subject: int
    start: int  # µs
    label: object
    rng: np.random.Generator
    events: list[tuple[str, float, float]] = field(default_factory=list)  # token, hour, hour of availability
    prior_events: list[tuple[str, float, float]] = field(default_factory=list)  # events of the earlier stay
    days_since_prior: float = 100.0
    is_early: bool = False  # the outcome comes before the prediction

    def add(self, token: str, hour: float = 1.0, available_hour: float | None = None) -> None:
        self.events.append((token, hour, hour if available_hour is None else available_hour))


Plant = Callable[[Stay], None]


def write_leaky_hospital(
    root: Path, plant: Plant, *, classes: tuple[str, ...] = (), clock: str = "available_at"
) -> None:
    """Write shards, vocabulary, labels and lock file of a cohort, with a leak planted into each stay."""
    rng = np.random.default_rng(5)
    stays = [_stay(subject, rng, classes) for subject in range(PATIENTS)]
    for stay in stays:
        plant(stay)
    _write_vocab(root / "vocab.parquet")
    sha256 = content_sha256(read_table(root / "vocab.parquet", VOCAB))
    write_shards(root / "seqset", [row for stay in stays for row in _rows(stay)], vocab_sha256=sha256)
    _write_labels(root, stays, classes, clock)


def _stay(subject: int, rng: np.random.Generator, classes: tuple[str, ...]) -> Stay:
    """Draw a stay with a day of events; values of item 1 are slightly higher with the outcome."""
    label = rng.choice(classes) if classes else bool(rng.random() < PREVALENCE)
    stay = Stay(subject, 200 * DAY_US, label, rng)
    for events in (stay.events, stay.prior_events):
        for item in (1, 2, 3):
            for _ in range(rng.integers(1, 4)):
                shift = 2 * (label is True) if item == 1 and events is stay.events else 0
                decile = min(10, int(rng.integers(1, 11)) + shift)
                hour = float(rng.uniform(0, 23))
                events.append((f"LAB:{item}_Q{decile}", hour, hour))
        for _ in range(rng.integers(1, 5)):
            hour = float(rng.uniform(0, 23))
            events.append((f"MED:A0{rng.integers(6)}", hour, hour))
    stay.prior_events.append(("DX:I10", 0.0, 72.0))
    stay.add("LAB:2_Q5", 30.0)  # after the prediction
    return stay


def _rows(stay: Stay) -> list[dict]:
    prior = stay.start - int(stay.days_since_prior * DAY_US)
    rows = []
    for index, (start, events) in enumerate(((prior, stay.prior_events), (stay.start, stay.events))):
        in_order = sorted(events, key=lambda event: event[1])
        members = [
            (
                TOKENS.index(token),
                KINDS.index(token.partition(":")[0]),
                *(start + int(h * HOUR_US) for h in (hour, available_hour)),
            )
            for token, hour, available_hour in in_order
        ]
        row = set_row(
            stay.subject, index, 2 * stay.subject + index, start, members, end_us=start + 5 * DAY_US
        )
        rows.append(
            row
            | {
                "days_since_prior": stay.days_since_prior * index,
                "days_since_first": stay.days_since_prior * index,
            }
        )
    return rows


def _write_vocab(path: Path) -> None:
    table = pa.table(
        {
            "token_id": pa.array(range(len(TOKENS)), pa.uint32()),
            "token": TOKENS,
            "kind": ["SPECIAL" if token in SPECIALS else token.partition(":")[0] for token in TOKENS],
            **{name: pa.nulls(len(TOKENS), VOCAB.field(name).type) for name in ("code", "unit", "parent")},
            **{name: pa.nulls(len(TOKENS), pa.float64()) for name in ("low", "high")},
            "count_train": [1] * len(TOKENS),
        }
    )
    write_table(table, path, VOCAB, made_by="test")


def _write_labels(root: Path, stays: list[Stay], classes: tuple[str, ...], clock: str) -> None:
    kind = "class" if classes else "bool"
    cohort = parse_cohort(ROOT / "assets" / "cohorts" / "mimic_mortality.yaml")
    task = Task(
        cohort=cohort.cohort,
        about=cohort.about,
        label_type=kind,
        classes=classes or ("false", "true"),
        features=Features(clock=clock),
        predict_at="index.start + 24 hours",
        predict_anchor="index.start",
        predict_offset_us=DAY_US,
        cohort_sha256="0" * 64,
    )
    predict_at = [stay.start + DAY_US for stay in stays]
    came = [
        None if stay.label is not True else at - HOUR_US if stay.is_early else at + DAY_US
        for stay, at in zip(stays, predict_at, strict=True)
    ]
    table = pa.table(
        {
            "subject_id": [stay.subject for stay in stays],
            "index_encounter": [2 * stay.subject + 1 for stay in stays],
            "index_start": pa.array([stay.start for stay in stays], pa.timestamp("us")),
            "predict_at": pa.array(predict_at, pa.timestamp("us")),
            "label": pa.array([stay.label for stay in stays], labels_schema(kind).field("label").type),
            "outcome_time": pa.array(came, pa.timestamp("us")),
            "follow_up_days": pa.nulls(len(stays), pa.float64()),
            "split": [("train", "train", "train", "val", "test")[stay.subject % 5] for stay in stays],
        }
    )
    metadata = {"task": task.model_dump_json()}
    write_table(table, root / "labels.parquet", labels_schema(kind), made_by="test", metadata=metadata)
    (root / "cohort.lock.yaml").write_text(yaml.safe_dump({"spec": cohort.normalized()}))

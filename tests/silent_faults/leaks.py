"""Leaks planted into the features, the selector and the labels; the audit must name each."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nest_model.audit import audit
from nest_model.data import history
from nest_model.training.telemetry import NullTelemetry
from schemas.contract import write_table
from schemas.tables.labels import labels_schema
from schemas.tables.leak_audit import LeakAudit
from schemas.tables.seqset import SEQSET
from tests.silent_faults.fault import Check, Findings, Oddity, Sandbox, SilentFault, Use
from tests.silent_faults.leaky_world import Plant, Stay, write_leaky_hospital
from tests.support.factories.shards import rewrite_card

ASSET = "mimic_mortality_leak_audit"
FUTURE = Check(ASSET, "future_changes_nothing")
CLASSES = ("I", "II", "IX")


@cache
def run_audit(clock: str = "available_at", classes: tuple[str, ...] = ()) -> Use:
    """Return a use that audits the synthetic hospital, creating one without a leak if there is none."""

    def use(sandbox: Sandbox) -> Findings:
        root = sandbox.folder / "leaky"
        if not root.exists():
            write_leaky_hospital(root, lambda stay: None, clock=clock, classes=classes)
        paths = {
            "labels": root / "labels.parquet",
            "seqset": root / "seqset",
            "vocab": root / "vocab.parquet",
        }
        audit.run(**paths, out=root / "audit", seed=42, telemetry=NullTelemetry())
        report = LeakAudit.read(root / "audit" / "leak_audit.json")
        checks = {"future_changes_nothing": report.failures, "no_leak_suspected": report.warnings}
        return Findings(
            checks={(ASSET, name) for name, sentences in checks.items() if sentences},
            oddities={ASSET: "\n".join(report.warnings)},
        )

    return use


def leak_fault(
    name: str,
    plant: Plant,
    pattern: str,
    *,
    clock: str = "available_at",
    classes: tuple[str, ...] = (),
    **options: bool,
) -> SilentFault:
    """Return a fault with a leak in the features of each stay, which a warning of the audit must name."""

    def damage(sandbox: Sandbox) -> None:
        write_leaky_hospital(sandbox.folder / "leaky", plant, clock=clock, classes=classes)

    return SilentFault(
        f"leak: {name}", "output", damage, run_audit(clock, classes), Oddity(ASSET, pattern), **options
    )


def plant_code(token: str, *, of_dead: float, of_others: float = 0.0, hour: float = 1.0) -> Plant:
    """Return a plant that adds a token to a share of the stays with the outcome, and of the others."""

    def plant(stay: Stay) -> None:
        if stay.rng.random() < (of_dead if stay.label is True else of_others):
            stay.add(token, hour)

    return plant


def label_token(stay: Stay) -> None:
    stay.add("ITEM:YES" if stay.label is True else "DX:I10")


def no_drugs(stay: Stay) -> None:
    if stay.label is True:
        stay.events = [event for event in stay.events if not event[0].startswith("MED")]


def many_events(stay: Stay) -> None:
    for _ in range(12 * (stay.label is True)):
        stay.add(f"LAB:2_Q{stay.rng.integers(1, 11)}", float(stay.rng.uniform(0, 23)))


def order(stay: Stay) -> None:
    stay.add("PR:0DTJ4ZZ", -1.0 if stay.label is True else 12.0)


def early_hour(stay: Stay) -> None:
    shift = min(hour for _, hour, _ in stay.events) + (2.0 if stay.label is True else 0.0)
    stay.events = [
        (token, hour - shift, available_hour - shift) for token, hour, available_hour in stay.events
    ]


def plant_in_history(stay: Stay) -> None:
    if stay.label is True and stay.rng.random() < 0.6:
        stay.prior_events.append(("LAB:9_Q1", 2.0, 2.0))


def waiting(stay: Stay) -> None:
    stay.days_since_prior = float(stay.rng.uniform(1, 5) if stay.label is True else stay.rng.uniform(40, 150))


def stored_late(stay: Stay) -> None:
    if stay.label is True and stay.rng.random() < 0.6:
        stay.add("LAB:9_Q1", 20.0, available_hour=60.0)


def plant_class_code(stay: Stay) -> None:
    if stay.label == "IX":
        stay.add("PR:0DTJ4ZZ")


def plant_early_outcome(stay: Stay) -> None:
    if stay.label is True and stay.rng.random() < 0.5:
        stay.is_early = True
        stay.add("LAB:1_Q10", 2.0)
        stay.add("LAB:2_Q10", 3.0)
        stay.add("LAB:3_Q10", 4.0)


@contextmanager
def selector_looks_ahead(_: Sandbox) -> Iterator[None]:
    right = history.select

    def select(seqsets: Any, rule: Any, subject: Any, encounter: Any, predict_at_us: np.ndarray) -> Any:
        return right(seqsets, rule, subject, encounter, predict_at_us + 12 * 3_600_000_000)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "select", select)
        yield


def later_stay_first(sandbox: Sandbox) -> None:
    """Number a stay that starts after the index stay before the index stay."""
    write_leaky_hospital(sandbox.folder / "leaky", lambda stay: None)
    file = next((sandbox.folder / "leaky" / "seqset").glob("*.parquet"))
    table = pq.read_table(file)
    start = table["start"].cast(pa.int64()).to_numpy().copy()
    start[::2] += 300 * 86_400_000_000
    later_table = table.set_column(
        table.column_names.index("start"), "start", pa.array(start).cast(pa.timestamp("us"))
    )
    write_table(later_table, file, SEQSET, made_by="test")
    rewrite_card(file)


def label_rows(sandbox: Sandbox, change: Any) -> None:
    write_leaky_hospital(sandbox.folder / "leaky", lambda stay: None)
    file = sandbox.folder / "leaky" / "labels.parquet"
    table = pq.read_table(file)
    task = table.schema.metadata[b"task"].decode()
    write_table(change(table), file, labels_schema("bool"), made_by="test", metadata={"task": task})


def label_in_two_splits(table: pa.Table) -> pa.Table:
    """Also label the stays before the index stays, in another split."""
    earlier_stays = table.set_column(1, "index_encounter", pa.array(np.arange(0, 2 * len(table), 2)))
    start = earlier_stays["index_start"].cast(pa.int64()).to_numpy() - 100 * 86_400_000_000
    for name, shift in (("index_start", 0), ("predict_at", 86_400_000_000)):
        times = pa.array(start + shift).cast(pa.timestamp("us"))
        earlier_stays = earlier_stays.set_column(earlier_stays.column_names.index(name), name, times)
    split = pa.array(["test"] * len(earlier_stays))
    earlier_stays = earlier_stays.set_column(earlier_stays.column_names.index("split"), "split", split)
    return pa.concat_tables([table, earlier_stays], promote_options="permissive")


def duplicate_stays(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 50)])


FAULTS = [
    leak_fault(
        "do-not-resuscitate order on the first day",
        plant_code("DX:Z66", of_dead=0.3, of_others=0.02),
        "Do-not-res",
        is_quick=True,
    ),
    leak_fault(
        "palliative care on the first day",
        plant_code("DX:Z515", of_dead=0.3, of_others=0.03),
        "Palliative care",
    ),
    leak_fault("brain death on the first day", plant_code("DX:G9382", of_dead=0.1), "Brain death"),
    leak_fault(
        "code of ventilation over 96 hours, dated by its first day",
        plant_code("PR:5A1955Z", of_dead=0.3, of_others=0.1),
        "Length of a treatment",
    ),
    leak_fault(
        "where the patient was discharged to, as a token",
        plant_code("ITEM:DISCHARGE//HOSPICE", of_dead=0.4),
        "How the stay ended",
    ),
    leak_fault(
        "test done to the dying alone",
        plant_code("LAB:9_Q1", of_dead=0.5),
        "LAB:9_Q1 in the index stay",
        is_quick=True,
    ),
    leak_fault(
        "drug of the dying, dated back to the first hour",
        plant_code("MED:N02AA01", of_dead=0.5, hour=0.0),
        "MED:N02AA01 in the index stay",
    ),
    leak_fault("the label itself, as a token", label_token, "ITEM:YES in the index stay"),
    leak_fault("no drug written for those who die", no_drugs, "Number of MED events"),
    leak_fault("more events of those who die", many_events, "Number of events in the index stay"),
    leak_fault("order of the events", order, "PR:0DTJ4ZZ comes first"),
    leak_fault("hour of the first event", early_hour, "Hour of the first event"),
    leak_fault("test of the stay before, added later", plant_in_history, "LAB:9_Q1 before it"),
    leak_fault("days since the stay before", waiting, "Days since the stay before"),
    leak_fault(
        "value stored after the prediction, by preset paper",
        stored_late,
        "LAB seen before they were known",
        clock="time",
    ),
    leak_fault(
        "procedure that stands for a class",
        plant_class_code,
        r"PR:0DTJ4ZZ in the index stay",
        classes=CLASSES,
    ),
    leak_fault("dead by the prediction and kept", plant_early_outcome, "The outcome had come"),
    SilentFault("leak: selector looks half a day ahead", "code", selector_looks_ahead, run_audit(), FUTURE),
    SilentFault(
        "leak: later stay numbered before the index stay", "output", later_stay_first, run_audit(), FUTURE
    ),
    SilentFault(
        "leak: patients trained on are tested on by another stay",
        "model",
        partial(label_rows, change=label_in_two_splits),
        run_audit(),
        FUTURE,
    ),
    SilentFault(
        "leak: stays that are predicted twice",
        "output",
        partial(label_rows, change=duplicate_stays),
        run_audit(),
        FUTURE,
    ),
]

"""The leak audit: what it measures and withholds. Detection of planted leaks is tested in tests/silent_faults."""

import re

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from nest_model.audit import audit
from nest_model.audit.code_lists import CODE_LISTS, token_ids
from nest_model.audit.columns import Columns
from nest_model.audit.tell_tales import tell_tales
from nest_model.audit.truncation import count_changed, without_future
from nest_model.data.history import select
from nest_model.data.labels import Labels
from nest_model.data.seqsets import SeqSets
from nest_model.training.telemetry import NullTelemetry
from schemas.contract import write_table
from schemas.errors import ContractError
from schemas.suppress import SMALLEST_SHOWN
from schemas.tables.labels import labels_schema
from schemas.tables.leak_audit import LeakAudit
from tests.silent_faults.leaky_world import Stay, write_leaky_hospital
from tests.support.attacker import Attacker
from tests.support.attrition import write_attrition
from tests.support.factories.shards import DAY_US


def run_audit(root) -> LeakAudit:
    paths = {"labels": root / "labels.parquet", "seqset": root / "seqset", "vocab": root / "vocab.parquet"}
    audit.run(**paths, out=root / "audit", seed=42, telemetry=NullTelemetry())
    return LeakAudit.read(root / "audit" / "leak_audit.json")


def test_correlated_leaks_each_get_a_warning(tmp_path):
    def plant(stay: Stay) -> None:
        if stay.label is True and stay.rng.random() < 0.5:
            stay.add("LAB:9_Q1", 1.0)
            stay.add("MED:N02AA01", 2.0)

    write_leaky_hospital(tmp_path, plant)
    suspects = {suspect.name: suspect for suspect in run_audit(tmp_path).suspects}

    assert suspects["LAB:9_Q1 in the index stay"].warns
    assert suspects["MED:N02AA01 in the index stay"].warns


def test_a_suspect_in_under_eleven_predictions_has_no_count(tmp_path):
    def plant(stay: Stay) -> None:
        if stay.subject in (0, 5, 10):
            stay.add("DX:Z66")

    write_leaky_hospital(tmp_path, plant)
    suspect = run_audit(tmp_path).suspects[0]

    assert suspect.name == "Do-not-resuscitate order"
    assert suspect.warns
    assert suspect.predictions == "< 11"


def test_counts_of_a_suspect_and_its_kind_do_not_subtract_to_few_predictions(tmp_path):
    """Of 640 predictions 80 have the order and 4 another diagnosis: their kind's 84 would say so."""

    def plant(stay: Stay) -> None:
        if stay.subject < 100:
            stay.add("DX:Z66")
        elif 100 <= stay.subject < 105:
            stay.add("DX:I10")

    write_leaky_hospital(tmp_path, plant)
    audit = run_audit(tmp_path)
    counts = {suspect.name: suspect.predictions for suspect in (*audit.suspects, *audit.kinds)}
    assert counts["Do-not-resuscitate order"] == "80"
    attacker = Attacker()
    attacker.see({"order": counts["Do-not-resuscitate order"], "kind": counts["DX of the index stay"]})
    attacker.know_sum("kind", ["order", "other diagnoses"])
    assert attacker.narrowed({"other diagnoses": 4}) == {}


def test_predictions_with_several_suspects_are_not_counted(tmp_path):
    """With the number that has each, and the number that has any, the number that has both would be known."""

    def plant(stay: Stay) -> None:
        if stay.subject < 100:
            stay.add("DX:Z66")
        if 95 <= stay.subject < 200:
            stay.add("DX:Z515")

    write_leaky_hospital(tmp_path, plant)
    counts = {suspect.name: suspect.predictions for suspect in run_audit(tmp_path).suspects}
    attacker = Attacker()
    names = {"order": "Do-not-resuscitate order", "care": "Palliative care"}
    attacker.see({short: counts[name] for short, name in names.items()})
    attacker.see({"any": counts["All of these codes and features together"]})
    attacker.know_sum("order", ["order alone", "both"])
    attacker.know_sum("care", ["care alone", "both"])
    attacker.know_sum("any", ["order alone", "care alone", "both"])
    assert attacker.narrowed({"both": 4}) == {}


def test_counts_that_the_attrition_withholds_are_in_no_sentence_of_an_audit(tmp_path):
    """Five patients were dropped: with the number of predictions, and with all but a few of them, a reader knew it."""

    def plant(stay: Stay) -> None:
        stay.add("LAB:9_Q1", 1.0)
        if stay.subject % 200:
            stay.add("DX:Z66")

    write_leaky_hospital(tmp_path, plant)
    labels = Labels.read(tmp_path / "labels.parquet")
    rows = len(labels)
    scored = int((labels.split != "test").sum())
    with_counts = run_audit(tmp_path)
    write_attrition(tmp_path, rows, dropped=5)
    without_counts = run_audit(tmp_path)

    assert f"Of {rows} predictions" in with_counts.proofs[0].message
    assert with_counts.judged.startswith(f"{scored} predictions")
    assert f"> {scored - SMALLEST_SHOWN}" in {kind.predictions for kind in with_counts.kinds}
    assert "Of a withheld number of predictions" in without_counts.proofs[0].message
    assert without_counts.judged.startswith("A withheld number of predictions of training")
    assert "nearly all" in {kind.predictions for kind in without_counts.kinds}
    text = (tmp_path / "audit" / "leak_audit.json").read_text()
    assert not re.search(rf"\b({rows}|{scored}|{scored - SMALLEST_SHOWN})\b", text)


def test_a_token_of_few_patients_is_not_a_suspect(tmp_path):
    def plant(stay: Stay) -> None:
        if stay.label is True and stay.subject < 40:
            stay.add("LAB:9_Q1")

    write_leaky_hospital(tmp_path, plant)
    assert run_audit(tmp_path).suspects == []


def test_audit_ignores_test_labels(tmp_path):
    def plant(stay: Stay) -> None:
        if stay.label is True and stay.rng.random() < 0.5:
            stay.add("LAB:9_Q1")

    write_leaky_hospital(tmp_path, plant)
    first_audit = run_audit(tmp_path)
    file = tmp_path / "labels.parquet"
    table = pq.read_table(file)
    task = table.schema.metadata[b"task"].decode()
    truth, split = (np.array(table[name].to_pylist()) for name in ("label", "split"))
    flipped_label = truth ^ (split == "test")
    place = table.column_names.index("label")
    metadata = {"task": task}
    write_table(
        table.set_column(place, "label", [flipped_label]),
        file,
        labels_schema("bool"),
        made_by="t",
        metadata=metadata,
    )

    assert run_audit(tmp_path) == first_audit


def test_audit_ignores_events_of_test_patients(tmp_path):
    def plant(stay: Stay) -> None:
        if stay.subject % 5 == 4:  # as `leaky_world` splits
            stay.add("DX:Z66")
            stay.is_early = stay.label is True

    write_leaky_hospital(tmp_path / "without", lambda stay: None)
    write_leaky_hospital(tmp_path / "with", plant)
    assert run_audit(tmp_path / "with") == run_audit(tmp_path / "without")


@pytest.mark.parametrize("clock", ["available_at", "time"])
def test_without_future_removes_later_events(tmp_path, clock):
    write_leaky_hospital(tmp_path, lambda stay: None, clock=clock)
    seqsets, labels = SeqSets.read(tmp_path / "seqset"), Labels.read(tmp_path / "labels.parquet")
    past = without_future(seqsets, np.arange(3), labels.predict_at_us[:3], clock)

    times = past.available_us if clock == "available_at" else past.times_us
    assert past.subjects == 3
    assert times.max() <= labels.predict_at_us[0]
    assert past.events < seqsets.event_offsets[seqsets.subject_offsets[3]]
    assert count_changed(seqsets, labels, seed=0) == (0, len(labels))


def test_count_changed_detects_a_feature_from_the_future(tmp_path, monkeypatch):
    """Examples are the total number of stays, or whether the index stay had ended."""
    from nest_model.data import history as selector

    write_leaky_hospital(tmp_path, lambda stay: None)
    seqsets, labels = SeqSets.read(tmp_path / "seqset"), Labels.read(tmp_path / "labels.parquet")

    def peeking(seqsets, rule, subject_id, encounter_id, predict_at_us):
        has_ended = seqsets.end_us[seqsets.locate(subject_id, encounter_id)] > 0
        later = np.where(has_ended, predict_at_us, predict_at_us - DAY_US // 2)
        return select(seqsets, rule, subject_id, encounter_id, later)

    monkeypatch.setattr(selector, "select", peeking)
    num_changed, num_checked = count_changed(seqsets, labels, seed=0)
    assert num_changed > 0.9 * num_checked


def test_chance_makes_no_tell_tale():
    rng = np.random.default_rng(0)
    matrix = sparse.csr_matrix((rng.random((2000, 300)) < 0.02).astype(np.float32))
    columns = Columns(matrix, np.arange(300), tuple(map(str, range(300))), ("LAB",) * 150)
    truth = rng.random((2000, 1)) < 0.1
    assert tell_tales(columns, truth, np.arange(2000)) == []


def test_codes_are_found_by_the_whole_token():
    tokens = ["DX:Z66", "DX:Z668", "DX:Z515", "PR:5A1955Z", "PR:5A1D00Z", "LAB:9672_Q1"]
    tokens += ["ITEM:DISCHARGE//HOME", "DX:I462"]
    ids_by_list = {codes.name: token_ids(codes, tokens).tolist() for codes in CODE_LISTS}
    assert {name: ids for name, ids in ids_by_list.items() if ids} == {
        "Do-not-resuscitate order": [0],
        "Palliative care": [2],
        "Cardiac arrest, death of unknown cause": [7],
        "Length of a treatment": [3],
        "How the stay ended": [6],
    }


def test_a_missing_or_truncated_audit_is_refused(tmp_path):
    with pytest.raises(ContractError, match="materialize the asset"):
        LeakAudit.read(tmp_path / "none.json")
    (tmp_path / "half.json").write_text('{"contract": "leak_audit/1", "coh')
    with pytest.raises(ContractError, match="not a valid leak audit"):
        LeakAudit.read(tmp_path / "half.json")

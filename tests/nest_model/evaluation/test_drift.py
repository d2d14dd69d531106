"""Drift of tokens and scores by cases worked by hand, and the outcomes of scored stays."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nest_model.evaluation import drift
from schemas.contract import write_table
from schemas.tables.labels import labels_schema
from tests.support.factories.predictions import write_predictions

PATIENTS = 200
PRESENT = "a" * 64
REFERENCE = np.arange(1_000) / 1_000


def test_divergence_is_zero_for_equal_and_one_bit_for_disjoint_tokens():
    assert drift.jensen_shannon(np.array([2, 6]), np.array([1, 3])) == 0
    assert drift.jensen_shannon(np.array([5, 0]), np.array([0, 7])) == 1
    # p = (1, 0), q = (½, ½): ½ log2(4/3) + ½ (½ log2(2/3) + ½ log2 2) = 0.3113 bits
    assert drift.jensen_shannon(np.array([4, 0]), np.array([2, 2])) == pytest.approx(0.31128, abs=1e-5)


def test_unknown_share_counts_the_token_of_unknown_codes():
    assert drift.unknown_share(np.array([0, 3, 1, 0, 8])) == 0.25


def test_stability_index_is_zero_for_the_reference_and_as_worked_by_hand_for_a_shift():
    assert drift.stability_index(REFERENCE, REFERENCE) == pytest.approx(0, abs=1e-9)
    upper_half = REFERENCE[
        500:
    ]  # five bins of a fifth each, five of none, which count as half a patient of 500
    by_hand = 5 * (0.1 - 0.001) * np.log(0.1 / 0.001) + 5 * (0.1 - 0.2) * np.log(0.1 / 0.2)
    assert drift.stability_index(REFERENCE, upper_half) == pytest.approx(by_hand)


def write_scores(folder: Path, day: str, score: float, model_sha256: str = PRESENT) -> None:
    folder.mkdir(exist_ok=True)
    write_predictions(
        folder / f"{day}.parquet", subject_id=range(PATIENTS), encounter_id=range(PATIENTS),
        label=[None] * PATIENTS, probability=[[score]] * PATIENTS, split="new", model_sha256=model_sha256,
    )  # fmt: skip


def write_outcomes(file: Path, with_outcome: int) -> None:
    rows = range(50, 50 + PATIENTS)  # of the stays scored, the last 150
    columns = {
        "subject_id": pa.array(rows, pa.int64()),
        "index_encounter": pa.array(rows, pa.int64()),
        "label": [row < 50 + with_outcome for row in rows],
        "split": ["train"] * PATIENTS,
    }
    schema = labels_schema("bool")
    times = pa.array([0] * PATIENTS, pa.timestamp("us"))
    table = pa.table(
        {
            field.name: columns.get(
                field.name,
                times.cast(field.type)
                if pa.types.is_timestamp(field.type)
                else pa.nulls(PATIENTS, field.type),
            )
            for field in schema
        }
    )
    write_table(table, file, schema, made_by="the test")


def test_calibration_compares_last_scores_with_the_outcomes_known_by_now(tmp_path: Path):
    write_scores(tmp_path / "scores", "2030-01-01", 0.9)
    write_scores(tmp_path / "scores", "2030-01-02", 0.25)
    scores = drift.new_scores(tmp_path / "scores", PRESENT)
    assert len(scores) == PATIENTS
    write_outcomes(tmp_path / "labels.parquet", with_outcome=30)
    outcome = drift.calibration(scores, tmp_path / "labels.parquet")
    assert outcome is not None
    assert (outcome.patients, outcome.observed, outcome.predicted) == (150, 0.2, 0.25)


def test_new_scores_are_those_of_one_model_and_say_since_when_it_scores(tmp_path: Path):
    folder = tmp_path / "scores"
    for day, score, model in (("01", 0.9, "b" * 64), ("02", 0.5, PRESENT), ("03", 0.25, PRESENT)):
        write_scores(folder, f"2030-01-{day}", score, model)
    scores = drift.new_scores(folder, PRESENT)
    assert (scores.since, scores.days_of_others, set(scores.score)) == ("2030-01-02", 1, {0.25})
    nothing = drift.new_scores(folder, "c" * 64)
    assert (len(nothing), nothing.since, nothing.days_of_others) == (0, "", 3)


def test_calibration_is_withheld_where_ten_patients_have_the_outcome(tmp_path: Path):
    write_scores(tmp_path / "scores", "2030-01-01", 0.9)
    write_outcomes(tmp_path / "labels.parquet", with_outcome=10)
    assert (
        drift.calibration(drift.new_scores(tmp_path / "scores", PRESENT), tmp_path / "labels.parquet") is None
    )


def test_token_counts_add_up_over_shards(tmp_path: Path):
    for name, sets in (("a", [[2, 2], [3]]), ("b", [[1]])):
        pq.write_table(
            pa.table({"tokens": pa.array(sets, pa.list_(pa.uint32()))}), tmp_path / f"{name}.parquet"
        )
    assert drift.token_counts(tmp_path, 5).tolist() == [0, 1, 2, 1, 0]

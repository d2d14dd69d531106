"""The monitor's page: what it says of tokens and scores, what it warns of, and what it withholds."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from nest_model.report.monitor import MonitorPage
from schemas.contract import write_table
from schemas.io.hashing import file_sha256
from schemas.layout import Layout
from schemas.tables.events import SUBJECTS
from tests.support.attacker import Attacker
from tests.support.factories.predictions import write_labels, write_layout, write_predictions

COHORT = "mimic_mortality"
ROWS = 200


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """Return a folder with a cohort's model, of whose scores each test writes its own."""
    layout = write_layout(tmp_path / "mimic", cohorts={COHORT: "bool"})
    weights_of(layout).write_bytes(b"of the present model")
    return layout


def weights_of(layout: Layout) -> Path:
    return layout.model(f"{COHORT}_nest") / "model.safetensors"


def write_scores(layout: Layout, day: str, probability: np.ndarray, model_sha256: str | None = None) -> None:
    file = layout.scores(COHORT) / f"{day}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = range(len(probability))
    write_predictions(
        file, subject_id=rows, encounter_id=rows, label=[None] * len(rows), probability=probability[:, None],
        split="new", model_sha256=model_sha256 or file_sha256(weights_of(layout)),
    )  # fmt: skip


def page_of_scores(layout: Layout, cohort: str = COHORT) -> tuple[MonitorPage, dict[str, str]]:
    page = MonitorPage()
    page.add_scores(layout, cohort)
    (row,) = page.rows
    return page, row


def test_page_says_since_when_the_present_model_scores_and_which_labels_are_missing(layout):
    write_scores(layout, "2030-01-01", np.full(ROWS, 0.5), "of an earlier model")
    write_scores(layout, "2030-01-02", np.full(ROWS, 0.5))
    page, row = page_of_scores(layout)
    assert (row["scored"], row["since"], row["days of earlier models"]) == ("200", "2030-01-02", "1")
    assert (row["observed"], row["predicted"]) == ("–", "–")
    assert page.notes == [
        f"{layout.labels(COHORT)}: no such file, so that outcomes are not compared; materialize {COHORT}_labels."
    ]
    (fault,) = page.faults
    assert "scores have shifted" in fault


def test_page_has_a_row_of_dashes_for_a_cohort_without_scores(layout):
    page, row = page_of_scores(layout, "mimic_readmission")
    assert row.pop("cohort") == "mimic_readmission"
    assert set(row.values()) == {"–"}
    assert (page.faults, page.notes, page.shares) == ([], [], {})


def test_page_compares_outcomes_once_the_cohort_has_labels(layout):
    write_labels(layout, COHORT)
    scores = layout.scores(COHORT)
    scores.mkdir(parents=True)
    labels = pq.read_table(layout.labels(COHORT))
    write_predictions(
        scores / "2030-01-01.parquet", subject_id=labels["subject_id"], encounter_id=labels["index_encounter"],
        label=[None] * len(labels), probability=np.full((len(labels), 1), 0.25), split="new",
        model_sha256=file_sha256(weights_of(layout)),
    )  # fmt: skip
    page, row = page_of_scores(layout)
    assert page.notes == []
    observed = np.mean(labels["label"].to_pylist())
    assert (row["observed"], row["predicted"]) == (f"{observed:.1%}", "25.0%")


def test_shares_of_deciles_reveal_no_small_count(layout):
    """One decile withheld would be what the others lack of all scores."""
    reference = np.linspace(0.01, 0.99, 300)
    scores = np.concatenate(
        [np.full(22, edge) for edge in np.quantile(reference, np.arange(0.05, 0.95, 0.1))]
    )
    scores = np.concatenate([scores, np.full(4, 0.999)])
    page, row = MonitorPage(), {"cohort": COHORT}
    page._add_drift(row, reference, scores)
    shares = [share for _, share in page.shares[COHORT]]
    assert shares[9] is None
    attacker = Attacker()
    parts = [f"decile {place}" for place in range(10)]
    attacker.see({"all": str(len(scores))})
    attacker.see(dict(zip(parts, ["" if share is None else "22" for share in shares], strict=True)))
    attacker.know_sum("all", parts)
    assert attacker.narrowed({"decile 9": 4}) == {}


def test_deciles_are_withheld_below_110_scores(layout):
    for rows, has_shares in ((109, False), (110, True)):
        write_scores(layout, "2030-01-01", np.linspace(0, 1, rows))
        page, row = page_of_scores(layout)
        assert (bool(page.shares), row["stability index"] != "–") == (has_shares, has_shares)


def test_tokens_within_the_limits_are_shown_and_not_warned_of():
    page = MonitorPage()
    page.add_tokens(np.array([0, 4, 48, 48]), np.array([0, 2, 24, 24]))
    assert page.tokens == {
        "unknown_tokens_share": 0.04,
        "unknown_tokens_share_before": 0.04,
        "token_divergence_bits": 0,
    }
    assert page.faults == []


def test_unknown_tokens_are_warned_of_above_both_limits():
    by_share = {}
    for unknown_before in (2, 40):
        page = MonitorPage()
        page.add_tokens(np.array([0, unknown_before, 500, 500]), np.array([0, 60, 470, 470]))
        by_share[unknown_before] = page.faults
    assert by_share == {2: ["6.0% of the new patients' tokens are unknown."], 40: []}


def test_tokens_of_another_distribution_are_warned_of():
    page = MonitorPage()
    page.add_tokens(np.array([0, 0, 9, 0]), np.array([0, 0, 0, 7]))
    assert page.faults == ["Tokens differ by 1.00 bits (limit 0.1)."]


def test_a_night_without_tokens_says_nothing_of_them():
    page = MonitorPage()
    page.add_tokens(np.array([0, 1, 2]), np.zeros(3, np.int64))
    assert (page.tokens, page.faults) == ({}, [])


def test_tokens_of_ten_patients_are_withheld(tmp_path: Path):
    """No shard is here: reading one would raise."""
    layout = Layout(tmp_path / "mimic")
    people = {
        "subject_id": range(10), "birth_date": pa.nulls(10, pa.timestamp("us")),
        "death_date": pa.nulls(10, pa.timestamp("us")), "sex": ["F"] * 10, "split": ["test"] * 10,
        "pretrain_split": ["test"] * 10,
    }  # fmt: skip
    layout.new_patients.root.mkdir(parents=True)
    write_table(pa.table(people), layout.new_patients.subjects, SUBJECTS, made_by="the test")
    page = MonitorPage.read(layout, [COHORT])
    assert (page.patients, page.tokens) == (10, {})
    assert [row["cohort"] for row in page.rows] == [COHORT]

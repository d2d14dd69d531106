"""The comparison of systems: paired by user, chosen by validation users, silent about few users."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nest_model.next_set import page
from nest_model.next_set.card import FORMAT
from nest_model.next_set.compare import ALL_METRICS, compare, read_rows
from nest_model.next_set.report import write_next_basket_report
from nest_model.training.telemetry import NullTelemetry
from schemas.contract import write_table
from schemas.errors import NestError
from schemas.tables.next_sets import NEXT_SET_SCORES
from tests.support.decimals import assert_three_decimals
from tests.support.factories import predictions as made_up

USERS = 40
TRAITS = dict.fromkeys(
    ("transductive", "ranks_only_repeats", "modified", "uses_query_time", "has_random_start"), False
)


def write_system(
    root: Path,
    name: str,
    ndcg: Sequence[Sequence[float]],
    *,
    validation: float | None = 0.5,
    baskets: np.ndarray | None = None,
    filled_lists: Sequence[float] | None = None,
    **card: Any,
) -> Path:
    """Write what `next-basket` leaves of a system with these NDCG and recall, [seeds][users]."""
    folder, users = root / name, len(ndcg[0])
    parts = [(seed, False, values) for seed, values in enumerate(ndcg)]
    parts += [(0, True, filled_lists)] if filled_lists is not None else []
    tables = []
    for seed, is_filled, values in parts:
        columns: dict[str, Any] = dict.fromkeys(ALL_METRICS, np.array(values, dtype=np.float32))
        columns |= {
            "seed": np.full(users, seed),
            "is_filled": np.full(users, is_filled),
            "subject_id": np.arange(users) + 1,
            "baskets": np.arange(users) % 7 + 1 if baskets is None else baskets,
            "truths": np.full(users, 4),
            "repeat_truths": np.arange(users) % 5,
        }
        tables.append(pa.table(columns))
    write_table(pa.concat_tables(tables), folder / "scores.parquet", NEXT_SET_SCORES, made_by="test")
    summary = {"tie_share": 0.1, "distinct_products": 9}
    content = {
        "format": FORMAT, "system": name, "title": name.upper(), "about": f"About {name}.", "is_control": False,
        "traits": TRAITS,
        "options": {"k": 3}, "points": 1, "protocol": "official", "target": "held_out", "query_time": "given",
        "seeds": list(range(len(ndcg))), "users": str(users), "left_out": {"no_target": "0"}, "products": 50,
        "unnamed_share": 0.0, "saw_labels": False, "is_sample": False, "reads_backbone": False,
        "shop_sha256": "one", "validation_ndcg": validation,
        "results": {"own": summary, "filled": summary},
    }  # fmt: skip
    trials = {"trials": [{"options": {"k": 3}, "ndcg": 0.5, "recall": 0.4}]}
    cost = {"cpu_seconds": 2.0, "peak_mib": 300}
    for file, values_of_file in (("metrics", content | card), ("trials", trials), ("cost", cost)):
        (folder / f"{file}.json").write_text(json.dumps(values_of_file))
    return folder


def compared(root: Path) -> dict[str, Any]:
    systems = {path.name: path for path in root.iterdir()}
    return compare(*read_rows(systems)) | {"pretraining": None}


def row_of(metrics: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    (row,) = [row for row in metrics["rows"] if row["name"] == name]
    return row


def test_difference_is_paired_by_user(tmp_path: Path):
    base = np.linspace(0.1, 0.9, USERS)
    write_system(tmp_path, "blend", [base.tolist()])
    write_system(tmp_path, "tifuknn", [(base + 0.05).tolist()])
    less = row_of(compared(tmp_path), "tifuknn")["less_yardstick"]["ndcg"]
    # users differ widely, but each by the same: the interval of the difference has no width
    assert less["value"] == less["low"] == less["high"] == pytest.approx(0.05, abs=1e-6)
    assert (less["better"], less["equal"], less["worse"]) == (1, 0, 0)


def test_row_is_the_mean_over_seeds_with_their_deviation(tmp_path: Path):
    write_system(tmp_path, "blend", [[0.2] * USERS])
    write_system(tmp_path, "recanet", [[0.2] * USERS, [0.4] * USERS])
    score = row_of(compared(tmp_path), "recanet")["scores"]["ndcg"]
    assert score["value"] == pytest.approx(0.3, abs=1e-6)
    assert score["sd"] == pytest.approx(np.std([0.2, 0.4], ddof=1), abs=1e-6)
    assert score["seeds"] == 2


def test_validation_users_choose_yardstick_and_best_nest(tmp_path: Path):
    write_system(tmp_path, "blend", [[0.9] * USERS], validation=0.2)
    write_system(tmp_path, "gp_topfreq", [[0.1] * USERS], validation=0.3)
    write_system(tmp_path, "nest_copy", [[0.1] * USERS], validation=0.3)
    write_system(tmp_path, "nest_hybrid", [[0.9] * USERS], validation=0.2)
    write_system(tmp_path, "lightgbm", [[0.5] * USERS])
    metrics = compared(tmp_path)
    choices = {"yardstick": "gp_topfreq", "best_nest": "nest_copy", "winner": "lightgbm"}
    assert metrics["chosen_on_validation"] == choices
    (best_nest,) = [one for one in metrics["comparisons"] if one["second"] == "lightgbm"]
    assert best_nest["first"] == "nest_copy"
    assert best_nest["ndcg"]["value"] == pytest.approx(-0.4, abs=1e-6)


def test_blend_is_the_yardstick_without_validation_users(tmp_path: Path):
    write_system(tmp_path, "p_topfreq", [[0.5] * USERS], validation=None)
    write_system(tmp_path, "blend", [[0.4] * USERS], validation=None)
    assert compared(tmp_path)["chosen_on_validation"]["yardstick"] == "blend"


def test_filled_lists_are_a_row_of_their_own(tmp_path: Path):
    write_system(tmp_path, "p_topfreq", [[0.2] * USERS], filled_lists=[0.3] * USERS)
    names = {row["name"]: row["scores"]["recall"]["value"] for row in compared(tmp_path)["rows"]}
    assert names == {"p_topfreq": pytest.approx(0.2), "p_topfreq_filled": pytest.approx(0.3)}


@pytest.mark.parametrize("fault", ["other users", "other histories", "target", "query_time", "shop_sha256"])
def test_systems_of_another_question_are_refused(fault: str, tmp_path: Path):
    write_system(tmp_path, "blend", [[0.2] * USERS])
    if fault == "other users":
        write_system(tmp_path, "tifuknn", [[0.2] * (USERS - 1)])
    elif fault == "other histories":
        write_system(tmp_path, "tifuknn", [[0.2] * USERS], baskets=np.full(USERS, 3))
    else:
        write_system(tmp_path, "tifuknn", [[0.2] * USERS], **{fault: "another"})
    with pytest.raises(NestError, match="TIFUKNN answers other users or another question"):
        compared(tmp_path)


def test_nothing_is_scored_under_eleven_users(tmp_path: Path):
    for name in ("blend", "tifuknn", "nest", "bert"):
        write_system(tmp_path, name, [[0.2] * 10])
    metrics = compared(tmp_path)
    scores = [score for row in metrics["rows"] for score in row["scores"].values()]
    scores += [one[metric] for one in metrics["comparisons"] for metric in ("recall", "ndcg")]
    values = [score["value"] if isinstance(score, dict) else score for score in scores]
    assert len(values) > 40
    assert set(values) == {None}
    assert metrics["groups"] == metrics["ceilings"] == {}
    assert page.all_pictures(metrics) == {}
    assert "0.200" not in page.render(metrics).split('<h2 id="tuning">')[0].split("</style>")[1]


def test_group_of_few_users_is_left_out_with_all_sizes(tmp_path: Path):
    baskets = np.array([1] * 30 + [5] * 3 + [9] * 7)
    write_system(tmp_path, "blend", [[0.2] * USERS], baskets=baskets)
    groups = compared(tmp_path)["groups"]
    assert [group["label"] for group in groups["history"]] == ["under 2"]
    assert all("users" not in group for group in groups["history"])
    assert all(group["recall"]["blend"] == pytest.approx(0.2) for group in groups["history"])


def test_share_of_few_users_is_withheld_with_the_others(tmp_path: Path):
    better = np.full(USERS, 0.2)
    better[:3] += 0.1
    write_system(tmp_path, "blend", [[0.2] * USERS])
    write_system(tmp_path, "tifuknn", [better.tolist()])
    less = row_of(compared(tmp_path), "tifuknn")["less_yardstick"]["ndcg"]
    assert (less["better"], less["equal"], less["worse"]) == (None, None, None)


def test_foreign_metrics_are_refused(tmp_path: Path):
    (write_system(tmp_path, "blend", [[0.2] * USERS]) / "metrics.json").write_text('{"auroc": 0.7}')
    with pytest.raises(NestError, match="not written by this version of next-basket; run next-basket again"):
        compared(tmp_path)


def test_histories_of_one_length_are_one_group(tmp_path: Path):
    write_system(tmp_path, "blend", [[0.2] * USERS], baskets=np.full(USERS, 5))
    assert [group["label"] for group in compared(tmp_path)["groups"]["history"]] == ["any"]


def test_group_names_neither_the_shortest_nor_the_longest_history(tmp_path: Path):
    baskets = np.repeat([2, 5, 9, 14, 371], [1, 13, 13, 12, 1])
    write_system(tmp_path, "blend", [[0.2] * USERS], baskets=baskets)
    labels = " ".join(group["label"] for group in compared(tmp_path)["groups"]["history"])
    assert "371" not in labels
    assert "2 " not in labels


def sentences_of(tmp_path: Path, **systems: tuple[float | np.ndarray, float | None]) -> list[str]:
    """Return the page's first sentences on systems with these test and validation scores."""
    for name, (ndcg, validation) in systems.items():
        values = np.broadcast_to(ndcg, USERS).tolist()
        write_system(tmp_path, name, [values], validation=validation, is_control=name == "nest_features")
    return page.sentences(compared(tmp_path))


def test_what_nest_adds_is_said_with_the_interval_of_the_difference(tmp_path: Path):
    nest, winner = sentences_of(tmp_path, blend=(0.2, 0.2), lightgbm=(0.4, 0.4), nest_hybrid=(0.3, 0.3))
    lead = "NEST surely adds nothing: the NDCG@10 of its best form, NEST_HYBRID, less LIGHTGBM's is −0.100"
    assert nest.startswith(lead)
    assert winner.startswith("LIGHTGBM recommends best")


def test_difference_within_chance_is_not_said_to_be_sure(tmp_path: Path):
    noisy = 0.3 + np.where(np.arange(USERS) % 2, 0.25, -0.24)
    nest, _ = sentences_of(
        tmp_path, blend=(0.2, 0.2), lightgbm=(0.2, 0.25), nest_features=(0.3, 0.3), nest_hybrid=(noisy, 0.3)
    )
    assert nest.startswith("It is not sure that NEST adds anything")
    assert "less NEST_FEATURES's is +0.00" in nest
    assert "and less LIGHTGBM's is +0.10" in nest


def test_winner_is_the_choice_of_the_validation_users(tmp_path: Path):
    nest, first = sentences_of(tmp_path, blend=(0.2, 0.2), lightgbm=(0.35, 0.3), nest_hybrid=(0.3, 0.4))
    assert first.startswith("NEST_HYBRID recommends best (the validation users' choice): NDCG@10 0.300")
    assert "On the test users LIGHTGBM is higher (0.350), which nobody could know before." in first
    assert "It is surely better than the yardstick, BLEND: NDCG@10 +0.100" in first
    assert nest.startswith("NEST surely adds nothing")


def test_what_nest_surely_adds_comes_after_the_winner(tmp_path: Path):
    winner, nest = sentences_of(tmp_path, blend=(0.2, 0.2), lightgbm=(0.3, 0.3), nest_hybrid=(0.4, 0.4))
    assert winner.startswith("NEST_HYBRID recommends best")
    assert nest.startswith(
        "NEST adds something: the NDCG@10 of its best form, NEST_HYBRID, less LIGHTGBM's is +0.100"
    )


def test_own_filled_list_is_no_other_system(tmp_path: Path):
    write_system(tmp_path, "blend", [[0.2] * USERS], validation=0.2)
    write_system(tmp_path, "recanet", [[0.3] * USERS], validation=0.3, filled_lists=[0.35] * USERS)
    (only,) = page.sentences(compared(tmp_path))
    assert only.startswith("RECANET recommends best (the validation users' choice)")
    assert "higher" not in only


def test_page_says_where_nobody_chose(tmp_path: Path):
    write_system(tmp_path, "blend", [[0.2] * USERS], validation=None)
    write_system(tmp_path, "nest_hybrid", [[0.3] * USERS], validation=None)
    write_system(tmp_path, "lightgbm", [[0.4] * USERS], validation=None)
    html = page.render(compared(tmp_path))
    assert "no test user chose anything" not in html
    assert "the form of it that is named first" in html


def test_winner_without_validation_users_is_said_to_be_chosen_after_the_fact(tmp_path: Path):
    (only,) = sentences_of(tmp_path, blend=(0.2, None), tifuknn=(0.3, None))
    assert only.startswith("TIFUKNN recommends best (chosen after the fact, by the users it is scored on)")
    assert "surely" not in only


def test_yardstick_leads_the_table(tmp_path: Path):
    write_system(tmp_path, "blend", [[0.9] * USERS], validation=0.2)
    write_system(tmp_path, "p_topfreq", [[0.1] * USERS], validation=0.3)
    names = [row["name"] for row in page.yardstick_first(compared(tmp_path))]
    assert names == ["p_topfreq", "blend"]


def test_winner_is_never_a_control(tmp_path: Path):
    write_system(tmp_path, "blend", [[0.2] * USERS])
    write_system(tmp_path, "control_no_user", [[0.9] * USERS], validation=0.9, is_control=True)
    (only,) = page.sentences(compared(tmp_path))
    assert only.startswith("BLEND recommends best")
    assert "nothing tried here was chosen over counting" in only


def test_report_writes_a_page_with_every_row_trial_and_the_paper_s_table(tmp_path: Path):
    systems = tmp_path / "systems"
    write_system(systems, "blend", [[0.2] * USERS])
    write_system(systems, "tifuknn", [np.linspace(0, 1, USERS).tolist()] * 2)
    write_system(systems, "control_no_user", [[0.1] * USERS], is_control=True)
    write_next_basket_report(systems=systems, out=tmp_path / "out", telemetry=NullTelemetry())
    assert_three_decimals(json.loads((tmp_path / "out" / "metrics.json").read_text()))
    html = (tmp_path / "out" / "report.html").read_text()
    for words in (
        "BLEND",
        "TIFUKNN",
        "CONTROL_NO_USER",
        "BLEND: 1 trial<",
        "0.4301",
        "No cell of it can be compared",
        "<svg",
    ):
        assert words in html
    assert json.loads((tmp_path / "out" / "metrics.json").read_text())["k"] == 10


def test_page_has_the_pretraining_beside_its_guesses_if_there_is_one(tmp_path: Path):
    write_system(tmp_path / "systems", "blend", [[0.2] * USERS])
    made_up.write_pretraining(tmp_path / "nest")
    for name, pretrained in (("with", tmp_path / "nest"), ("without", None)):
        write_next_basket_report(
            systems=tmp_path / "systems",
            pretrained=pretrained,
            out=tmp_path / name,
            telemetry=NullTelemetry(),
        )
    with_section, without = ((tmp_path / name / "report.html").read_text() for name in ("with", "without"))
    assert "#pretraining" not in without
    assert 'id="pretraining"' not in without
    section = with_section.partition('<section id="pretraining">')[2].partition("</section>")[0]
    assert "MSM is at 2.5 nats a set, where a constant guess has 2.4: 0.1 worse." in section
    assert "&lt; 11 validation users" in section
    assert "patients" not in section
    assert re.findall(r"Recall@10 at \[CLS\] ↑</th>\s*<td[^>]*>([\d.]+)<", section) == ["0.1230"]
    metrics = json.loads((tmp_path / "with" / "metrics.json").read_text())
    assert metrics["pretraining"]["counts"] == {"train_patients": "630", "val_patients": "< 11"}


def test_report_without_a_system_says_what_to_run(tmp_path: Path):
    with pytest.raises(NestError, match="no finished system; run `python -m nest_model next-basket` first"):
        write_next_basket_report(systems=tmp_path, out=tmp_path / "out", telemetry=NullTelemetry())


def test_text_table_names_every_row_and_the_yardstick(tmp_path: Path):
    write_system(tmp_path, "blend", [[0.2] * USERS])
    write_system(tmp_path, "tifuknn", [[0.3] * USERS])
    text = page.text_table(compared(tmp_path))
    assert "BLEND (yardstick)" in text
    assert "TIFUKNN" in text
    assert "+0.100" in text

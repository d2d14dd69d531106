import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nest_model.data.predictions import Predictions, read_predictions
from nest_model.evaluation.bootstrap import Resamples
from nest_model.evaluation.metrics import counts as counts_of_rows
from nest_model.evaluation.subgroups import age_band, attributes, race_group, score_groups
from tests.support.attacker import Attacker
from tests.support.factories import predictions as made_up


@pytest.mark.parametrize(
    ("age_years", "band"),
    [
        (0, "under 1"),
        (1, "1–4"),
        (4.99, "1–4"),
        (5, "5–11"),
        (12, "12–17"),
        (17.9, "12–17"),
        (18, "18–44"),
        (44.99, "18–44"),
        (45, "45–64"),
        (80, "80 and over"),
    ],
)
def test_an_age_on_a_bound_falls_in_the_older_band(age_years, band):
    assert age_band(age_years) == band


def test_unknown_age_and_race_are_groups():
    assert age_band(None) == race_group(None) == "not known"


@pytest.mark.parametrize(
    ("race", "group"),
    [
        ("WHITE - RUSSIAN", "White"),
        ("BLACK/CAPE VERDEAN", "Black"),
        ("HISPANIC/LATINO - CUBAN", "Hispanic"),
        ("SOUTH AMERICAN", "Hispanic"),
        ("ASIAN - CHINESE", "Asian"),
        ("PORTUGUESE", "other"),
        ("UNABLE TO OBTAIN", "not known"),
    ],
)
def test_the_many_values_of_race_fall_into_few_groups(race, group):
    assert race_group(race) == group


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    layout = made_up.write_layout(
        tmp_path_factory.mktemp("made_up"), subjects=500, cohorts={"mimic_mortality": "bool"}
    )
    return layout, read_predictions(layout.report("mimic_mortality_nest") / "predictions.parquet").of("test")


def test_attributes_follow_the_order_of_the_rows(world):
    layout, test = world
    order = np.random.default_rng(0).permutation(len(test))
    groups_in_order = attributes(layout.subjects, layout.encounters, test.subject_id, test.encounter_id)
    groups_in_new_order = attributes(
        layout.subjects, layout.encounters, test.subject_id[order], test.encounter_id[order]
    )
    for name, groups in groups_in_order.items():
        assert [groups[k] for k in order] == groups_in_new_order[name]
        assert len(set(groups)) > 1


def test_a_group_under_eleven_positives_has_no_score_and_no_count(world):
    _, test = world
    positives = np.flatnonzero(test.truth[:, 0])[:10]
    groups = np.array(["large"] * len(test), dtype=object)
    groups[positives] = "small"
    groups[np.flatnonzero(~test.truth[:, 0])[:30]] = "small"

    large, small = score_groups(test, {"Ward": groups}, seed=42)

    assert small["auroc"]["value"] is None
    assert small["auroc"]["note"] == "withheld: under 20 patients with the outcome, or under 11 without"
    assert small["gap"]["value"] is large["gap"]["value"] is None
    assert large["reference"] == small["reference"] == "large"
    assert not small["positives"].isdigit()
    assert large["auroc"]["value"] > 0.5
    assert not large["positives"].isdigit()  # the total minus this count would disclose the 10


def predictions_and_groups(*columns) -> tuple[Predictions, np.ndarray]:
    """Return one model's test rows from (subject, group, truth, probability), and each row's group."""
    subject, group, truth, probability = (np.array(column) for column in zip(*columns, strict=True))
    predictions = made_up.predictions_of(truth, probability, subject_id=subject)
    return predictions, group


def ward(name, first_subject, above, below, negatives):
    """Return one row per patient, positives above and below all negatives; AUROC is above / (above + below)."""
    risks = [0.9] * above + [0.1] * below + [0.5] * negatives
    truth = [True] * (above + below) + [False] * negatives
    return [(first_subject + k, name, *row) for k, row in enumerate(zip(truth, risks, strict=True))]


def auroc_by_pairs(truth, risk):
    """Return the share of ordered pairs, with ties as one half: AUROC by its definition."""
    gaps = risk[truth][:, None] - risk[~truth]
    return ((gaps > 0) + (gaps == 0) / 2).mean()


def test_gap_to_the_largest_group_resamples_patients_jointly():
    rows = ward("north", 0, 30, 10, 60) + ward("south", 1000, 12, 12, 30)
    rows += [(k, "south", truth, risk) for k, (_, _, truth, risk) in enumerate(rows[:40])]  # in both wards
    test, group = predictions_and_groups(*rows)
    north, south = score_groups(test, {"Ward": group}, seed=42)
    assert north["auroc"]["value"] == 0.75  # 30 of 40 above
    assert south["auroc"]["value"] == 42 / 64
    assert south["gap"]["value"] == round(42 / 64 - 0.75, 6)
    assert north["gap"]["value"] is None
    assert south["reference"] == north["reference"] == "north"

    resamples, gaps = Resamples.of(test.subject_id, seed=42), []
    for draw in resamples.draws:  # a patient's rows are repeated as often as the patient was drawn
        times = draw[np.searchsorted(resamples.subjects, test.subject_id)]
        aurocs = {}
        for name in ("north", "south"):
            row_places = np.repeat(np.arange(len(group)), times * (group == name))
            aurocs[name] = auroc_by_pairs(test.truth[row_places, 0], test.probability[row_places, 0])
        gaps.append(aurocs["south"] - aurocs["north"])
    assert (south["gap"]["low"], south["gap"]["high"]) == pytest.approx(
        tuple(np.percentile(gaps, [2.5, 97.5])), abs=1e-6
    )


def test_gap_and_interval_are_zero_when_groups_have_equal_patients():
    rows = ward("morning", 0, 20, 10, 40)
    test, group = predictions_and_groups(*rows, *((subject, "evening", *row) for subject, _, *row in rows))
    _, second = score_groups(test, {"Ward": group}, seed=42)
    assert (second["gap"]["value"], second["gap"]["low"], second["gap"]["high"]) == (0, 0, 0)


@pytest.mark.parametrize(("positives", "is_shown"), [(19, False), (20, True)])
def test_a_group_needs_twenty_positives(positives, is_shown):
    test, group = predictions_and_groups(
        *ward("large", 0, 30, 10, 60), *ward("small", 1000, positives, 0, 40)
    )
    _, small = score_groups(test, {"Ward": group}, seed=42)
    assert (small["auroc"]["value"] is not None) == (small["gap"]["value"] is not None) == is_shown
    assert ("withheld" in small["auroc"]["note"]) != is_shown


def test_the_unknown_are_no_group_to_compare_with():
    test, group = predictions_and_groups(*ward("not known", 0, 60, 20, 90), *ward("F", 1000, 25, 5, 40))
    scores = score_groups(test, {"Sex": group}, seed=42)
    assert [score["reference"] for score in scores] == ["F", "F"]
    assert scores[1]["gap"]["value"] == round(0.75 - 25 / 30, 6)


def test_a_group_with_few_negatives_is_withheld(world):
    _, test = world
    groups = np.where(test.truth[:, 0], "sick", "well").astype(object)
    groups[np.flatnonzero(~test.truth[:, 0])[:4]] = "sick"
    for group in score_groups(test, {"Ward": groups}, seed=42):
        assert not (group["rows"].isdigit() and group["positives"].isdigit()), group["group"]
        assert group["auroc"]["value"] is None


def test_the_unknown_come_last_and_ages_rise(world):
    _, test = world
    groups = np.resize(["not known", "80 and over", "18–44", "45–64"], len(test)).astype(object)
    names = [group["group"] for group in score_groups(test, {"Age": groups}, seed=42)]
    assert names == ["18–44", "45–64", "80 and over", "not known"]


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 13), st.integers(0, 60)),
            st.one_of(st.integers(0, 13), st.integers(0, 60)),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_small_groups_cannot_be_derived_from_the_test_rows(counts):
    rows = [row for k, (yes, no) in enumerate(counts) for row in ward(f"ward {k}", 1000 * k, yes, 0, no)]
    if not rows:
        return
    test, group = predictions_and_groups(*rows)
    scores, attacker, truth = score_groups(test, {"Ward": group}, seed=42), Attacker(), {}
    for name, (yes, no) in zip((f"ward {k}" for k in range(len(counts))), counts, strict=True):
        truth |= {f"{name} rows": yes + no, f"{name} positives": yes, f"{name} negatives": no}
    for score in scores:
        name = score["group"]
        attacker.see({f"{name} rows": score["rows"], f"{name} positives": score["positives"]})
        attacker.know_sum(f"{name} rows", [f"{name} positives", f"{name} negatives"])
        if score["auroc"]["value"] is not None:  # a score reveals these minimums
            attacker.see({"least positives": "20", "least negatives": "11"})
            attacker.know_order("least positives", f"{name} positives")
            attacker.know_order("least negatives", f"{name} negatives")
    suppressed_counts = counts_of_rows(test)
    attacker.see({name: str(suppressed_counts[name]) for name in ("rows", "positives")})
    attacker.know_sum("rows", ["positives", "negatives"])
    for count_name in ("rows", "positives", "negatives"):
        attacker.know_sum(count_name, [f"{score['group']} {count_name}" for score in scores])
    existing = {name: count for name, count in truth.items() if name.rpartition(" ")[0] in set(group)}
    assert attacker.narrowed(existing) == {}


def stays(rows, patients):
    """Return the rows distributed over this number of patients."""
    first = rows[0][0]
    return [(first + k % patients, *row[1:]) for k, row in enumerate(rows)]


@pytest.mark.parametrize(("patients", "is_shown"), [(19, False), (20, True)])
def test_a_group_of_many_rows_and_few_patients_has_no_score(patients, is_shown):
    sick, well = ward("small", 1000, 40, 0, 0), ward("small", 2000, 0, 0, 60)
    test, group = predictions_and_groups(*ward("large", 0, 60, 10, 60), *stays(sick, patients), *well)
    small = score_groups(test, {"Ward": group}, seed=42)[1]
    assert (small["auroc"]["value"] is not None) == is_shown


@pytest.mark.parametrize("side", [True, False])
def test_counts_of_a_group_with_ten_patients_of_a_kind_are_withheld(side):
    sick, well = ward("small", 1000, 40, 0, 0), ward("small", 2000, 0, 0, 60)
    sick, well = (stays(rows, 10 if is_few else 40) for rows, is_few in ((sick, side), (well, not side)))
    test, group = predictions_and_groups(
        *ward("large", 0, 60, 10, 60), *ward("other", 5000, 30, 5, 50), *sick, *well
    )
    scores = {score["group"]: score for score in score_groups(test, {"Ward": group}, seed=42)}
    assert not scores["small"]["rows"].isdigit()
    assert not scores["small"]["positives"].isdigit()
    assert [score["rows"].isdigit() for score in scores.values()].count(
        False
    ) == 2  # otherwise the sum would disclose it
    assert scores["small"]["auroc"]["value"] is None

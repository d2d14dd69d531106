import numpy as np
import pytest

from nest_model.predictions import read_predictions
from nest_model.subgroups import age_band, attributes, race_group, score_groups
from tests.nest_model import made_up


@pytest.mark.parametrize(
    ("age_years", "band"),
    [(17.9, "under 18"), (18, "18–44"), (44.99, "18–44"), (45, "45–64"), (80, "80 and over")],
)
def test_an_age_on_a_bound_falls_in_the_older_band(age_years, band):
    assert age_band(age_years) == band


def test_an_age_that_is_not_known_is_a_group_of_its_own():
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


def test_every_row_finds_its_patient_and_its_stay_in_their_own_order(world):
    layout, test = world
    shuffled = np.random.default_rng(0).permutation(len(test))
    straight = attributes(layout.subjects, layout.encounters, test.subject_id, test.encounter_id)
    mixed = attributes(
        layout.subjects, layout.encounters, test.subject_id[shuffled], test.encounter_id[shuffled]
    )
    for name, groups in straight.items():
        assert [groups[k] for k in shuffled] == mixed[name]
        assert len(set(groups)) > 1


def test_a_group_under_eleven_positives_has_no_score_and_no_count(world):
    _, test = world
    few = np.flatnonzero(test.truth[:, 0])[:10]
    groups = np.array(["large"] * len(test), dtype=object)
    groups[few] = "small"
    groups[np.flatnonzero(~test.truth[:, 0])[:30]] = "small"

    large, small = score_groups(test, {"Ward": groups}, seed=42)

    assert small["auroc"]["value"] is None
    assert small["auroc"]["note"] == "too few to show"
    assert not small["positives"].isdigit()
    assert large["auroc"]["value"] > 0.5
    assert not large["positives"].isdigit()  # with the total it would give the 10 away


def test_a_group_nearly_all_positive_does_not_give_its_negatives_away(world):
    _, test = world
    groups = np.where(test.truth[:, 0], "sick", "well").astype(object)
    groups[np.flatnonzero(~test.truth[:, 0])[:4]] = "sick"
    for group in score_groups(test, {"Ward": groups}, seed=42):
        assert not (group["rows"].isdigit() and group["positives"].isdigit()), group["group"]
        assert group["auroc"]["value"] is None


def test_the_unknown_come_last_and_ages_rise(world):
    _, test = world
    groups = np.resize(["not known", "80 and over", "18–44", "45–64"], len(test)).astype(object)
    found = [group["group"] for group in score_groups(test, {"Age": groups}, seed=42)]
    assert found == ["18–44", "45–64", "80 and over", "not known"]

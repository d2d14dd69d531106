"""Conditions made of others, attributes of patients and stays, and cohorts inside cohorts."""

from random import Random

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.cohorts import write_labels
from pipelines.cohorts.derive import derive
from pipelines.cohorts.tables import Tables
from schemas.cohort import Cohort, CohortError, parse_cohort, parse_text
from schemas.cohort.english import in_english
from schemas.cohort.look_ahead import look_aheads
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.support.cohort_tables import DAY, DAY_ZERO, stay, subject, write
from tests.support.examples import examples
from tests.support.one_patient import BASE, INDEX, LAST, T, event_at, fulfils, labels, parse
from tests.support.random_cohorts import spec, world
from tests.support.reference_cohorts_sql import CohortSql

YES, NO = "index_alive", {"event": "heart", "before": "predict_at"}


@pytest.mark.parametrize(
    ("condition", "is_met"),
    [
        ({"any_of": [NO, YES]}, True),
        ({"any_of": [NO, NO]}, False),
        ({"all_of": [YES, YES]}, True),
        ({"all_of": [YES, NO]}, False),
        ({"at_least": 2, "of": [YES, NO, YES]}, True),
        ({"at_least": 2, "of": [YES, NO, NO]}, False),
        ({"not": NO}, True),
        ({"not": YES}, False),
        ({"not": {"any_of": [NO, {"all_of": [YES, NO]}]}}, True),
    ],
    ids=str,
)
def test_combination_holds_as_its_words_say(condition, is_met):
    assert fulfils(condition) is is_met


def test_combination_is_one_row_of_the_attrition_table():
    cohort = parse({"require": [{"it": {"any_of": [NO, YES]}}]})
    tables = Tables(*(table.lazy() for table in world(Random(1))), cohort.codes)
    steps = derive(cohort, tables, PRESETS["default"]).steps
    assert [step.step for step in steps][2:] == ["it", "no outcome by predict_at"]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("{any_of: [index_alive]}", "require.it: needs a list of two conditions or more"),
        ("{any_of: index_alive}", "require.it.any_of: 'index_alive' is not a list, e.g. [a, b]"),
        (
            "{at_least: 3, of: [index_alive, index_alive]}",
            "require.it: 'of' has 2 conditions, fewer than 'at_least' asks for",
        ),
        ("{of: [index_alive, index_alive]}", "require.it: key 'at_least' is missing"),
        (
            "{not: {event: hart, before: predict_at}}",
            "require.it.not.event: there is no code list named 'hart'",
        ),
        ("{any_of: [index_alive, {evnt: heart}]}", "require.it.any_of: 'evnt' is not a condition"),
        (
            "{not: {not: {not: {not: index_alive}}}}",
            "require.it: conditions lie more than 3 deep in one another",
        ),
        ("{index_age: [2 years, 1 year]}", "require.it: 'age' is empty"),
        ("{index_is: {sexes: F}}", "require.it.index_is: unknown key 'sexes'; did you mean 'sex'?"),
    ],
)
def test_fault_in_a_combination_names_line_and_key(condition, message):
    text = yaml.safe_dump(BASE, sort_keys=False).replace("codes:", f"require:\n- it: {condition}\ncodes:")
    with pytest.raises(CohortError) as error:
        parse_text(text, file="c.yaml")
    (line,) = str(error.value).split("\n")
    assert line.startswith(f"c.yaml:5: {message}")


EARLIER = {"event": "heart", "before": "index.start - 1 day"}
EARLY = {"predict_at": "index.start", "outcome": {"died": True, "within": "30 days"}}


@pytest.mark.parametrize(
    ("condition", "is_ahead"),
    [
        ({"any_of": [NO, {"any_encounter": {}, "after": "predict_at"}]}, True),
        ({"not": "index_alive"}, True),
        ({"any_of": [EARLIER, {"not": EARLIER}]}, False),
        ({"index_is": {"discharge_status": "HOME"}}, True),
        ({"index_is": {"with": "heart"}}, True),
        (
            {"index_is": {"sex": "F", "admission_type": "URGENT", "race": "WHITE", "insurance": "Other"}},
            False,
        ),
        ({"index_age": ["18 years", "65 years"]}, False),
    ],
    ids=str,
)
def test_look_ahead_is_seen_through_combinations_and_attributes(condition, is_ahead):
    changes = EARLY | {"require": [{"it": condition}]}
    warnings = parse(changes).warnings()
    assert any("'it' looks past the prediction" in line for line in warnings) is is_ahead


@pytest.mark.parametrize(
    ("condition", "is_ahead"),
    [
        ({"event": "heart", "before": "predict_at"}, True),
        ({"no_event": "heart", "before": "predict_at"}, True),
        ({"no_event": "heart", "before": "index.start"}, True),
        ({"no_event": "heart", "before": "predict_at - 12 hours"}, True),
        ({"no_event": "heart", "before": "predict_at - 13 hours"}, False),
        ({"not": {"event": "heart", "before": "index.start - 1 hour"}}, False),
        ({"event": "drug", "before": "predict_at"}, False),
    ],
    ids=str,
)
def test_codes_of_the_stay_look_ahead_only_where_the_file_says_so(condition, is_ahead):
    """Elsewhere they are cut, although they are dated in the stay, see the next test."""
    codes = BASE["codes"] | {"drug": {"atc": ["A10*"]}}
    changes = {"codes": codes, "require": [{"it": condition}, {"stay": {"index_longer_than": "12 hours"}}]}
    early = changes | {"predict_at": "index.start + 12 hours"}
    for looks_ahead in ((), ("it",)):
        cohort = parse(early | {"looks_ahead": list(looks_ahead)} if looks_ahead else early)
        assert not any("looks past" in line for line in cohort.warnings())
        assert ("it" in look_aheads(cohort)) is (is_ahead and bool(looks_ahead))
        assert any("has not ended" in line for line in in_english(cohort)) is (is_ahead and not looks_ahead)
    assert not any("looks past" in line for line in parse(changes).warnings())
    assert not any("has not ended" in line for line in in_english(parse(changes)))


@pytest.mark.parametrize("combination", [lambda part: part, lambda part: {"all_of": [part, part]}])
@pytest.mark.parametrize(("word", "of_others"), [("event", False), ("no_event", True)])
def test_codes_of_the_index_stay_count_once_they_are_known(combination, word, of_others):
    """They are dated at its start, and known at its end; those of an earlier stay are known by then."""
    condition = combination({word: "heart", "before": "predict_at"})
    still_there = {"stay": {"index_longer_than": "12 hours"}}
    changes = EARLY | {"predict_at": "index.start + 12 hours", "require": [{"it": condition}, still_there]}
    own = event_at(DAY_ZERO) | {"available_at": T}
    for preset, looks_ahead, is_index in (
        ("default", {}, of_others),
        ("default", {"looks_ahead": "it"}, not of_others),
        ("paper", {}, not of_others),
    ):
        index_stays = labels(changes | looks_ahead, [INDEX, LAST], [own], preset=preset)
        assert (1 in index_stays) is is_index
    earlier = stay(7, DAY_ZERO - 9 * DAY, DAY_ZERO - 8 * DAY)
    before = event_at(DAY_ZERO - 9 * DAY, of_stay=7) | {"available_at": DAY_ZERO - 8 * DAY}
    assert (1 in labels(changes, [earlier, INDEX, LAST], [before])) is not of_others


@pytest.mark.parametrize(("preset", "is_warned"), [("default", False), ("paper", True)])
def test_preset_that_counts_codes_when_they_are_dated_is_a_warning(preset, is_warned, tmp_path):
    layout = Layout(tmp_path / "mimic")
    write(layout, [subject(1)], [INDEX, LAST], [event_at(DAY_ZERO)])
    card = write_labels(parse(EARLY | {"require": [{"it": NO}]}), layout, PRESETS[preset])
    assert any("'it' looks past the prediction under the preset paper" in line for line in card.warnings) is (
        is_warned
    )


def test_first_event_ever_looks_ahead_before_the_stay_ends():
    first = {"outcome": {"any_event": "heart", "first_ever": True, "within": "1 year"}}
    assert any("'outcome' looks past the prediction" in line for line in parse(EARLY | first).warnings())
    assert not any("looks past" in line for line in parse(first).warnings())


@pytest.mark.parametrize(
    ("attributes", "is_met"),
    [
        ({"sex": "F"}, True),
        ({"sex": ["M", "U"]}, False),
        ({"admission_type": ["URGENT", "ELECTIVE"]}, True),
        ({"admission_type": "URGENT", "insurance": "Private"}, False),
        ({"race": "ASIAN"}, False),
        ({"discharge_status": "HOME"}, True),
    ],
    ids=str,
)
def test_attributes_select_the_index_as_filter_and_as_condition(attributes, is_met):
    index = INDEX | {"admission_type": "URGENT", "insurance": "Medicare", "discharge_status": "HOME"}
    assert fulfils({"index_is": attributes}, (index, LAST)) is is_met
    assert fulfils("index_alive", (index, LAST), index={"encounter": attributes}) is is_met


def test_age_as_a_condition_includes_the_lower_bound_and_excludes_the_upper():
    birthday = DAY_ZERO.replace(year=2140, month=7, day=1)  # the fortieth
    index = INDEX | {"start": birthday, "end": birthday + DAY}
    assert fulfils({"index_age": ["40 years", "50 years"]}, (index,))
    assert not fulfils({"index_age": ["30 years", "40 years"]}, (index,))


def test_value_that_no_encounter_has_is_a_warning_with_the_values_that_exist(tmp_path):
    layout, people = Layout(tmp_path / "mimic"), range(1, 13)
    stays = [stay(of, DAY_ZERO, T, of=of) | {"admission_type": "URGENT"} for of in people]
    rare = stay(99, T + DAY, T + 2 * DAY, of=1) | {"admission_type": "URGENTLY RARE"}
    write(layout, [subject(of) for of in people], [*stays, rare], [event_at(T, of_stay=1)])
    require = [{"it": {"any_of": [NO, {"index_is": {"admission_type": ["URGENT", "URGNT"]}}]}}]
    card = write_labels(parse({"require": require}), layout, PRESETS["default"])
    message = "'URGNT' matches no encounter; the values that exist are URGENT"
    warnings = [line for line in card.warnings if "matches no encounter" in line]
    assert warnings == [f"require.it.any_of.index_is.admission_type: {message}"]


def test_column_without_values_is_refused_with_its_line(tmp_path):
    layout = Layout(tmp_path / "mimic")
    write(layout, [subject(1)], [INDEX], [event_at(T)])
    cohort = parse({"require": [{"it": {"not": {"index_is": {"race": "A"}}}}]})
    with pytest.raises(
        CohortError, match=r"c.yaml:\d+: require.it.not.index_is.race: every encounter's race is"
    ):
        write_labels(cohort, layout, PRESETS["default"])


SENTENCES = {
    "not one of them": (
        {"not": {"any_of": ["index_alive", NO]}},
        "it is not so that ((the patient leaves it alive) or (there is a code of heart by the prediction))",
    ),
    "two of three": (
        {"at_least": 2, "of": ["index_alive", NO, {"index_is": {"sex": "F", "admission_type": ["A", "B"]}}]},
        "at least 2 of these hold: (the patient leaves it alive), (there is a code of heart by the prediction), "
        "(it is an encounter with admission type A or B and sex F)",
    ),
    "old": (
        {"index_age": ["75 years", "130 years"]},
        "it starts at an age from 75 years to under 130 years",
    ),
    "last": (
        {"lab": "heart", "between": ["1 g", "2 g"], "which": "last", "before": "predict_at"},
        "the last value of heart known by the prediction is from 1 g to 2 g",
    ),
    "often": (
        {
            "lab": "heart",
            "above": "2 g",
            "times": "3 in 1 day",
            "after": "index.start",
            "before": "predict_at",
        },
        "there are 3 values of heart above 2 g within 1 day of one another, taken after the start of the index "
        "encounter and known by the prediction",
    ),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_condition_in_english(name):
    condition, sentence = SENTENCES[name]
    lines = in_english(parse({"require": [{name: condition}]}))
    assert f"  - {name}: {sentence}" in lines


# --- a cohort inside a cohort


def file(folder, name, **changes):
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(BASE | {"cohort": name} | changes, sort_keys=False))
    return path


def inside(name):
    return [{"it": {"in_cohort": name}}]


@given(seed=st.integers(0, 2**32))
@settings(max_examples=examples(6), deadline=None)
def test_members_of_random_cohorts_agree_with_sql(seed, tmp_path_factory):
    random, folder = Random(seed), tmp_path_factory.mktemp("cohorts")
    tables, rules = world(random), PRESETS["default"]
    for name, require in (("inner", []), ("outer", inside("inner"))):
        random_spec = spec(random)
        file(folder, name, **random_spec | {"cohort": name, "require": [*random_spec["require"], *require]})
    cohort = parse_cohort(folder / "outer.yaml")
    inner = CohortSql(cohort.inner["inner"].normalized(), *tables, rules.clock)
    outer = CohortSql(cohort.normalized(), *tables, rules.clock, members={"inner": inner.index_ids})
    labels = derive(cohort, Tables(*(table.lazy() for table in tables), cohort.codes), rules)
    assert [
        (step.step, step.index_rows, step.patients, step.dropped) for step in labels.steps
    ] == outer.attrition
    assert labels.rows.rows() == outer.labels


def test_hash_changes_with_the_inner_cohort(tmp_path):
    file(tmp_path, "inner")
    outer = file(tmp_path, "outer", require=inside("inner"))
    before = parse_cohort(outer).sha256
    file(tmp_path, "inner", index={"encounter": {}, "keep": "first"})
    assert parse_cohort(outer).sha256 != before


def test_circle_of_cohorts_is_refused_with_its_names(tmp_path):
    first = file(tmp_path, "a", require=inside("b"))
    file(tmp_path, "b", require=[{"it": {"not": {"in_cohort": "c"}}}])
    file(tmp_path, "c", require=inside("a"))
    with pytest.raises(
        CohortError, match=r"a.yaml:\d+: require.it.in_cohort: .* in a circle: a → b → c → a$"
    ):
        parse_cohort(first)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cohort": "other"}, "inner.yaml is the cohort 'other'; give the file and its cohort one name"),
        ({"source": "meds"}, "'inner' is about meds and not mimic"),
        ({"predict_at": "birth"}, "'inner' has faults: predict_at: 'birth' is not a prediction time"),
    ],
)
def test_inner_cohort_that_cannot_be_used_says_why(tmp_path, changes, message):
    file(tmp_path, "inner", **changes)
    with pytest.raises(CohortError) as error:
        parse_cohort(file(tmp_path, "outer", require=inside("inner")))
    assert f"require.it.in_cohort: {message}" in str(error.value)


def test_missing_inner_cohort_suggests_the_nearest_file(tmp_path):
    file(tmp_path, "inner")
    with pytest.raises(
        CohortError, match=r"no file iner.yaml in the folder of this file; did you mean 'inner'\?"
    ):
        parse_cohort(file(tmp_path, "outer", require=inside("iner")))


def test_cohort_known_only_later_looks_ahead(tmp_path):
    file(
        tmp_path,
        "later",
        require=[{"again": {"any_encounter": {}, "after": "index.end"}}],
        looks_ahead="again",
    )
    file(tmp_path, "early", **EARLY, index={"encounter": {}})
    severity = {
        "lab_class": "heart",
        "classes": [{"low": {"below": 7}}],
        "otherwise": "no",
        "within": "1 day",
    }
    file(tmp_path, "classes", outcome=severity)
    for name, is_ahead in (("later", True), ("early", False), ("classes", False)):
        warnings = parse_cohort(file(tmp_path, "outer", require=inside(name))).warnings()
        assert any("looks past the prediction" in line for line in warnings) is is_ahead


def test_lock_file_describes_the_inner_cohort_too(tmp_path):
    layout = Layout(tmp_path / "mimic")
    write(layout, [subject(1)], [INDEX, LAST], [event_at(T)])
    file(tmp_path, "inner", index={"encounter": {}, "keep": "first"})
    cohort = parse_cohort(file(tmp_path, "outer", require=inside("inner")))
    assert write_labels(cohort, layout, PRESETS["default"]).counts["rows"] == 1
    lock = yaml.safe_load((layout.cohort("outer") / "cohort.lock.yaml").read_text())
    assert Cohort.of_lock(lock).sha256 == cohort.sha256 == lock["spec_sha256"]
    assert "Index encounters of inner: each patient's first encounter that has ended." in in_english(cohort)


def test_english_says_when_an_inner_cohort_predicts_at_another_time(tmp_path):
    file(tmp_path, "inner", **EARLY)
    lines = in_english(parse_cohort(file(tmp_path, "outer", require=inside("inner"))))
    moment = "with the prediction at the start of the index encounter"
    assert f"Index encounters of inner: every encounter that has ended, {moment}." in lines

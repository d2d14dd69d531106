"""Tests that each expectation fails on its own fault, and on no other."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from schemas import expectations
from schemas.contract import read_table, write_table
from schemas.expectations import Suite, validation
from schemas.expectations.suite import one_of
from schemas.expectations.validation import RuleOutcome, validate
from schemas.sources import MIMIC
from schemas.tables.seqset import SEQSET
from schemas.tables.vocab import SPECIALS
from tests.support.tiny_layout import COHORT, DAY, START, Row, broken, mortality, tables, write

Change = Callable[[list[Row]], object]
SUITES = {**expectations.TABLE_SUITES, "labels": lambda layout: expectations.labels(layout, COHORT)}


def set_values(*names_and_values: object, row: int = 0) -> Change:
    """Return a change that sets columns of one row: name, value, name, value …"""
    pairs = dict(zip(names_and_values[::2], names_and_values[1::2], strict=True))

    def change(rows: list[Row]) -> None:
        rows[row].update(pairs)

    return change


def set_column(name: str, value: object) -> Change:
    return lambda rows: [row.update({name: value}) for row in rows]


def shift(name: str, by: timedelta, row: int = 0) -> Change:
    def change(rows: list[Row]) -> None:
        rows[row][name] += by

    return change


def set_list_item(name: str, place: int, value: object, row: int = 0) -> Change:
    def change(rows: list[Row]) -> None:
        rows[row][name] = [value if at == place else old for at, old in enumerate(rows[row][name])]

    return change


DX, MED, LAB, PR = range(4)
LISTS = ("tokens", "kinds", "hours", "times", "available")
FIRST_DECILE, RARE = 8, -1
DAYS = {"days_since_prior_fits_the_starts", "days_since_first_fits_the_starts"}


def flat_deciles(rows: list[Row]) -> None:
    """Make deciles 5 to 9 empty, five of the eight between two cuts, so that most values fall into few deciles."""
    equal_cuts(rows, 5)


def equal_cuts(rows: list[Row], first_empty: int) -> None:
    """Make all cuts from the lower one of decile `first_empty` equal, as if one value were common."""
    value = rows[FIRST_DECILE + first_empty - 1]["low"]
    for row in rows[FIRST_DECILE + first_empty - 1 : FIRST_DECILE + 10]:
        row["low"] = value
        row["high"] = None if row is rows[FIRST_DECILE + 9] else value


def empty_sets(rows: list[Row]) -> None:
    for row in rows[:4]:
        row.update({name: [] for name in LISTS})


def reorder_set(*places: int) -> Change:
    """Return a change that reorders the members of the first set, in all lists."""
    return lambda rows: rows[0].update({name: [rows[0][name][place] for place in places] for name in LISTS})


def second_stays_first(rows: list[Row]) -> None:
    """Swap the two sets of the first subject."""
    rows[0]["set_index"], rows[1]["set_index"] = 1, 0
    rows[0], rows[1] = rows[1], rows[0]


ROWS_OF_A_SUBJECT = {"subjects": 1, "encounters": 2, "events": 8, "seqset": 2, "labels": 2}
# each fault is applied to a different subject, so that a suite runs once for all of them
FAULTS_OF_ONE_SUBJECT: list[tuple[str, Change, set[str]]] = [
    ("subjects", set_values("subject_id", 2), {"subject_id_is_unique"}),
    ("subjects", set_values("split", "holdout"), {"split_is_one_of_its_values"}),
    ("subjects", set_values("pretrain_split", "none"), {"pretrain_split_is_one_of_its_values"}),
    ("subjects", set_values("sex", "female"), {"sex_is_one_of_its_values"}),
    ("subjects", set_values("sex", None), {"sex_is_given"}),
    ("subjects", set_values("birth_date", None), {"birth_date_is_given"}),
    (
        "subjects",
        set_values("split", "test", "pretrain_split", "train"),
        {"tested_subject_is_not_trained_on"},
    ),
    ("subjects", set_values("death_date", datetime(2000, 1, 1)), {"death_date_is_not_before_birth_date"}),
    ("encounters", set_values("encounter_id", 11), {"encounter_id_is_unique"}),
    ("encounters", shift("end", -4 * DAY), {"end_is_after_start"}),
    ("encounters", set_values("subject_id", 999), {"subject_is_known"}),
    ("encounters", set_values("death_time", datetime(1900, 1, 1)), {"death_time_is_not_before_start"}),
    ("encounters", set_values("end", None), {"end_is_given", "end_is_given_but_for_a_few"}),
    ("encounters", set_values("age_years", -1.0), {"age_years_is_in_range"}),
    ("encounters", set_values("age_years", None), {"age_years_is_given"}),
    ("encounters", set_values("start", datetime(1753, 1, 1)), {"start_is_plausible"}),
    ("events", set_values("kind", "XX"), {"kind_is_one_of_its_values"}),
    ("events", set_values("vocab", "itemid"), {"vocab_fits_kind", "laboratory_item_has_value"}),
    ("events", set_values("code", " heparin", row=MED), {"code_is_trimmed_and_not_empty"}),
    ("events", set_values("code", "I10.9"), {"icd_code_is_bare"}),
    ("events", set_values("value", float("nan"), row=LAB), {"value_is_finite"}),
    ("events", set_values("value", None, row=LAB), {"laboratory_item_has_value"}),
    (
        "events",
        shift("available_at", -3 * DAY, row=PR),
        {"available_at_is_not_before_time", "procedure_code_is_known_from_the_end_on"},
    ),
    ("events", shift("available_at", -DAY, row=PR), {"procedure_code_is_known_from_the_end_on"}),
    ("events", shift("available_at", -DAY), {"diagnosis_is_known_from_the_end_on"}),
    ("events", set_values("subject_id", 2), {"encounter_is_known_and_of_its_subject"}),
    ("events", set_values("encounter_id", 999), {"encounter_is_known_and_of_its_subject"}),
    ("events", set_values("subject_id", 999, "encounter_id", None), {"subject_is_known"}),
    ("events", set_values("time", datetime(1900, 1, 1) - DAY), {"time_is_plausible"}),
    (
        "seqset",
        set_values("set_index", 0, row=1),
        {"subject_id_and_set_index_is_unique", "set_index_counts_from_0", "shard_is_sorted"},
    ),
    ("seqset", set_values("set_index", 2, row=1), {"set_index_counts_from_0"}),
    (
        "seqset",
        set_values("days_since_prior", -1.0),
        {"days_since_prior_is_in_range", "days_since_prior_fits_the_starts"},
    ),
    ("seqset", set_values("days_since_prior", 5.0, row=1), {"days_since_prior_fits_the_starts"}),
    ("seqset", set_values("days_since_first", 5.0, row=1), {"days_since_first_fits_the_starts"}),
    ("seqset", set_values("flags", 1), {"flag_says_whether_it_ends"}),
    ("seqset", set_values("flags", 2), {"hidden_set_is_empty", "set_is_hidden_with_its_encounter"}),
    ("seqset", set_values("hours", [0.0]), {"lists_are_equally_long"}),
    ("seqset", set_list_item("tokens", 1, 77), {"token_is_in_the_vocabulary"}),
    ("seqset", set_list_item("tokens", 1, 4), {"token_is_of_its_kind"}),
    ("seqset", set_list_item("kinds", 1, 3), {"token_is_of_its_kind"}),
    ("seqset", set_list_item("kinds", 1, 9), {"kind_is_known"}),
    ("seqset", set_list_item("hours", 0, 1.0), {"hours_fit_the_times"}),
    ("seqset", set_list_item("hours", 0, float("nan")), {"hours_fit_the_times"}),
    (
        "seqset",
        set_list_item("available", 0, datetime(2150, 1, 1)),
        {"available_is_not_before_time", "icd_code_is_known_from_the_end_on"},
    ),
    ("seqset", set_list_item("available", PR, START + 2 * DAY), {"icd_code_is_known_from_the_end_on"}),
    ("seqset", set_values("encounter_id", 999), {"set_is_an_encounter", "encounter_has_a_set"}),
    ("seqset", shift("end", -DAY), {"set_ends_with_its_encounter"}),
    ("seqset", set_values("admission_type", None), {"set_has_the_admission_type_of_its_encounter"}),
    (
        "labels",
        set_values("index_encounter", 11),
        {"subject_id_and_index_encounter_is_unique", "index_starts_with_its_encounter"},
    ),
    ("labels", set_values("split", "train"), {"split_is_that_of_its_subject"}),
    ("labels", set_values("split", "none"), {"split_is_one_of_its_values", "split_is_that_of_its_subject"}),
    ("labels", shift("predict_at", -2 * DAY), {"predict_at_is_not_before_index_start"}),
    ("labels", shift("predict_at", 3 * DAY, row=1), {"prediction_is_within_the_stay"}),
    ("labels", shift("outcome_time", -2 * DAY), {"outcome_time_is_after_predict_at"}),
    ("labels", set_values("follow_up_days", -0.5), {"follow_up_days_is_in_range"}),
    ("labels", set_values("index_encounter", 999), {"index_is_an_encounter"}),
    ("labels", set_values("subject_id", 2), {"index_is_an_encounter", "split_is_that_of_its_subject"}),
    ("labels", shift("index_start", -DAY), {"index_starts_with_its_encounter"}),
]
FAULTS_OF_THE_WHOLE: list[tuple[str, Change, set[str]]] = [
    ("drug_lookup", set_values("name", "Heparin"), {"name_is_trimmed_lower_case"}),
    ("drug_lookup", set_values("atc", "B1AB01"), {"atc_looks_like_atc"}),
    ("drug_lookup", set_values("rows", 0), {"rows_is_in_range"}),
    ("drug_lookup", lambda rows: rows.append(dict(rows[0])), {"name_is_unique"}),
    ("code_names", set_values("name", " Hypertension"), {"name_is_trimmed_and_not_empty"}),
    ("code_names", lambda rows: rows.append(dict(rows[0])), {"vocab_and_code_is_unique"}),
    ("subject_years", set_values("years", "2011"), {"years_are_a_range"}),
    ("subject_years", lambda rows: rows.append(dict(rows[0])), {"subject_id_is_unique"}),
    ("vocab", set_values("token", "DX:I10", row=6), {"token_is_unique", "token_begins_with_its_kind"}),
    ("vocab", set_values("token_id", 99, row=FIRST_DECILE + 9), {"ids_have_no_gaps"}),
    ("vocab", set_values("token", "[BOS]"), {"specials_come_first"}),
    ("vocab", set_values("kind", "YY", row=5), {"kind_is_one_of_its_values", "token_begins_with_its_kind"}),
    ("vocab", set_values("count_train", -1, row=RARE), {"count_train_is_in_range"}),
    (
        "vocab",
        set_values("low", 9.5, row=FIRST_DECILE + 2),
        {"cuts_rise", "decile_begins_where_the_last_ended"},
    ),
    (
        "vocab",
        set_values("high", None, row=FIRST_DECILE + 1),
        {"decile_begins_where_the_last_ended", "only_the_outer_deciles_are_open"},
    ),
    ("vocab", set_values("high", 12.0, row=FIRST_DECILE + 9), {"only_the_outer_deciles_are_open"}),
    ("vocab", lambda rows: rows.pop(2), {"all_specials_are_there", "ids_have_no_gaps"}),
    ("vocab", flat_deciles, {"decile_can_hold_a_value"}),
    ("seqset", empty_sets, {"set_has_tokens"}),
    ("seqset", second_stays_first, {"sets_are_in_order_of_start", *DAYS}),
    ("seqset", shift("start", DAY, row=1), {"set_starts_with_its_encounter", "hours_fit_the_times", *DAYS}),
    ("vocab", lambda rows: rows.pop(FIRST_DECILE + 9), {"laboratory_item_has_ten_deciles"}),
    ("seqset", lambda rows: rows.reverse(), {"shard_is_sorted"}),
    ("seqset", lambda rows: rows.pop(), {"encounter_has_a_set"}),
    ("vocab", set_values("count_train", 21, row=6), {"procedure_is_counted_in_the_fitted_on_patients_alone"}),
    (
        "vocab",
        set_values("token", "DX:K10", "code", "K10", row=len(SPECIALS)),
        {"diagnoses_without_a_token_are_rare_together"},
    ),
    ("seqset", set_list_item("tokens", 0, 6), {"set_holds_the_tokens_of_its_events"}),
    ("seqset", set_list_item("available", 1, datetime(2151, 1, 1)), {"set_holds_the_tokens_of_its_events"}),
    (
        "seqset",
        reorder_set(DX, MED, LAB),
        {"set_has_as_many_tokens_as_events", "set_holds_the_tokens_of_its_events"},
    ),
    ("seqset", reorder_set(DX, PR, MED, LAB), {"tokens_after_the_diagnoses_rise_in_time"}),
    ("seqset", reorder_set(MED, DX, LAB, PR), {"set_begins_with_its_diagnoses"}),
    ("labels", set_column("label", True), {"split_has_classes_to_tell_apart"}),
    ("labels", lambda rows: rows.clear(), {"split_has_classes_to_tell_apart"}),
]


@pytest.mark.parametrize("suite", SUITES)
def test_expectations_hold_on_valid_tables(suite: str, tmp_path: Path) -> None:
    validation_result = validate(SUITES[suite](write(tables(), tmp_path)))
    assert validation_result.failed("ERROR") == validation_result.failed("WARN") == ()


def test_equal_cuts_of_whole_numbers_cause_no_warning(tmp_path: Path) -> None:
    layout = broken(tmp_path, "vocab", lambda rows: equal_cuts(rows, 6))
    assert failing(SUITES["vocab"](layout), {"decile_can_hold_a_value"}) == set()


def failures(suite: Suite, names: set[str]) -> list[RuleOutcome]:
    """Return the failed outcomes of the views with one of these rules.

    The rules on columns and types are not run: no fault here breaks them, and they take half the time.
    """
    validation.keep_duckdb_connected()
    views = [view for view in suite.views if names & {rule.name for rule in view.rules}]
    return [outcome for outcome in validation._run(suite, views) if not outcome.passed]


def failing(suite: Suite, names: set[str]) -> set[str]:
    return {outcome.rule.name for outcome in failures(suite, names)}


@pytest.mark.parametrize("suite", ROWS_OF_A_SUBJECT)
def test_faults_fail_exactly_their_expectations_in_their_rows(suite: str, tmp_path: Path) -> None:
    faults = [(change, names) for name, change, names in FAULTS_OF_ONE_SUBJECT if name == suite]

    def change_all(rows: list[Row]) -> None:
        for place, (change, _) in enumerate(faults):
            change(rows[place * ROWS_OF_A_SUBJECT[suite] :])

    expected = Counter(name for _, names in faults for name in names)
    outcomes = failures(SUITES[suite](broken(tmp_path, suite, change_all)), set(expected))
    assert {outcome.rule.name: outcome.num_broken for outcome in outcomes} == {
        name: 2 * count if name.endswith("_is_unique") else count  # the row and its duplicate
        for name, count in expected.items()
    }


@pytest.mark.parametrize(
    ("suite", "change", "names"),
    FAULTS_OF_THE_WHOLE,
    ids=["-".join(sorted(names)) for _, _, names in FAULTS_OF_THE_WHOLE],
)
def test_fault_fails_the_expected_rules(suite: str, change: Change, names: set[str], tmp_path: Path) -> None:
    assert failing(SUITES[suite](broken(tmp_path, suite, change)), names) == names


def test_fault_of_a_table_fails_rules_of_tables_checked_against_the_table(tmp_path: Path) -> None:
    rows = tables()
    rows["encounters"][0]["end"] = None
    for event in rows["events"]:
        event["mapped"] = None
    rows["drug_lookup"][0]["name"] = "aspirin"
    layout = write(rows, tmp_path)
    drugs = {"drug_given_has_an_atc", "half_of_the_drugs_given_have_an_atc"}
    for suite, names in (("labels", {"index_has_an_end"}), ("drug_lookup", drugs)):
        assert failing(SUITES[suite](layout), names) == names
    mapping_rules = {"diagnosis_is_mapped", "procedure_is_mapped"}
    assert failing(SUITES["events"](layout), mapping_rules) == mapping_rules


@pytest.mark.parametrize("is_one_code", [False, True])
def test_code_with_a_vocabulary_is_counted_without_ancestors(is_one_code: bool, tmp_path: Path) -> None:
    def snomed(rows: list[Row]) -> None:
        for row in rows:
            if row["kind"] == "DX":
                row["mapped"] = f"SNOMED/{1000 if is_one_code else row['subject_id']}"

    name = "diagnoses_without_a_token_are_rare_together"
    assert failing(SUITES["vocab"](broken(tmp_path, "events", snomed)), {name}) == (
        {name} if is_one_code else set()
    )


def test_events_after_the_18th_birthday_are_not_in_a_cdm_vocabulary(tmp_path: Path) -> None:
    rows = tables()
    for table in ("encounters", "events"):
        rows[table] += [{**row, "encounter_id": row["encounter_id"] + 1000} for row in rows[table]]
    for place, stay in enumerate(rows["encounters"]):
        stay["age_years"] = 17.9 if 2 * place < len(rows["encounters"]) else 18.0
    layout = write(rows, tmp_path)
    name = {"procedure_is_counted_in_the_fitted_on_patients_alone"}
    assert failing(expectations.PCORNET_SUITES["vocab"](layout), name) == set()
    assert failing(expectations.TABLE_SUITES["vocab"](layout), name) == name


def test_subject_in_two_shards_fails(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    (shard,) = layout.seqset.glob("*.parquet")
    sets = read_table(shard, SEQSET)
    write_table(sets.slice(0, 3), shard, SEQSET, made_by="the test")
    write_table(sets.slice(3), shard.with_name("shard-1.parquet"), SEQSET, made_by="the test")
    assert failing(SUITES["seqset"](layout), {"subject_lies_in_one_shard"}) == {"subject_lies_in_one_shard"}


TESTED_ELSEWHERE = {
    "diagnosis_is_mapped",
    "procedure_is_mapped",
    "laboratory_unit_is_given",
    "drug_is_given_in_an_encounter",
    "laboratory_value_is_of_an_encounter",
    "half_of_the_drugs_are_given_in_an_encounter",
    "not_all_laboratory_values_lie_outside_encounters",
    "drug_given_has_an_atc",
    "half_of_the_drugs_given_have_an_atc",
    "token_is_not_unknown",
    "index_has_an_end",
    "labels_are_classes_of_the_task",
    "subject_lies_in_one_shard",
}


def test_every_sql_rule_has_a_fault_that_fails_the_rule(tmp_path: Path) -> None:
    layout = write(tables(), tmp_path)
    views = [view for suite in SUITES.values() for view in suite(layout).views if not view.is_stored]
    rules = [rule for view in views for rule in view.rules]
    covered_rules = {name for _, _, names in FAULTS_OF_ONE_SUBJECT + FAULTS_OF_THE_WHOLE for name in names}
    assert {rule.name for rule in rules if rule.holds} - covered_rules - TESTED_ELSEWHERE == set()


def test_late_prediction_is_an_error_or_under_clock_time_a_warning(
    tmp_path: Path,
) -> None:
    rows = tables()
    rows["labels"][0]["predict_at"] += 5 * DAY
    late = {"outcome_time_is_after_predict_at", "prediction_is_within_the_stay"}
    for clock, severity in (("available_at", "ERROR"), ("time", "WARN")):
        layout = write(rows, tmp_path / clock, mortality(clock))
        outcomes = failures(SUITES["labels"](layout), late)
        assert {(outcome.rule.name, outcome.rule.severity) for outcome in outcomes} == {
            (name, severity) for name in late
        }


@pytest.mark.parametrize(
    ("label_type", "good", "bad", "names"),
    [
        ("class", "I", "XXIII", {"label_is_one_of_its_values"}),
        ("list", ["I"], ["I", "I", "XXIII"], {"labels_are_classes_of_the_task", "no_label_is_named_twice"}),
    ],
)
def test_label_outside_the_classes_of_the_task_fails(
    label_type: str, good: object, bad: object, names: set[str], tmp_path: Path
) -> None:
    rows = tables()
    for number, row in enumerate(rows["labels"]):
        row["label"] = bad if number == 0 else good
    layout = write(rows, tmp_path, mortality(label_type=label_type, classes=("I", "II")))
    assert {outcome.rule.name for outcome in validate(SUITES["labels"](layout)).failed("ERROR")} == names


def test_events_outside_stays_fail_when_most_are_outside(tmp_path: Path) -> None:
    rules = {
        "laboratory_value_is_of_an_encounter",
        "half_of_the_drugs_are_given_in_an_encounter",
        "not_all_laboratory_values_lie_outside_encounters",
    }
    rows = tables()
    assert not failing(SUITES["events"](write(rows, tmp_path / "clean")), rules) & rules
    for event in rows["events"]:
        if event["kind"] in ("MED", "LAB"):
            event["encounter_id"] = None
    assert failing(SUITES["events"](write(rows, tmp_path / "lost")), rules) >= rules


def test_unusual_rows_warn_when_their_share_is_large(tmp_path: Path) -> None:
    unusual = {"laboratory_unit_is_given", "drug_is_given_in_an_encounter", "token_is_not_unknown"}

    def warnings(odd: int, folder: str) -> set[str]:
        rows = tables()
        for event in [event for event in rows["events"] if event["kind"] == "LAB"][:odd]:
            event["unit"] = None
        for drug in [event for event in rows["events"] if event["kind"] == "MED"][: odd // 2]:
            drug["encounter_id"] = None
        for lone in rows["seqset"][: odd // 2]:
            lone["tokens"] = [1, 1, 1, 1]
        layout = write(rows, tmp_path / folder)
        suites = [SUITES["events"](layout), SUITES["seqset"](layout)]
        outcomes = [outcome for suite in suites for outcome in failures(suite, unusual)]
        return {outcome.rule.name for outcome in outcomes if outcome.rule.severity == "WARN"}

    assert warnings(12, "at the bound") == set()
    assert warnings(32, "beyond it") == unusual


def test_an_event_of_a_kind_that_the_source_has_not_is_refused(tmp_path):
    layout = write(tables(), tmp_path)
    rule = "kind_is_one_of_its_values"
    narrower = replace(MIMIC, kinds=("DX", "PR", "MED"))

    assert rule not in failing(MIMIC.suites["events"](layout), {rule})
    assert rule in failing(narrower.suites["events"](layout), {rule})


def test_a_suite_without_a_rule_gets_it_in_its_first_view(tmp_path):
    suite = SUITES["subjects"](write(tables(), tmp_path))
    rule = one_of("kind", ["DX"])
    assert suite.with_rule(rule).views[0].rules[-1] == rule
    assert suite.with_rule(rule).with_rule(rule) == suite.with_rule(rule)

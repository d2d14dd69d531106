"""The cohort language: every fault of a file, at once, where it stands, and how to mend it."""

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.cohort import CohortError, Duration, TimePoint, parse_cohort, parse_text, read_folder
from schemas.cohort.codes import VOCAB_NAMES, pattern_fault

FILES = sorted((Path(__file__).parents[3] / "assets" / "cohorts").glob("mimic_*.yaml"))

RETURN_HOME = """\
cohort: readmission_30d_home
about: 30-day ED or inpatient return after a paediatric stay discharged home
source: pcornet
codes:
  birth: {icd10cm: [Z38*], icd9cm: [V30*, V31*, V32*, V33*, V34*, V35*, V36*, V37*, V38*, V39*]}
index:
  encounter: {type: [EI, IP], discharge_status: [HO, HH]}
  from: 2016-01-01
  age: [0 days, 18 years]
  keep: every
require:
  - discharged:   {index_has: end}
  - not a birth:  {index_without: birth}
  - 30 days left: {data_until: index.end + 30 days}
predict_at: index.end
features: {until: predict_at}
outcome: {any_encounter: {type: [ED, EI, IP]}, within: 30 days}
split: {test_if_birth_day: [17, 24]}
"""

MORTALITY = """\
cohort: mortality
about: death in the stay
source: mimic
codes:
  sepsis: {icd10cm: [A41*]}
index: {encounter: {with: sepsis}, keep: every}
require:
  - a day long: {index_longer_than: 24 hours}
predict_at: index.start + 24 hours
features: {until: predict_at, drop_from_index: [DX]}
outcome: index_died
split: {hash: [70, 15, 15]}
"""


def faults(text, *changes):
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(CohortError) as caught:
        parse_text(text, file="c.yaml")
    return str(caught.value).split("\n")


def fault(*changes, text=MORTALITY):
    (one,) = faults(text, *changes)
    return one


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_of_the_five_tasks_is_read_without_a_warning(path):
    cohort = parse_cohort(path)
    assert cohort.cohort == path.stem
    assert cohort.warnings() == []


def test_there_are_five_mimic_tasks_and_one_of_them_on_everybody():
    tasks = {"mortality", "long_stay", "readmission", "readmission_any", "icd_chapter", "icd_category"}
    assert {path.stem for path in FILES} == {f"mimic_{task}" for task in tasks}


def test_the_example_of_the_language_is_read():
    cohort = parse_text(RETURN_HOME, file="c.yaml")
    assert cohort.index.encounter.type == ("EI", "IP")
    assert [name for name, _ in cohort.requirements] == ["discharged", "not a birth", "30 days left"]
    assert cohort.requirements[2][1].data_until == TimePoint("index.end", 1, Duration(30, "days"))


def test_an_unknown_key_names_the_nearest_one():
    assert fault(("keep: every", "kep: every")) == "c.yaml:6: index: unknown key 'kep'; did you mean 'keep'?"


def test_an_unknown_key_at_the_top_names_the_nearest_one():
    assert fault(("source: mimic", "source: mimic\nrequired: []")) == (
        "c.yaml:4: unknown key 'required'; did you mean 'require'?"
    )


def test_a_missing_key_is_named():
    assert fault(("about: death in the stay\n", "")) == "c.yaml:1: key 'about' is missing"


def test_a_key_that_stands_twice_is_a_fault():
    assert fault(("outcome:", "about: again\noutcome:")) == "c.yaml:11: 'about' stands twice, first in line 2"


def test_a_code_read_as_a_number_is_refused():
    assert fault(("{icd10cm: [A41*]}", "{icd10cm: [A41*], icd9cm: [382.1]}")) == (
        "c.yaml:5: codes.sepsis.icd9cm: 382.1 was read as a number; put it in quotes, or a trailing zero is lost"
    )


def test_a_code_keeps_its_trailing_zero_in_the_message():
    assert " 382.10 was read as a number" in fault(
        ("{icd10cm: [A41*]}", "{icd10cm: [A41*], icd9cm: [382.10]}")
    )


def test_a_code_of_another_shape_is_refused():
    assert fault(("A41*", "ABC")) == "c.yaml:5: codes.sepsis.icd10cm: 'ABC' does not look like ICD-10-CM"


def test_a_star_stands_only_at_the_end():
    assert (
        fault(("A41*", "'*A41'")) == "c.yaml:5: codes.sepsis.icd10cm: '*A41': '*' may stand only at the end"
    )


def test_an_unknown_vocabulary_names_the_nearest_one():
    assert "unknown key 'icd10'; did you mean 'icd10" in fault(("icd10cm", "icd10"))


def test_an_encounter_type_pcornet_does_not_have_is_refused():
    line = fault(("[EI, IP]", "[INPATIENT]"), text=RETURN_HOME)
    assert line.startswith(
        "c.yaml:7: index.encounter.type: 'INPATIENT' is not a PCORnet ENC_TYPE (AV, ED, EI, IP,"
    )


def test_a_code_list_that_is_not_there_names_the_nearest_one():
    assert fault(("with: sepsis", "with: sepsi")) == (
        "c.yaml:6: index.encounter.with: no code list named 'sepsi'; did you mean 'sepsis'?"
    )


def test_a_length_of_time_needs_its_unit():
    assert fault(("within: 30 days", "within: 30"), text=RETURN_HOME) == (
        "c.yaml:17: outcome.within: '30' is not a length of time; write e.g. '30 days'"
    )


def test_minutes_and_hours_read_as_a_number_are_shown_as_written():
    lines = faults(MORTALITY, ("longer_than: 24 hours", "longer_than: 12:30"))
    assert lines == [
        "c.yaml:8: require.a day long.index_longer_than: '12:30' is not a length of time; write e.g. '30 days'"
    ]


def test_no_read_as_false_is_shown_as_written():
    assert fault(("[HO, HH]", "[NO, HH]"), text=RETURN_HOME) == (
        "c.yaml:7: index.encounter.discharge_status: NO was read as false; put it in quotes"
    )


def test_a_time_that_does_not_exist_names_the_nearest_one():
    assert fault(("index.end + 30 days", "index.ends + 30 days"), text=RETURN_HOME) == (
        "c.yaml:14: require.30 days left.data_until: 'index.ends' is not a time; did you mean 'index.end'?"
    )


def test_a_condition_that_does_not_exist_names_the_nearest_one():
    assert (
        "'index_longer' is not a condition; did you mean 'index_longer_than'?"
        in faults(MORTALITY, ("index_longer_than", "index_longer"))[0]
    )


EPISODES = "{episodes_of: birth, new_episode_after: 14 days, at_least: [3 in 6 months, 4 in 12 months], within: 1 year}"


def episodes_fault(*change):
    return fault(
        ("{any_encounter: {type: [ED, EI, IP]}, within: 30 days}", EPISODES), change, text=RETURN_HOME
    )


def test_episodes_are_read_with_how_often_in_how_long():
    outcome = parse_text(
        RETURN_HOME.replace("{any_encounter: {type: [ED, EI, IP]}, within: 30 days}", EPISODES), file=""
    )
    assert [str(rate) for rate in outcome.outcome.at_least] == ["3 in 6 months", "4 in 12 months"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("3 in 6 months", "three"),
            "outcome.at_least: 'three' is not so many in so long; write e.g. '3 in 6 months'",
        ),
        (
            ("3 in 6 months", "3"),
            "outcome.at_least: '3' is not so many in so long; write e.g. '3 in 6 months'",
        ),
        (
            ("3 in 6 months", "1 in 6 months"),
            "outcome.at_least: '1 in 6 months': the index is the first episode; ask",
        ),
        (
            ("14 days", "36 hours"),
            "outcome.new_episode_after: '36 hours' is counted in days here; write e.g. '14 days'",
        ),
        (("new_episode_after: 14 days, ", ""), "outcome: key 'new_episode_after' is missing"),
        (
            ("of: birth", "of: brith"),
            "outcome.episodes_of: no code list named 'brith'; did you mean 'birth'?",
        ),
        ((", within: 1 year", ""), "outcome: say how long: write one of"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_in_what_an_episode_is_says_how_to_write_it(change, message):
    assert episodes_fault(*change).startswith(f"c.yaml:17: {message}")


def test_two_outcomes_are_refused():
    assert fault(
        ("outcome: index_died", "outcome: {index_died: true, any_event: sepsis, within: 2 days}")
    ) == ("c.yaml:11: outcome: write only one of index_died, any_event")


def test_an_outcome_in_time_needs_one_window():
    assert fault((", within: 30 days", ""), text=RETURN_HOME) == (
        "c.yaml:17: outcome: say how long: write one of 'within: 30 days' and 'until: index.end + 30 days'"
    )


@pytest.mark.parametrize(
    "outcome", ["{class_of: DX, map: icd10_chapter}", "{labels_of: DX, map: icd10_3char}"]
)
def test_an_outcome_read_from_diagnoses_the_features_keep_is_a_leak(outcome):
    assert fault((", drop_from_index: [DX]", ""), ("index_died", outcome)) == (
        "c.yaml:10: LEAK: the outcome is read from the index stay's DX, but features keep them; "
        "add 'drop_from_index: [DX]'"
    )


@pytest.mark.parametrize("outcome", ["index_died", "{index_longer_than: 7 days}"])
def test_a_property_of_the_stay_predicted_at_its_end_is_a_leak(outcome):
    assert fault(("index.start + 24 hours", "index.end"), ("outcome: index_died", f"outcome: {outcome}")) == (
        "c.yaml:9: LEAK: the outcome is a property of the index stay, but predict_at is its end"
    )


def test_a_length_of_stay_already_reached_at_the_prediction_is_a_leak():
    assert "LEAK: the outcome is known by predict_at" in fault(
        ("outcome: index_died", "outcome: {index_longer_than: 1 day}")
    )


def test_other_faults_do_not_hide_a_leak():
    lines = faults(MORTALITY, ("index.start + 24 hours", "index.end"), ("keep: every", "kep: every"))
    assert ["LEAK" in line for line in lines] == [False, True]


def test_dates_mean_nothing_where_they_are_shifted():
    assert fault(("keep: every", "from: 2016-01-01")) == (
        "c.yaml:6: index: 'from' and 'to' mean nothing in MIMIC-IV, where dates are shifted"
    )


def test_a_prediction_that_can_fall_after_the_stay_is_refused():
    assert fault(("longer_than: 24 hours", "longer_than: 23 hours")) == (
        "c.yaml:9: predict_at: index.start + 24 hours can fall after the stay; "
        "add '- still in the stay: {index_longer_than: 24 hours}' to require"
    )


def test_every_task_shares_the_one_split():
    assert "every task shares one split per patient" in fault(("[70, 15, 15]", "[80, 10, 10]"))


def test_a_requirement_without_a_name_is_told_where_the_name_goes():
    lines = faults(MORTALITY, ("- a day long: {index_longer_than: 24 hours}", "- index_alive"))
    assert lines == ["c.yaml:8: require: each item is one '- name: condition'"]


def test_two_requirements_of_one_name_are_refused():
    twice = "- a day long: {index_longer_than: 24 hours}\n  - a day long: index_alive"
    assert fault(("- a day long: {index_longer_than: 24 hours}", twice)) == (
        "c.yaml:9: require: two requirements are named 'a day long'; name each differently"
    )


def test_a_code_list_nobody_uses_is_a_warning():
    cohort = parse_text(MORTALITY.replace("{with: sepsis}", "{}"), file="c.yaml")
    assert cohort.warnings() == ["codes.sepsis: this code list is never used"]


def test_all_faults_are_shown_together_in_the_order_of_the_file():
    changes = [("A41*", "ABC"), ("keep", "kep"), ("24 hours}", "24}"), ("index_died", "index_dead")]
    assert [line.split(":")[1] for line in faults(MORTALITY, *changes)] == ["5", "6", "8", "11"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a cohort: no keys"),
        ("- a\n- b\n", "is not a cohort: no keys"),
        ("cohort: [a\n", "not readable: "),
        ("cohort: &a x\nabout: *a\n", "anchors and aliases"),
        ("\x00", "not readable: "),
    ],
)
def test_a_file_that_is_no_cohort_says_so(text, message):
    assert any(message in line for line in faults(text))


def test_a_file_that_is_not_there_says_so_and_a_folder_is_no_text(tmp_path):
    with pytest.raises(CohortError, match=r"none\.yaml:1: there is no such file"):
        parse_cohort(tmp_path / "none.yaml")
    with pytest.raises(CohortError, match="is not a file but a folder"):
        parse_cohort(tmp_path)


def test_a_fault_found_later_still_names_file_and_line():
    cohort = parse_text(MORTALITY, file="c.yaml")
    assert str(cohort.fault(("index", "encounter", "with"), "no")) == "c.yaml:6: index.encounter.with: no"


def test_layout_comments_and_dots_do_not_change_the_hash():
    plain = parse_text(MORTALITY, file="a.yaml")
    other = MORTALITY.replace("A41*", "a41.*").replace("24 hours", "24  hours") + "# a comment\n"
    assert parse_text(other, file="b.yaml").sha256 == plain.sha256
    assert parse_text(MORTALITY.replace("A41", "A40"), file="c.yaml").sha256 != plain.sha256


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_normalized_spec_says_the_same_again(path):
    cohort = parse_cohort(path)
    again = parse_text(yaml.safe_dump(cohort.normalized()), file="again.yaml")
    assert again.sha256 == cohort.sha256


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(MORTALITY.splitlines()),
)
def test_nonsense_in_any_section_is_a_fault_and_never_a_crash(nonsense, line):
    section = line.split(":")[0].strip(" -")
    text = yaml.safe_dump({**yaml.safe_load(MORTALITY), section: nonsense}, allow_unicode=True)
    with contextlib.suppress(CohortError):
        parse_text(text, file="c.yaml")


@pytest.mark.parametrize(
    ("vocab", "good", "bad"),
    [
        (
            "icd10cm",
            ["A41.9", "A419", "C7A", "S72001A", "Z38*", "A*"],
            ["41.9", "AB1", "A41.90000", "A4.19", "*"],
        ),
        ("icd9cm", ["382.1", "3821", "V30*", "E849.0", "E8490"], ["38", "V3", "E84", "38.21", "X12"]),
        ("icd10pcs", ["0DTJ4ZZ", "0DT*"], ["0DTJ4Z", "0DTJ4ZZZ"]),
        ("icd9pcs", ["39.95", "3995", "39*"], ["9", "399.5"]),
        ("cpt", ["99381", "0001F", "J1100"], ["9938", "993811"]),
        ("loinc", ["2345-7", "2345*"], ["23457", "2345-78"]),
        ("itemid", ["50912"], ["K", "50912-1"]),
        ("rxnorm", ["6809"], ["RX6809"]),
        ("atc", ["B01AB01", "B01", "B*"], ["01B", "B01AB011"]),
        ("cvx", ["08", "115"], ["1150", "MMR"]),
    ],
)
def test_a_code_looks_like_its_vocabulary(vocab, good, bad):
    assert [pattern_fault(vocab, code) for code in good] == [None] * len(good)
    assert all(pattern_fault(vocab, code) for code in bad)
    assert vocab in VOCAB_NAMES


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            ("keep: every}", "keep: every, age: [65 years]}"),
            "6: index.age: needs two ages, e.g. [18 years, 90",
        ),
        (("keep: every}", "keep: every, age: 65 years}"), "6: index.age: needs two ages, e.g. [18 years, 90"),
        (
            ("index_died", "{index_died: {}}"),
            "11: outcome.index_died: nothing stands after it; write 'outcome: ",
        ),
        (
            ("index_died", "{index_died: true, within: 7 days}"),
            "11: outcome: index_died takes no length of time",
        ),
        (("index_died", "died"), "11: outcome: 'died' is not an outcome; did you mean 'index_died'?"),
        (
            ("outcome:", "  outcome:"),
            "11: not readable: begins in another column than the lines it belongs to",
        ),
        (("outcome:", "\toutcome:"), "11: not readable: is indented with a tab; use spaces"),
        (("keep: every}", "keep: every"), "6: not readable: a comma or a closing bracket is missing"),
        (("predict_at:", "predict_at"), "9: not readable: has no ':' after its key"),
        (("about: death", "about: 'death"), "2: not readable: a quote is never closed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_is_told_in_the_words_of_who_writes_the_file(changes, line):
    assert fault(changes).startswith(f"c.yaml:{line}")


def file_of(folder, name, cohort):
    (folder / name).write_text(MORTALITY.replace("cohort: mortality", f"cohort: {cohort}"))


def test_of_two_files_with_one_name_the_one_so_called_is_the_cohort(tmp_path):
    for name in ("aa_copy.yaml", "mortality.yaml"):
        file_of(tmp_path, name, "mortality")
    (cohort,), bad = read_folder(tmp_path)

    assert cohort.fault((), "").file == str(tmp_path / "mortality.yaml")
    assert str(bad["aa_copy"]) == (
        f"{tmp_path / 'aa_copy.yaml'}:1: cohort: 'mortality' is the cohort of {tmp_path / 'mortality.yaml'} too; "
        "give each file a cohort of its own, named as the file"
    )


@pytest.mark.parametrize("ending", ["nest", "lightgbm", "yardsticks", "labels", "report"])
def test_a_name_that_ends_as_what_is_made_from_another_cohort_is_refused(tmp_path, ending):
    file_of(tmp_path, "stroke.yaml", "stroke")
    file_of(tmp_path, f"stroke_{ending}.yaml", f"stroke_{ending}")
    (cohort,), bad = read_folder(tmp_path)

    assert cohort.cohort == "stroke"
    assert f"ends as what is made from a cohort does (_{ending})" in str(bad[f"stroke_{ending}"])


@pytest.mark.parametrize("names", [("one.yaml", "two.yaml"), ("mortality.yaml", "mortality.yml")])
def test_of_two_files_with_one_name_neither_is_the_cohort_where_none_alone_is_so_called(tmp_path, names):
    for name in names:
        file_of(tmp_path, name, "mortality")
    file_of(tmp_path, "other.yaml", "other")
    good, bad = read_folder(tmp_path)

    assert [cohort.cohort for cohort in good] == ["other"]
    assert sorted(error.file for error in bad.values()) == [str(tmp_path / name) for name in names]


def test_a_file_below_the_working_directory_is_called_as_one_would_type_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path, "mine.yaml", "Mine")
    _, bad = read_folder(tmp_path)

    assert str(bad["mine"]).startswith("mine.yaml:1: cohort: 'Mine' is not a name")


HOME = {"text": RETURN_HOME}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            ("[HO, HH]", "[A]"),
            "7: index.encounter.discharge_status: 'A' is not a PCORnet DISCHARGE_STATUS (AF, AL, AM,",
        ),
        (
            ("type: [ED, EI, IP]", "type: [ER]"),
            "17: outcome.any_encounter.type: 'ER' is not a PCORnet ENC_TYPE (",
        ),
        (("from: 2016-01-01", "from: 2016"), "8: index.from: '2016' is not a date, e.g. 2016-01-01"),
        (("from: 2016-01-01", "from: 20160101"), "8: index.from: '20160101' is not a date, e.g. 2016-01-01"),
        (
            ("from: 2016-01-01", "from: 01/02/2016"),
            "8: index.from: '01/02/2016' is not a date, e.g. 2016-01-01",
        ),
        (
            ("from: 2016-01-01", "from: 2016-13-01"),
            "8: index.from: '2016-13-01' is not a date, e.g. 2016-01-01",
        ),
        (
            ("from: 2016-01-01", "from: 2016-01-01\n  to: 2015-01-01"),
            "6: index: 'to' is before 'from', so no encounter is meant",
        ),
        (("[0 days, 18 years]", "[18 years, 2 years]"), "6: index: 'age' holds none: it runs from the first"),
        (("[0 days, 18 years]", "[1 year, 12 months]"), "6: index: 'age' holds none: it runs from the first"),
        (
            ("keep: every", "keep: nearest to 4"),
            "10: index.keep: 'nearest to 4' is none of 'every', 'first',",
        ),
        (("[17, 24]", "[17, 32]"), "18: split.test_if_birth_day: '32' is not a day of the month"),
        (
            ("{until: predict_at}", "{until: predict_at, since: birth}"),
            "16: features: since: features cannot begin at 'birth'; write e.g. 'predict_at - 365 days' or 'index.s",
        ),
        (
            ("{until: predict_at}", "{until: predict_at, since: predict_at + 1 day}"),
            "16: features: since: features cannot begin at 'predict_at + 1 day'; write e.g. ",
        ),
        (
            ("within: 30 days", "until: index.end"),
            "17: outcome.until: 'index.end' is never after predict_at, so the",
        ),
        (
            ("within: 30 days", "until: birth"),
            "17: outcome.until: 'birth' is never after predict_at, so the window",
        ),
        (
            ("within: 30 days", "until: index.start"),
            "17: outcome.until: 'index.start' is never after predict_at",
        ),
        (
            ("within: 30 days", "until: predict_at + 0 days"),
            "17: outcome.until: 'predict_at' is never after predict_",
        ),
        (
            ("predict_at: index.end", "predict_at: index.start + 2 days"),
            "15: predict_at: index.start + 2 days can fall after the stay; add '- still in the stay: {index_long",
        ),
        (
            ("icd9cm: [V30*", "icd9cm: [010"),
            "5: codes.birth.icd9cm: 010 was read as a number; put it in quotes",
        ),
        (
            ("icd9cm: [V30*", "icd9cm: [12:30"),
            "5: codes.birth.icd9cm: 12:30 was read as a number; put it in quotes",
        ),
        (
            ("icd9cm: [V30*", "icd9cm: [2016-01-01"),
            "5: codes.birth.icd9cm: 2016-01-01 was read as a date; put it in",
        ),
        (("icd9cm: [V30*", "icd9cm: [~"), "5: codes.birth.icd9cm: is empty"),
        (("readmission_30d_home", "yes"), "1: cohort: yes was read as true; put it in quotes"),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_a_slip_in_a_pcornet_file_is_told_where_it_stands(change, line):
    assert fault(change, **HOME).startswith(f"c.yaml:{line}")


@pytest.mark.parametrize(
    "since", ["predict_at - 365 days", "predict_at - 12 months", "index.start", "index.start - 1 year"]
)
def test_features_may_begin_so_long_before_the_prediction_or_the_index(since):
    text = RETURN_HOME.replace("{until: predict_at}", f"{{until: predict_at, since: {since}}}")
    assert str(parse_text(text, file="c.yaml").features.since) == since


def test_a_cohort_on_a_source_without_tables_is_bad_and_says_of_which_there_are(tmp_path):
    (tmp_path / "home.yaml").write_text(RETURN_HOME)
    good, bad = read_folder(tmp_path, sources=("mimic", "meds"))
    assert not good
    assert str(bad["home"]).endswith(
        "home.yaml:3: source: 'pcornet' has no tables here yet; there are those of mimic, meds"
    )

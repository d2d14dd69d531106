"""Tests of the cohort language: all faults of a file at once, where each is, and how to fix it."""

import contextlib
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.cohort import CohortError, Duration, TimePoint, parse_cohort, parse_text, read_folder
from schemas.cohort.codes import VOCAB_NAMES, pattern_fault
from schemas.cohort.english import in_english

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
    with pytest.raises(CohortError) as error:
        parse_text(text, file="c.yaml")
    return str(error.value).split("\n")


def fault(*changes, text=MORTALITY):
    (message,) = faults(text, *changes)
    return message


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_mimic_cohort_file_parses_without_a_warning(path):
    cohort = parse_cohort(path)
    assert cohort.cohort == path.stem
    assert cohort.warnings() == []


def test_mimic_cohort_files_are_the_six_tasks():
    tasks = {"mortality", "long_stay", "readmission", "readmission_any", "icd_chapter", "icd_category"}
    assert {path.stem for path in FILES} == {f"mimic_{task}" for task in tasks}


def test_parse_reads_the_example_of_the_language():
    cohort = parse_text(RETURN_HOME, file="c.yaml")
    assert cohort.index.encounter.type == ("EI", "IP")
    assert [name for name, _ in cohort.requirements] == ["discharged", "not a birth", "30 days left"]
    assert cohort.requirements[2][1].data_until == TimePoint("index.end", 1, Duration(30, "days"))


def test_unknown_key_suggests_the_nearest_key():
    assert fault(("keep: every", "kep: every")) == "c.yaml:6: index: unknown key 'kep'; did you mean 'keep'?"


def test_unknown_top_level_key_suggests_the_nearest_key():
    assert fault(("source: mimic", "source: mimic\nrequired: []")) == (
        "c.yaml:4: unknown key 'required'; did you mean 'require'?"
    )


def test_missing_key_is_named():
    assert fault(("about: death in the stay\n", "")) == "c.yaml:1: key 'about' is missing"


def test_misspelt_key_is_one_fault_and_not_missing_besides():
    assert fault(("about: death", "abuot: death")) == "c.yaml:2: unknown key 'abuot'; did you mean 'about'?"


def test_missing_key_is_named_beside_an_unknown_one_that_is_not_like_it():
    missing, unknown = faults(MORTALITY, ("about: death", "note: death"))
    assert missing == "c.yaml:1: key 'about' is missing"
    assert unknown.startswith("c.yaml:2: unknown key 'note'; choose from ")


def test_duplicate_key_is_a_fault():
    assert (
        fault(("outcome:", "about: again\noutcome:"))
        == "c.yaml:11: 'about' appears twice; the first is in line 2"
    )


def test_code_that_yaml_reads_as_a_number_is_refused():
    assert fault(("{icd10cm: [A41*]}", "{icd10cm: [A41*], icd9cm: [382.1]}")) == (
        "c.yaml:5: codes.sepsis.icd9cm: 382.1 was read as a number; put it in quotes to keep trailing zeros"
    )


def test_message_quotes_a_code_with_the_trailing_zero():
    assert " 382.10 was read as a number" in fault(
        ("{icd10cm: [A41*]}", "{icd10cm: [A41*], icd9cm: [382.10]}")
    )


def test_code_of_the_wrong_format_is_refused():
    assert fault(("A41*", "ABC")) == "c.yaml:5: codes.sepsis.icd10cm: 'ABC' is not a valid ICD-10-CM code"


def test_star_is_allowed_only_at_the_end_of_a_code():
    assert (
        fault(("A41*", "'*A41'"))
        == "c.yaml:5: codes.sepsis.icd10cm: '*A41': '*' is allowed only at the end of a code"
    )


def test_unknown_vocabulary_suggests_the_nearest_vocabulary():
    assert "unknown key 'icd10'; did you mean 'icd10" in fault(("icd10cm", "icd10"))


def test_encounter_type_outside_pcornet_s_value_set_is_refused():
    line = fault(("[EI, IP]", "[INPATIENT]"), text=RETURN_HOME)
    assert line.startswith(
        "c.yaml:7: index.encounter.type: 'INPATIENT' is not a value of PCORnet's ENC_TYPE; the values are AV, ED,"
    )


def test_unknown_code_list_suggests_the_nearest_list():
    assert fault(("with: sepsis", "with: sepsi")) == (
        "c.yaml:6: index.encounter.with: there is no code list named 'sepsi'; did you mean 'sepsis'?"
    )


def test_duration_without_a_unit_is_refused():
    assert fault(("within: 30 days", "within: 30"), text=RETURN_HOME) == (
        "c.yaml:17: outcome.within: '30' is not a length of time; write e.g. '30 days'"
    )


def test_message_quotes_a_sexagesimal_number_from_the_file():
    lines = faults(MORTALITY, ("longer_than: 24 hours", "longer_than: 12:30"))
    assert lines == [
        "c.yaml:8: require.a day long.index_longer_than: '12:30' is not a length of time; write e.g. '30 days'"
    ]


def test_message_quotes_a_no_that_yaml_reads_as_false():
    assert fault(("[HO, HH]", "[NO, HH]"), text=RETURN_HOME) == (
        "c.yaml:7: index.encounter.discharge_status: NO was read as false; put it in quotes"
    )


def test_unknown_time_anchor_suggests_the_nearest_anchor():
    assert fault(("index.end + 30 days", "index.ends + 30 days"), text=RETURN_HOME) == (
        "c.yaml:14: require.30 days left.data_until: 'index.ends' is not a time; did you mean 'index.end'?"
    )


def test_unknown_condition_suggests_the_nearest_condition():
    assert (
        "'index_longer' is not a condition; did you mean 'index_longer_than'?"
        in faults(MORTALITY, ("index_longer_than", "index_longer"))[0]
    )


EPISODES = "{episodes_of: birth, new_episode_after: 14 days, at_least: [3 in 6 months, 4 in 12 months], within: 1 year}"


def episodes_fault(*change):
    return fault(
        ("{any_encounter: {type: [ED, EI, IP]}, within: 30 days}", EPISODES), change, text=RETURN_HOME
    )


def test_episodes_are_parsed_with_their_rates():
    outcome = parse_text(
        RETURN_HOME.replace("{any_encounter: {type: [ED, EI, IP]}, within: 30 days}", EPISODES), file=""
    )
    assert [str(rate) for rate in outcome.outcome.at_least] == ["3 in 6 months", "4 in 12 months"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("3 in 6 months", "three"),
            "outcome.at_least: 'three' is not a rate; write e.g. '3 in 6 months'",
        ),
        (
            ("3 in 6 months", "3"),
            "outcome.at_least: '3' is not a rate; write e.g. '3 in 6 months'",
        ),
        (
            ("3 in 6 months", "1 in 6 months"),
            "outcome.at_least: '1 in 6 months': the index is the first episode, so",
        ),
        (
            ("14 days", "36 hours"),
            "outcome.new_episode_after: '36 hours' is not in days, months or years; write e.g. '14 days'",
        ),
        (("new_episode_after: 14 days, ", ""), "outcome: key 'new_episode_after' is missing"),
        (
            ("of: birth", "of: brith"),
            "outcome.episodes_of: there is no code list named 'brith'; did you mean 'birth'?",
        ),
        ((", within: 1 year", ""), "outcome: one time window is needed; write either"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fault_in_an_episode_shows_the_right_spelling(change, message):
    assert episodes_fault(*change).startswith(f"c.yaml:17: {message}")


def test_two_outcomes_are_refused():
    assert fault(
        ("outcome: index_died", "outcome: {index_died: true, any_event: sepsis, within: 2 days}")
    ) == ("c.yaml:11: outcome: write only one of index_died, any_event")


def test_outcome_without_a_time_window_is_refused():
    assert fault((", within: 30 days", ""), text=RETURN_HOME) == (
        "c.yaml:17: outcome: one time window is needed; write either 'within: 30 days' or 'until: index.end + 30 days'"
    )


@pytest.mark.parametrize(
    "outcome", ["{class_of: DX, map: icd10_chapter}", "{labels_of: DX, map: icd10_3char}"]
)
def test_outcome_derived_from_diagnoses_in_the_features_is_a_leak(outcome):
    assert fault((", drop_from_index: [DX]", ""), ("index_died", outcome)) == (
        "c.yaml:10: LEAK: the outcome is derived from the index stay's DX codes, which the features include; "
        "add 'drop_from_index: [DX]'"
    )


@pytest.mark.parametrize("outcome", ["index_died", "{index_longer_than: 7 days}"])
def test_outcome_known_at_the_end_of_the_stay_is_a_leak_there(outcome):
    assert fault(("index.start + 24 hours", "index.end"), ("outcome: index_died", f"outcome: {outcome}")) == (
        "c.yaml:9: LEAK: the outcome is known at the end of the index stay, which is predict_at; "
        "predict from index.start"
    )


def test_length_of_stay_reached_at_the_prediction_is_a_leak():
    assert "LEAK: the outcome is already known at predict_at" in fault(
        ("outcome: index_died", "outcome: {index_longer_than: 1 day}")
    )


def test_leak_is_reported_beside_other_faults():
    lines = faults(MORTALITY, ("index.start + 24 hours", "index.end"), ("keep: every", "kep: every"))
    assert ["LEAK" in line for line in lines] == [False, True]


def test_dates_are_refused_on_mimic():
    assert fault(("keep: every", "from: 2016-01-01")) == (
        "c.yaml:6: index: 'from' and 'to' cannot be used on MIMIC-IV, where dates are shifted"
    )


def test_prediction_that_can_be_after_the_stay_is_refused():
    assert fault(("longer_than: 24 hours", "longer_than: 23 hours")) == (
        "c.yaml:9: predict_at: index.start + 24 hours can be after the end of the stay; "
        "add '- still in the stay: {index_longer_than: 24 hours}' to require"
    )


def test_split_with_other_shares_is_refused():
    assert "all tasks share one split of the patients" in fault(("[70, 15, 15]", "[80, 10, 10]"))


def test_requirement_without_a_name_shows_the_right_form():
    lines = faults(MORTALITY, ("- a day long: {index_longer_than: 24 hours}", "- index_alive"))
    assert lines == ["c.yaml:8: require: write each requirement as '- name: condition'"]


def test_two_requirements_with_the_same_name_are_refused():
    twice = "- a day long: {index_longer_than: 24 hours}\n  - a day long: index_alive"
    assert fault(("- a day long: {index_longer_than: 24 hours}", twice)) == (
        "c.yaml:9: require: two requirements are named 'a day long'; give each its own name"
    )


def test_unused_code_list_is_a_warning():
    cohort = parse_text(MORTALITY.replace("{with: sepsis}", "{}"), file="c.yaml")
    assert cohort.warnings() == ["codes.sepsis: this code list is never used"]


def test_faults_are_listed_in_the_order_of_the_file():
    changes = [("A41*", "ABC"), ("keep", "kep"), ("24 hours}", "24}"), ("index_died", "index_dead")]
    assert [line.split(":")[1] for line in faults(MORTALITY, *changes)] == ["5", "6", "8", "11"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "this is not a cohort: it has no keys"),
        ("- a\n- b\n", "this is not a cohort: it has no keys"),
        ("cohort: [a\n", "not valid YAML: "),
        ("cohort: &a x\nabout: *a\n", "anchors and aliases"),
        ("\x00", "not valid YAML: "),
    ],
)
def test_text_without_a_cohort_is_a_fault(text, message):
    assert any(message in line for line in faults(text))


def test_missing_file_or_folder_is_a_fault(tmp_path):
    with pytest.raises(CohortError, match=r"none\.yaml:1: there is no such file"):
        parse_cohort(tmp_path / "none.yaml")
    with pytest.raises(CohortError, match="is not a file but a folder"):
        parse_cohort(tmp_path)


def test_later_fault_names_file_and_line():
    cohort = parse_text(MORTALITY, file="c.yaml")
    assert str(cohort.fault(("index", "encounter", "with"), "no")) == "c.yaml:6: index.encounter.with: no"


def test_hash_ignores_layout_comments_and_dots():
    plain = parse_text(MORTALITY, file="a.yaml")
    same_cohort = MORTALITY.replace("A41*", "a41.*").replace("24 hours", "24  hours") + "# a comment\n"
    assert parse_text(same_cohort, file="b.yaml").sha256 == plain.sha256
    assert parse_text(MORTALITY.replace("A41", "A40"), file="c.yaml").sha256 != plain.sha256


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_normalized_cohort_parses_to_the_same_hash(path):
    cohort = parse_cohort(path)
    reread = parse_text(yaml.safe_dump(cohort.normalized()), file="again.yaml")
    assert reread.sha256 == cohort.sha256


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.sampled_from(MORTALITY.splitlines()),
)
def test_nonsense_in_any_section_never_crashes_the_parser(nonsense, line):
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
def test_code_format_is_checked_by_vocabulary(vocab, good, bad):
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
            "11: outcome.index_died: takes no value; write 'outcome: ",
        ),
        (
            ("index_died", "{index_died: true, within: 7 days}"),
            "11: outcome: index_died takes no time window",
        ),
        (
            ("index_died", "inde_died"),
            "11: outcome: 'inde_died' is not an outcome; did you mean 'index_died'?",
        ),
        (
            ("outcome:", "  outcome:"),
            "11: not valid YAML: this line is not indented like the lines it belongs to",
        ),
        (("outcome:", "\toutcome:"), "11: not valid YAML: this line is indented with a tab; use spaces"),
        (
            ("about: ", "about: %"),
            "2: not valid YAML: put text that begins with a special character in quotes",
        ),
        (
            ("about: ", "about: !<"),
            "2: not valid YAML: put text that begins with a special character in quotes",
        ),
        (("about: ", "about: 'a\n--- "), "2: not valid YAML: a quotation mark is never closed"),
        (("about: ", "about: |"), "2: not valid YAML: put text that begins with | or > in quotes"),
        (("about: ", "about: ? "), "2: not valid YAML: put text that begins with ? in quotes"),
        (("about: ", "about: - "), "2: not valid YAML: an item of a list begins a line of its own"),
        (("about: ", "about: & "), "2: not valid YAML: put text that begins with * or & in quotes"),
        (("about: ", 'about: "\\d" #'), "2: not valid YAML: text in double quotes contains a \\"),
        (("about: ", 'about: "\\x4" #'), "2: not valid YAML: text in double quotes contains a \\"),
        (("keep: every}", "keep: every"), "6: not valid YAML: a comma or a closing bracket is missing"),
        (("predict_at:", "predict_at"), "9: not valid YAML: there is no ':' after the key"),
        (("about: death", "about: 'death"), "2: not valid YAML: a quotation mark is never closed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fault_is_worded_for_the_author_of_the_file(changes, line):
    assert fault(changes).startswith(f"c.yaml:{line}")


def file_of(folder, name, cohort):
    (folder / name).write_text(MORTALITY.replace("cohort: mortality", f"cohort: {cohort}"))


def test_duplicate_cohort_name_belongs_to_the_file_of_that_name(tmp_path):
    for name in ("aa_copy.yaml", "mortality.yaml"):
        file_of(tmp_path, name, "mortality")
    (cohort,), bad = read_folder(tmp_path)

    assert cohort.fault((), "").file == str(tmp_path / "mortality.yaml")
    assert str(bad["aa_copy"]) == (
        f"{tmp_path / 'aa_copy.yaml'}:1: cohort: 'mortality' is also the cohort of {tmp_path / 'mortality.yaml'}; "
        "give each file its own name as its cohort"
    )


@pytest.mark.parametrize("ending", ["nest", "lightgbm", "yardsticks", "labels", "report"])
def test_name_that_ends_like_a_cohort_s_output_is_refused(tmp_path, ending):
    file_of(tmp_path, "stroke.yaml", "stroke")
    file_of(tmp_path, f"stroke_{ending}.yaml", f"stroke_{ending}")
    (cohort,), bad = read_folder(tmp_path)

    assert cohort.cohort == "stroke"
    assert f"ends in _{ending}, like an output of another cohort" in str(bad[f"stroke_{ending}"])


@pytest.mark.parametrize("names", [("one.yaml", "two.yaml"), ("mortality.yaml", "mortality.yml")])
def test_duplicate_cohort_name_is_refused_when_no_file_name_matches(tmp_path, names):
    for name in names:
        file_of(tmp_path, name, "mortality")
    file_of(tmp_path, "other.yaml", "other")
    good, bad = read_folder(tmp_path)

    assert [cohort.cohort for cohort in good] == ["other"]
    assert sorted(error.file for error in bad.values()) == [str(tmp_path / name) for name in names]


def test_message_names_a_file_relative_to_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file_of(tmp_path, "mine.yaml", "Mine")
    _, bad = read_folder(tmp_path)

    assert str(bad["mine"]).startswith("mine.yaml:1: cohort: 'Mine' is not a valid name")


HOME = {"text": RETURN_HOME}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            ("[HO, HH]", "[A]"),
            "7: index.encounter.discharge_status: 'A' is not a value of PCORnet's DISCHARGE_STATUS; the values are AF,",
        ),
        (
            ("type: [ED, EI, IP]", "type: [ER]"),
            "17: outcome.any_encounter.type: 'ER' is not a value of PCORnet's ENC_TYPE; ",
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
            "6: index: 'to' is before 'from', so no encounter matches",
        ),
        (("[0 days, 18 years]", "[18 years, 2 years]"), "6: index: 'age' is empty: it runs from the first"),
        (("[0 days, 18 years]", "[1 year, 12 months]"), "6: index: 'age' is empty: it runs from the first"),
        (
            ("keep: every", "keep: nearest to 4"),
            "10: index.keep: 'nearest to 4' is not valid; write 'every', 'first' or",
        ),
        (("[17, 24]", "[17, 32]"), "18: split.test_if_birth_day: '32' is not a day of the month"),
        (
            ("{until: predict_at}", "{until: predict_at, since: birth}"),
            "16: features: since: features cannot start at 'birth'; write e.g. 'predict_at - 365 days' or 'index.s",
        ),
        (
            ("{until: predict_at}", "{until: predict_at, since: predict_at + 1 day}"),
            "16: features: since: features cannot start at 'predict_at + 1 day'; write e.g. ",
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
            "15: predict_at: index.start + 2 days can be after the end of the stay; add '- still in the stay: ",
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
def test_fault_in_a_pcornet_file_names_line_and_key(change, line):
    assert fault(change, **HOME).startswith(f"c.yaml:{line}")


@pytest.mark.parametrize(
    "time", ["predict_at - 365 days", "predict_at - 12 months", "index.start", "index.start - 1 year"]
)
def test_features_may_start_before_the_prediction_or_the_index(time):
    text = RETURN_HOME.replace("{until: predict_at}", f"{{until: predict_at, since: {time}}}")
    assert str(parse_text(text, file="c.yaml").features.since) == time


def test_cohort_on_a_source_without_tables_lists_the_sources(tmp_path):
    (tmp_path / "home.yaml").write_text(RETURN_HOME)
    good, bad = read_folder(tmp_path, sources=("mimic", "meds"))
    assert not good
    assert str(bad["home"]).endswith(
        "home.yaml:3: source: there are no tables of 'pcornet' here yet, only of mimic, meds"
    )


def test_title_and_thresholds_change_neither_hash_nor_normal_form():
    plain = parse_text(MORTALITY, file="a.yaml")
    titled = parse_text(MORTALITY + "title: Death in hospital\nthresholds: [0.1, 0.25]\n", file="b.yaml")
    assert (titled.title, titled.thresholds) == ("Death in hospital", (0.1, 0.25))
    assert titled.sha256 == plain.sha256
    assert titled.normalized() == plain.normalized()
    assert in_english(titled)[0] == "mortality: Death in hospital: death in the stay"
    assert in_english(titled)[1:] == in_english(plain)[1:]
    assert parse_text(MORTALITY + "thresholds: 0.2\n", file="c.yaml").thresholds == (0.2,)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("thresholds: [0.1, 1]", "a threshold is a probability above 0 and below 1"),
        ("thresholds: [20 %]", "a threshold is a probability above 0 and below 1"),
        ("thresholds: [true]", "a threshold is a probability above 0 and below 1"),
        ("title: ''", "title"),
        ('title: "two\\nlines"', "a title is one line"),
    ],
)
def test_a_title_or_threshold_that_cannot_be_is_a_fault(line, words):
    (message,) = faults(MORTALITY + line + "\n")
    assert words in message


def test_thresholds_of_a_class_outcome_are_a_fault():
    text = MORTALITY.replace("index_died", "{class_of: DX, map: icd10_chapter}")
    text = text.replace("index.start + 24 hours", "index.end") + "thresholds: [0.1]\n"
    assert any("thresholds are for yes-or-no outcomes only" in message for message in faults(text))

"""`python -m pipelines.cohorts`: faults or meaning of a file, the counts of a sample, a template."""

import resource
import subprocess
import sys

import pytest

from pipelines.cohorts import write_labels
from pipelines.cohorts.__main__ import main
from pipelines.cohorts.sample import derive_sample
from pipelines.cohorts.template import EXAMPLES
from schemas.cards import StepCard
from schemas.cohort import parse_cohort, parse_text
from schemas.cohort.english import in_english
from schemas.layout import Layout
from schemas.rules import PRESETS
from schemas.tables.events import SPLITS
from tests.schemas.cohort.test_cohort import EPISODES, MORTALITY, RETURN_HOME
from tests.support.cohort_tables import COHORT_FILES, DAY, DAY_ZERO, mimic, stay, subject, write

READMISSION = COHORT_FILES / "mimic_readmission.yaml"


@pytest.fixture
def run_command(capsys, tmp_path):
    """Return a function that runs a command and returns its exit code and output."""

    def run(*arguments, data=tmp_path):
        code = main([*map(str, arguments), *(["--data", str(data)] if arguments[0] == "check" else [])])
        return code, capsys.readouterr().out

    return run


def write_patients(folder, count, *, far=True, splits=("train",)):
    """Write patients with two stays each, 20 or 60 days apart; three patients do not come back."""
    subjects = [subject(number, splits[number // 2 % len(splits)]) for number in range(1, count + 1)]
    first = [stay(n, DAY_ZERO, DAY_ZERO + DAY, of=n) for n in range(1, count + 1)]
    later = {n: DAY_ZERO + (60 if far and n % 2 else 20) * DAY for n in range(1, count - 2)}
    later_stays = [stay(1000 + n, start, start + DAY, of=n) for n, start in later.items()]
    write(Layout(folder / "mimic"), subjects, first + later_stays, [])


def test_check_shows_all_faults_of_all_files_with_lines(run_command, tmp_path):
    for name, text in (
        ("a.yaml", MORTALITY.replace("keep", "kep")),
        ("b.yaml", RETURN_HOME.replace("within: 30 days", "within: 30").replace("[EI, IP]", "[EA, IP]")),
    ):
        (tmp_path / name).write_text(text)
    code, out = run_command("check", tmp_path / "a.yaml", tmp_path / "b.yaml", READMISSION)
    assert code == 1
    starts = [line.partition(": ")[0] for line in out.splitlines() if line.startswith(str(tmp_path))]
    assert starts == [f"{tmp_path}/a.yaml:6", f"{tmp_path}/b.yaml:7", f"{tmp_path}/b.yaml:17"]
    assert "mimic_readmission: another admission" in out


def test_in_english_describes_a_valid_file():
    lines = in_english(parse_text(RETURN_HOME, file="c.yaml"))
    assert lines[1:] == [
        "For: every encounter of type EI or IP discharged to HO or HH that has ended, from 2016-01-01 on, "
        "at an age from 0 days to under 18 years.",
        "Required, in this order:",
        "  - discharged: it has ended",
        "  - not a birth: it has no code of birth",
        "  - 30 days left: the data reach to 30 days after the end of the index encounter",
        "Predicted at: the end of the index encounter.",
        "From: everything known by the prediction.",
        "Outcome: another encounter of type ED, EI or IP starts within 30 days after the prediction.",
        "Split: patients born on days 17 to 24 of a month are the test set.",
        "Codes of birth: ICD-10-CM Z38*; ICD-9-CM V30*, V31*, V32*, V33*, V34*, V35*, V36*, V37*, V38*, V39*.",
    ]


def test_in_english_defines_first_and_new_episodes():
    text = RETURN_HOME.replace("{any_encounter: {type: [ED, EI, IP]}, within: 30 days}", EPISODES)
    assert in_english(parse_text(text, file="c.yaml"))[8] == (
        "Outcome: episodes of birth, 3 within 6 months or 4 within 12 months, the last of them within 1 year after the "
        "prediction; the index encounter is the first episode, and an encounter more than 14 days after the "
        "previous one with a code starts a new one."
    )


@pytest.mark.parametrize("path", sorted(COHORT_FILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_in_english_describes_every_shipped_cohort(path):
    assert all(line.strip() and "None" not in line for line in in_english(parse_cohort(path)))


def test_check_shows_attrition_without_small_counts(run_command, tmp_path):
    write_patients(tmp_path, 40)
    code, out = run_command("check", READMISSION)
    assert code == 0
    assert "all patients (counts under 11, and those that would reveal one, are withheld):" in out
    lines = out[out.index("step ") :].splitlines()
    assert [line.split() for line in lines[1:6]] == [
        ["all", "encounters", "77", "40", "0", "0.00"],
        ["has", "an", "end", "after", "its", "start", "77", "40", "0", "0.00"],
        ["discharged", "alive", "77", "40", "0", "0.00"],
        # 37 of 40: three do not come back
        [
            "admitted",
            "again",
            "later",
            "withheld",
            "withheld",
            "withheld",
        ],
        ["no", "outcome", "by", "predict_at", "withheld", "withheld", "withheld"],
    ]
    assert "37" not in out.replace(str(tmp_path), "")


def test_check_shows_every_count_of_synthetic_patients(run_command, tmp_path):
    write_patients(tmp_path, 40)
    StepCard(step="raw", contract="any/1", synthetic=True).write(Layout(tmp_path / "mimic").cards)
    _, out = run_command("check", READMISSION)
    assert "all patients (synthetic, so that no count is withheld):" in out
    assert ["admitted", "again", "later", "37", "37", "40", "51.95"] in map(str.split, out.splitlines())


def test_sample_counts_only_the_first_patients(tmp_path):
    write_patients(tmp_path, 400, splits=SPLITS)
    layout, rules = Layout(tmp_path / "mimic"), PRESETS["default"]
    sample = derive_sample(mimic("readmission"), layout, rules, patients=150)
    first = sample.labels.steps[0]
    assert (sample.is_everyone, first.patients, first.index_rows) == (False, 150, 300)
    everyone = derive_sample(mimic("readmission"), layout, rules, patients=200)
    assert (everyone.is_everyone, everyone.labels.steps[0].patients) == (True, 400)


@pytest.mark.parametrize(("patients", "is_warned"), [(80, False), (60, True)])
def test_check_warns_of_splits_with_few_patients_with_or_without_the_outcome(
    patients, is_warned, run_command, tmp_path
):
    """A third of the patients is in each split, half of them with the outcome."""
    write_patients(tmp_path, patients, splits=SPLITS)
    code, out = run_command("check", READMISSION)
    assert code == 0
    words = (
        "the test split has under 11 patients with, or without, the outcome, so that no score will be shown"
    )
    assert (f"WARN {words}" in out) is is_warned


def test_few_patients_of_a_sample_are_no_warning_where_all_are_enough(tmp_path):
    write_patients(tmp_path, 400, splits=SPLITS)
    sample = derive_sample(mimic("readmission"), Layout(tmp_path / "mimic"), PRESETS["default"], patients=60)
    assert (sample.is_everyone, [words for words in sample.warnings if "patients" in words]) == (False, [])


def test_sample_counts_all_patients_when_the_first_are_not_trainable(tmp_path):
    write_patients(tmp_path, 40)
    sample = derive_sample(mimic("readmission"), Layout(tmp_path / "mimic"), PRESETS["default"], patients=1)
    assert (sample.is_everyone, sample.labels.steps[0].patients, sample.not_trainable) == (True, 40, [])


def test_sample_counts_all_patients_when_the_first_do_not_tell_whether_they_are_enough(tmp_path):
    write_patients(tmp_path, 130, splits=SPLITS)
    sample = derive_sample(mimic("readmission"), Layout(tmp_path / "mimic"), PRESETS["default"], patients=20)
    assert (sample.is_everyone, sample.not_trainable) == (True, [])


@pytest.mark.parametrize(
    ("far", "age", "reason"),
    [
        (False, "[0 days, 120 years]", "the training split has only rows with the outcome, or only without"),
        (True, "[119 years, 120 years]", "the cohort is empty"),
    ],
)
def test_check_exits_with_1_when_labels_are_not_trainable(far, age, reason, run_command, tmp_path):
    write_patients(tmp_path, 40, far=far)
    file = tmp_path / "mimic_readmission.yaml"
    file.write_text(READMISSION.read_text().replace("keep: every", f"keep: every, age: {age}"))
    code, out = run_command("check", file)
    assert code == 1
    assert f"WARN not trainable: {reason}" in out


def test_check_prints_every_warning_of_the_labels_card(run_command, tmp_path):
    write_patients(tmp_path, 40)
    file = tmp_path / "mimic_readmission.yaml"
    file.write_text(
        READMISSION.read_text().replace("within: 30 days", "within: 30 years")
        + "codes: {unused: {itemid: ['59012'], atc: [B01*]}}\n"
    )
    _, out = run_command("check", file)
    card = write_labels(parse_cohort(file), Layout(tmp_path / "mimic"), PRESETS["default"])
    assert [
        line.removeprefix("WARN ") for line in out.splitlines() if line.startswith("WARN ")
    ] == card.warnings
    assert {warning.split(":")[0] for warning in card.warnings} >= {
        *("codes.unused", "codes.unused.itemid", "codes.unused.atc"),
        *("not trainable", "the validation split has no rows"),
    }


def test_check_without_tables_accepts_the_file_and_counts_nothing(run_command, tmp_path):
    code, out = run_command("check", READMISSION)
    assert code == 0
    assert f"No tables of mimic in {tmp_path} yet: nothing is counted." in out


def test_check_reports_unanswerable_filters_as_faults_of_the_file(run_command, tmp_path):
    write_patients(tmp_path, 12)
    file = tmp_path / "typed.yaml"
    file.write_text(
        READMISSION.read_text().replace("{any_encounter: {}, within", "{any_encounter: {type: IP}, within")
    )
    code, out = run_command("check", file)
    assert code == 1
    assert out.startswith(f"{file}:10: outcome.any_encounter.type: every encounter's type is empty")


@pytest.mark.parametrize("source", [None, "meds", "pcornet"])
def test_new_file_is_valid_and_points_to_the_schema(run_command, source, tmp_path):
    code, out = run_command(
        "new", "my_cohort", "--folder", tmp_path, *(["--source", source] if source else [])
    )
    file = tmp_path / "my_cohort.yaml"
    assert (code, out.strip()) == (0, str(file))
    code, out = run_command("check", file)
    assert code == 0
    assert "WARN" not in out
    cohort = parse_cohort(file)
    assert (cohort.cohort, cohort.source, cohort.warnings()) == ("my_cohort", source or "mimic", [])
    schema = file.read_text().partition("\n")[0].removeprefix("# yaml-language-server: $schema=")
    assert (tmp_path / schema).resolve().name == "cohort.schema.json"
    assert (tmp_path / schema).exists()


def test_new_file_like_an_example_is_valid_under_its_own_name(run_command, tmp_path):
    code, out = run_command("new", "my_cohort", "--like", "ehrshot_anemia", "--folder", tmp_path)
    assert (code, out.strip()) == (0, str(tmp_path / "my_cohort.yaml"))
    copy, example = parse_cohort(tmp_path / "my_cohort.yaml"), parse_cohort(EXAMPLES / "ehrshot_anemia.yaml")
    assert copy.cohort == "my_cohort"
    assert copy.normalized() | {"cohort": ""} == example.normalized() | {"cohort": ""}


def test_new_file_like_an_unknown_example_suggests_the_nearest(capsys, tmp_path):
    assert main(["new", "mine", "--like", "ehrshot_anaemia", "--folder", str(tmp_path)]) == 2
    assert "no example named 'ehrshot_anaemia'; did you mean 'ehrshot_anemia'?" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_check_warns_when_file_and_cohort_names_differ(run_command, tmp_path):
    file = tmp_path / "readmission.yaml"
    file.write_text(READMISSION.read_text())
    code, out = run_command("check", file)
    assert code == 0
    assert "WARN readmission.yaml: its assets are called mimic_readmission_…; rename it" in out


def test_new_never_overwrites_a_file(run_command, capsys, tmp_path):
    (tmp_path / "mine.yaml").write_text("mine")
    assert main(["new", "mine", "--folder", str(tmp_path)]) == 2
    assert "the file exists already" in capsys.readouterr().err
    assert (tmp_path / "mine.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "folder", "message"),
    [
        ("My Cohort", ".", "'My Cohort' is not a valid name: use lower-case"),
        ("mine", "none/such", "none/such: no such folder"),
        ("mine_nest", ".", "'mine_nest' ends in _nest, like an output of another cohort"),
    ],
)
def test_new_explains_why_a_file_cannot_be_written(capsys, tmp_path, name, folder, message):
    assert main(["new", name, "--folder", str(tmp_path / folder)]) == 2
    assert message in capsys.readouterr().err


def test_check_from_a_cold_start_takes_under_five_cpu_seconds(tmp_path):
    """Measure CPU time, which does not depend on the load of the machine."""
    write_patients(tmp_path, 400)
    usage_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pipelines.cohorts", "check", READMISSION, "--data", tmp_path]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    usage_after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert "no outcome by predict_at" in process.stdout
    assert usage_after.ru_utime + usage_after.ru_stime - usage_before.ru_utime - usage_before.ru_stime < 5

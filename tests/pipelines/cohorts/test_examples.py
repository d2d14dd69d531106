"""Every example of the page for clinicians is valid, has an English description, and gives both labels."""

import re
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from pipelines.cohorts import write_labels
from pipelines.cohorts.template import write_template
from schemas.cohort import NUMBERS, Cohort, parse_cohort, parse_text
from schemas.cohort.english import in_english
from schemas.cohort.model import SOURCES
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.support.cohort_tables import COHORT_FILES, DAY, HOUR, Row, diagnosis, stay, subject, write

PAGE = (Path(__file__).parents[3] / "docs" / "cohorts.md").read_text()
EXAMPLES = [
    parse_text(text, file="docs/cohorts.md") for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
]
PCORNET = sorted(COHORT_FILES.glob("pcornet_*.yaml"))
KIND = {
    "cpt": "PR",
    "icd10pcs": "PR",
    "icd9pcs": "PR",
    "loinc": "LAB",
    "itemid": "LAB",
    "atc": "MED",
    "cvx": "IMM",
}


def make_patients(cohort: Cohort, seed: int = 0) -> tuple[list[Row], list[Row], list[Row]]:
    """Return patients whose ages, encounters and codes match the file in part."""
    random, attributes = Random(seed), Random(seed)
    years = cohort.index.age[0].months // 12 if cohort.index.age else 40
    subjects, encounters, events = list[Row](), list[Row](), list[Row]()
    for of in range(1, 151):
        birth = datetime(2016, 1, 1) + random.randrange(700) * DAY
        split = "test" if 17 <= birth.day <= 24 else random.choice(["train", "train", "train", "val"])
        subjects.append(subject(of, split) | {"birth_date": birth, "sex": attributes.choice(["F", "M"])})
        start = birth if years < 3 else birth + years * 366 * DAY
        rates = {name: random.choice([0.0, 0.05, 0.4]) for name in cohort.codes}
        visits = random.randint(2, 30)
        for place in range(visits):
            if years < 3 and place == visits - 1:
                start = birth + random.choice([3, 5]) * 366 * DAY  # some are seen when they are older
            number, length = of * 100 + place, random.choice([HOUR, 2 * DAY, 4 * DAY, 9 * DAY])
            encounters.append(stay(number, start, start + length, died=random.random() < 0.1, of=of))
            encounters[-1] |= {
                "type": random.choice(["IP", "EI", "ED", "AV"]),
                "discharge_status": random.choice(["HO", "SN"]),
                "admission_type": attributes.choice(["EW EMER.", "URGENT", "DIRECT EMER.", "ELECTIVE"]),
            }
            events += [
                row | {"time": start, "available_at": start + length} | _value(row, random, start, length)
                for row in _codes(random, cohort, rates, number, of)
            ]
            start += length + random.choice([1, 20, 40, 100]) * DAY
        subjects[-1]["death_date"] = attributes.choice([None, start - 30 * DAY])
    return subjects, encounters, events


def _value(row: Row, random: Random, start: datetime, length: timedelta) -> Row:
    """Return the value, unit and time of a laboratory value; nothing for other events."""
    if row["kind"] != "LAB":
        return {}
    return {
        "value": random.random(),
        "unit": random.choice(["mg/dL", "g/L"]),
        "time": start + random.random() * length,
    }


def _codes(random: Random, cohort: Cohort, rates: dict[str, float], number: int, of: int) -> list[Row]:
    """Return the first diagnosis of the stay, and codes of the lists of the file at the rates of the patient."""
    rows = [diagnosis(number, code := random.choice(["I10", "J189", "E039"]), code, vocab="icd10cm", of=of)]
    for name, code_list in cohort.codes.items():
        vocab, patterns = random.choice(list(code_list.patterns.items()))
        code = random.choice(patterns).removesuffix("*")
        if random.random() < rates[name]:
            row = diagnosis(number, code, code, vocab="name" if vocab == "atc" else vocab, rank=2, of=of)
            measurement = {"value": random.choice([4.0, 6.0]), "unit": "mEq/L"} if vocab == "itemid" else {}
            rows.append(row | {"kind": KIND.get(vocab, "DX")} | measurement)
    return rows


@pytest.mark.docs
def test_sixteen_examples_have_distinct_names():
    assert len(EXAMPLES) == len({cohort.cohort for cohort in EXAMPLES}) == 16


@pytest.mark.parametrize("cohort", EXAMPLES, ids=lambda cohort: cohort.cohort)
def test_example_runs_and_has_both_outcomes(cohort, tmp_path):
    assert_both_labels(cohort, tmp_path)


@pytest.mark.parametrize("source", SOURCES)
def test_new_file_runs_and_has_both_outcomes(source, tmp_path):
    cohort = parse_cohort(write_template("mine", source, tmp_path))
    assert (cohort.cohort, cohort.source) == ("mine", source)
    assert_both_labels(cohort, tmp_path)


def assert_both_labels(cohort: Cohort, folder: Path) -> None:
    assert cohort.warnings() == []
    assert len(in_english(cohort)) >= 6
    layout = Layout(folder / cohort.source)
    write(layout, *make_patients(cohort))
    card = write_labels(cohort, layout, PRESETS["default"])
    counts = card.counts
    assert counts["rows"] >= 20
    assert all(step in card.flows["encounters"].dropped for step, _ in cohort.requirements)
    if isinstance(cohort.outcome, NUMBERS):
        assert len(pq.read_table(layout.labels(cohort.cohort))["label"].unique()) > 1
    elif "positives_train" in counts:
        assert 0 < counts["positives_train"] < counts["rows_train"]
    else:
        assert len([name for name, count in counts.items() if name.startswith("class_") and count]) > 2


@pytest.mark.docs
@pytest.mark.parametrize("path", PCORNET, ids=lambda path: path.stem)
def test_paediatric_files_equal_the_examples_of_the_page(path):
    (example,) = [cohort for cohort in EXAMPLES if cohort.cohort == path.stem]
    assert parse_cohort(path).sha256 == example.sha256

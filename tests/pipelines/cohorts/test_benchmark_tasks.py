"""The examples to copy, tasks of published benchmarks: each is valid, cites its source, and agrees with SQL."""

import re

import pytest

from pipelines.cohorts import sample, write_labels
from pipelines.cohorts.read import kinds_to_read, read_bucket
from pipelines.cohorts.template import EXAMPLES
from pipelines.sources.mimic.steps import (
    extract_encounters,
    extract_events,
    extract_subjects,
    find_source,
    inspect_raw,
)
from pipelines.synthetic.mimic.write import write_mimic
from schemas.cohort import parse_cohort
from schemas.cohort.english import in_english
from schemas.layout import Layout
from schemas.rules import PRESETS
from tests.support.cohort_tables import COHORT_FILES
from tests.support.reference_cohorts_sql import CohortSql

FILES = sorted(EXAMPLES.glob("*.yaml"))
RULES = PRESETS["default"]


def test_examples_are_beside_the_cohorts_and_among_none_of_them():
    assert EXAMPLES == COHORT_FILES / "examples"
    assert not {file.stem for file in FILES} & {file.stem for file in COHORT_FILES.glob("*.yaml")}
    assert {re.match(r"[a-z]+", file.stem)[0] for file in FILES} == {"ehrshot", "fomoh", "meds"}
    assert len(FILES) == 21


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_example_is_valid_and_cites_its_source(file):
    cohort = parse_cohort(file)
    assert (cohort.cohort, cohort.warnings()) == (file.stem, [])
    assert re.search(r"^# Source: .*github\.com/", file.read_text("utf-8"), re.M)
    assert all("None" not in line for line in in_english(cohort))


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """Return the tables of 400 synthetic patients."""
    folder = tmp_path_factory.mktemp("synthetic")
    raw, layout = folder / "raw", Layout(folder / "mimic")
    write_mimic(raw, raw / "planted.parquet", patients=400, seed=42, tokens_per_set_median=120)
    source = find_source(raw, raw / "vocab")
    inspect_raw(source, layout)
    extract_subjects(source, layout, RULES)
    extract_encounters(source, layout)
    extract_events(source, layout, RULES)
    return layout


@pytest.mark.long
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_example_on_synthetic_patients_agrees_with_sql(layout, file):
    cohort = parse_cohort(file)
    tables = read_bucket(cohort, layout, kinds_to_read(cohort, layout), 0)
    frames = (tables.subjects.collect(), tables.encounters.collect(), tables.events.collect())
    labels = sample.derive_sample(cohort, layout, RULES).labels
    sql = CohortSql(cohort.normalized(), *frames, RULES.clock)
    assert [
        (step.step, step.index_rows, step.patients, step.dropped) for step in labels.steps
    ] == sql.attrition
    assert labels.rows.rows() == sql.labels
    card = write_labels(cohort, layout, RULES)
    assert card.counts["rows"] == labels.rows.height > 0
    if labels.label_type == "class":
        assert labels.rows["label"].n_unique() > 1
    elif not file.stem.startswith("ehrshot_new_"):  # too rare in synthetic patients
        assert 0 < labels.rows["label"].sum() < labels.rows.height

"""Tests of the JSON Schema for editors: equal to the models' output, valid for good files, and able to find faults."""

import json
from datetime import date
from pathlib import Path

import jsonschema
import pytest
import yaml

from schemas.cohort import CohortError, parse_text
from schemas.cohort.json_schema import FILE, json_schema
from tests.schemas.cohort.test_cohort import EPISODES, MORTALITY, RETURN_HOME

VALIDATOR = jsonschema.Draft7Validator(json_schema())
COHORTS = sorted((Path(__file__).parents[3] / "assets" / "cohorts").glob("*.yaml"))


def is_valid(text):
    return VALIDATOR.is_valid(_dates_as_written(yaml.safe_load(text)))


def _dates_as_written(node):
    """Return a document with its dates as text, as editors' YAML parsers read them."""
    if isinstance(node, dict):
        return {key: _dates_as_written(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_dates_as_written(item) for item in node]
    return node.isoformat() if isinstance(node, date) else node


def test_schema_file_equals_the_output_of_the_models():
    """To regenerate the file: python -m pipelines.cohorts schema > schemas/cohort/cohort.schema.json"""
    assert json.loads(FILE.read_text()) == json_schema()
    jsonschema.Draft7Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", COHORTS, ids=lambda path: path.stem)
def test_schema_accepts_every_cohort_file_in_the_repository(path):
    assert is_valid(path.read_text())


@pytest.mark.parametrize(
    "change",
    [
        ("keep: every", "keep: first"),
        ("keep: every", "keep: nearest 18 months"),
        ("type: [EI, IP]", "type: IP"),
        ("{any_encounter: {type: [ED, EI, IP]}, within: 30 days}", EPISODES),
        ("within: 30 days", "within: end_of_data"),
        ("within: 30 days", "until: birth + 4 years"),
        ("{index_has: end}", "index_alive"),
        ("{index_has: end}", "{any_of: [index_alive, {not: {index_is: {sex: F}}}]}"),
        ("{index_has: end}", "{at_least: 1, of: [index_alive, {index_age: [1 year, 2 years]}]}"),
        ("{index_has: end}", "{lab: birth, above: 7.3, times: 3 in 24 hours, before: predict_at}"),
        ("{any_encounter: {type: [ED, EI, IP]}, within: 30 days}", "{died: true, within: 30 days}"),
        (
            "{any_encounter: {type: [ED, EI, IP]}, within: 30 days}",
            "{lab: birth, between: [3.5 mmol/L, 5 mmol/L], which: first, within: 30 days}",
        ),
        ("{index_has: end}", "{event: birth, after: index.start - 1 year, before: predict_at}"),
        ("{until: predict_at}", "{until: predict_at, since: index.start - 1 year, drop_types: LAB}"),
        ("[17, 24]", "[1, 31]"),
        ("icd10cm: [Z38*]", "icd10cm: Z38*"),
    ],
    ids=str,
)
def test_schema_accepts_a_file_that_the_parser_accepts(change):
    text = RETURN_HOME.replace(*change)
    assert text != RETURN_HOME
    parse_text(text, file="c.yaml")
    assert is_valid(text)


@pytest.mark.parametrize(
    "change",
    [
        ("keep: every", "kep: every"),
        ("keep: every", "keep: all"),
        ("cohort: mortality", "cohort: Mortality"),
        ("about: death in the stay\n", ""),
        ("source: mimic", "source: mymic"),
        ("icd10cm: [A41*]", "icd10: [A41*]"),
        ("icd10cm: [A41*]", "icd9cm: [382.1]"),
        ("longer_than: 24 hours", "longer_than: 24"),
        ("{index_longer_than: 24 hours}", "{index_longer: 24 hours}"),
        ("{index_longer_than: 24 hours}", "{event: sepsis}"),
        ("{index_longer_than: 24 hours}", "{any_of: [index_alive]}"),
        ("{index_longer_than: 24 hours}", "{lab: sepsis, before: predict_at}"),
        ("{index_longer_than: 24 hours}", "{lab: sepsis, above: 1 g, below: 2 g, before: predict_at}"),
        ("{index_longer_than: 24 hours}", "{lab: sepsis, above: high, before: predict_at}"),
        ("outcome: index_died", "outcome: {died: true}"),
        ("{index_longer_than: 24 hours}", "{no_event: sepsis}"),
        ("predict_at: index.start + 24 hours", "predict_at: birth"),
        ("until: predict_at,", "until: index.end,"),
        ("drop_from_index: [DX]", "drop_from_index: [DIAGNOSES]"),
        ("outcome: index_died", "outcome: {any_event: sepsis}"),
        ("outcome: index_died", "outcome: {any_event: sepsis, within: 1 year, until: end_of_data}"),
        ("outcome: index_died", "outcome: {episodes_of: sepsis, at_least: [3], within: 1 year}"),
        ("[70, 15, 15]", "[80, 10, 10]"),
        ("{hash: [70, 15, 15]}", "{hash: [70, 15, 15], test_if_birth_day: [1, 2]}"),
    ],
    ids=str,
)
def test_parser_refuses_a_file_that_the_schema_refuses(change):
    text = MORTALITY.replace(*change)
    assert text != MORTALITY
    assert not is_valid(text)
    with pytest.raises(CohortError):
        parse_text(text, file="c.yaml")

"""Settings are read from NEST_… alone, and a wrong one ends in one clean line."""

import re
from pathlib import Path
from typing import Literal

import pytest
from pydantic import ValidationError

from schemas.errors import NestError
from schemas.rules import PRESETS, DataRules
from schemas.settings import Settings


@pytest.fixture(autouse=True)
def _no_settings_of_the_developer(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.upper().startswith("NEST_")]:
        monkeypatch.delenv(name)


def test_without_any_setting_the_input_is_synthetic_and_the_preset_the_default() -> None:
    settings = Settings()
    assert (settings.mimic_dir, settings.vocab_dir, settings.preset) == (None, None, "default")
    assert settings.rules == DataRules()


def test_an_empty_setting_is_none_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEST_MIMIC_DIR", "NEST_VOCAB_DIR", "NEST_SEED", "NEST_PRESET"):
        monkeypatch.setenv(name, "")
    settings = Settings()
    assert (settings.mimic_dir, settings.vocab_dir, settings.seed, settings.preset) == (
        None,
        None,
        42,
        "default",
    )


def test_settings_are_read_from_the_environment_and_overridden_in_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEST_PRESET", "paper")
    monkeypatch.setenv("NEST_SYNTHETIC_PATIENTS", "150")
    assert (Settings().rules, Settings().synthetic_patients) == (PRESETS["paper"], 150)
    assert Settings(preset="default").rules == PRESETS["default"]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_link_of_drugs_is_set_over_the_preset_and_changes_nothing_else(
    preset: Literal["default", "paper"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEST_PRESET", preset)
    assert Settings().rules == PRESETS[preset]
    monkeypatch.setenv("NEST_MED_LINK", "pharmacy")
    assert Settings().rules == DataRules(**PRESETS[preset].model_dump() | {"med_link": "pharmacy"})


def test_the_preset_of_the_paper_fits_on_all_and_cuts_on_time() -> None:
    paper = PRESETS["paper"]
    assert (paper.fit_on, paper.min_count, paper.clock, paper.pretrain_split, paper.cse_position) == (
        "all",
        1,
        "time",
        (0.80, 0.90),
        "days_since_prior",
    )


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("NEST_MIMC_DIR", "did you mean NEST_MIMIC_DIR?"),
        ("NEST_PATIENTS", "did you mean NEST_SYNTHETIC_PATIENTS?"),
        ("NEST_XYZ", "known are NEST_DATA_DIR"),
        ("nest_presett", "did you mean NEST_PRESET?"),
    ],
)
def test_an_unknown_setting_is_refused_with_a_suggestion(
    name: str, suggestion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "anything")
    with pytest.raises(NestError, match=re.escape(suggestion)) as caught:
        Settings()
    assert "\n" not in str(caught.value)


def test_a_databases_credentials_are_no_unknown_settings_and_in_no_settings_object(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NEST_DB_USER", "NEST_DB_PASSWORD", "NEST_DB_DSN"):
        monkeypatch.setenv(name, "canary")
    assert "canary" not in repr(Settings()) + Settings().model_dump_json()


def test_real_input_without_crosswalks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEST_MIMIC_DIR", "somewhere")
    with pytest.raises(NestError, match="NEST_VOCAB_DIR is not; set it to the folder with the crosswalks"):
        Settings()
    monkeypatch.setenv("NEST_VOCAB_DIR", "elsewhere")
    assert (Settings().mimic_dir, Settings().vocab_dir) == (Path("somewhere"), Path("elsewhere"))


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NEST_PRESET", "papper", "NEST_PRESET: .*'default' or 'paper'"),
        ("NEST_PRESET", "papper", "did you mean paper?"),
        ("NEST_MODEL", "smal", "NEST_MODEL: .*'small'.*did you mean small?"),
        ("NEST_MED_LINK", "gsn", "NEST_MED_LINK: .*'name' or 'pharmacy'"),
        ("NEST_SEED", "forty-two", "NEST_SEED: .*integer"),
        ("NEST_SYNTHETIC_PATIENTS", "0", "NEST_SYNTHETIC_PATIENTS: .*greater than or equal to 1"),
        ("NEST_GSN_ATC_URL", "ftp://host/gsn.csv", "NEST_GSN_ATC_URL: .*https"),
    ],
)
def test_a_wrong_value_ends_in_one_line_that_names_the_setting(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(NestError, match=said) as caught:
        Settings()
    assert "\n" not in str(caught.value)


def test_several_wrong_values_are_told_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEST_PRESET", "papper")
    monkeypatch.setenv("NEST_SEED", "x")
    with pytest.raises(NestError, match=r"NEST_PRESET: .*; NEST_SEED: "):
        Settings()


def test_settings_cannot_be_changed_once_read() -> None:
    with pytest.raises(ValidationError):
        Settings().seed = 1


def test_an_object_store_is_worked_on_in_a_folder_below_ones_own_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEST_DATA_DIR", "s3://hospital/nest")
    assert Settings().data_folder.parent == Path("~/.cache/nest").expanduser().resolve()


def test_the_first_of_several_seeds_is_the_seed_of_all_else(monkeypatch):
    assert Settings().all_seeds == (42,)
    monkeypatch.setenv("NEST_SEEDS", "7, 42,123")
    assert (Settings().seed, Settings().all_seeds) == (7, (7, 42, 123))
    monkeypatch.setenv("NEST_SEED", "7")
    assert Settings().seed == 7
    assert Settings(pretraining_seeds=True).pretraining_seeds


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"seeds": "42,42"}, "NEST_SEEDS: seed 42 is named twice"),
        ({"seeds": "42,x"}, "NEST_SEEDS: 'x' is not a seed"),
        ({"seeds": "42,-7"}, "NEST_SEEDS: '-7' is not a seed"),
        ({"seeds": "42,123", "seed": 123}, "NEST_SEED: seed 123 is not the first of the seeds 42, 123"),
        ({"seed": -1}, "NEST_SEED: Input should be greater than or equal to 0"),
        (
            {"pretraining_seeds": True},
            "NEST_PRETRAINING_SEEDS pretrains once with each of NEST_SEEDS, and there is one seed alone",
        ),
    ],
)
def test_what_is_not_a_seed_or_contradicts_the_others_is_refused(values, words):
    with pytest.raises(NestError, match=words):
        Settings(**values)

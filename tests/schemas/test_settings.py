"""Tests that settings are read only from NEST_… variables, and an invalid one raises one clean line."""

import re
from pathlib import Path
from typing import Literal

import pytest
from pydantic import ValidationError

from schemas.errors import NestError
from schemas.rules import PRESETS, DataRules
from schemas.settings import Settings


@pytest.fixture(autouse=True)
def _clear_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in [name for name in os.environ if name.upper().startswith("NEST_")]:
        monkeypatch.delenv(name)


def test_settings_default_to_synthetic_input_and_the_default_preset() -> None:
    settings = Settings()
    assert (settings.mimic_dir, settings.vocab_dir, settings.preset) == (None, None, "default")
    assert settings.rules == DataRules()


def test_empty_setting_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NEST_MIMIC_DIR", "NEST_VOCAB_DIR", "NEST_SEED", "NEST_PRESET"):
        monkeypatch.setenv(name, "")
    settings = Settings()
    assert (settings.mimic_dir, settings.vocab_dir, settings.seed, settings.preset) == (
        None,
        None,
        42,
        "default",
    )


def test_settings_are_read_from_the_environment_unless_given_in_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEST_PRESET", "paper")
    monkeypatch.setenv("NEST_SYNTHETIC_PATIENTS", "150")
    assert (Settings().rules, Settings().synthetic_patients) == (PRESETS["paper"], 150)
    assert Settings(preset="default").rules == PRESETS["default"]


@pytest.mark.parametrize("preset", PRESETS)
def test_med_link_overrides_only_one_rule_of_the_preset(
    preset: Literal["default", "paper"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEST_PRESET", preset)
    assert Settings().rules == PRESETS[preset]
    monkeypatch.setenv("NEST_MED_LINK", "pharmacy")
    assert Settings().rules == DataRules(**PRESETS[preset].model_dump() | {"med_link": "pharmacy"})


def test_paper_preset_fits_on_all_and_cuts_on_time() -> None:
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
        ("NEST_XYZ", "the settings are NEST_DATA_DIR"),
        ("nest_presett", "did you mean NEST_PRESET?"),
    ],
)
def test_unknown_setting_is_refused_with_a_suggestion(
    name: str, suggestion: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "anything")
    with pytest.raises(NestError, match=re.escape(suggestion)) as error:
        Settings()
    assert "\n" not in str(error.value)


def test_database_credentials_are_accepted_but_not_stored(
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
    ("name", "value", "pattern"),
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
def test_invalid_value_raises_one_line_that_names_the_setting(
    name: str, value: str, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(NestError, match=pattern) as error:
        Settings()
    assert "\n" not in str(error.value)


def test_several_invalid_values_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEST_PRESET", "papper")
    monkeypatch.setenv("NEST_SEED", "x")
    with pytest.raises(NestError, match=r"NEST_PRESET: .*; NEST_SEED: "):
        Settings()


def test_settings_are_immutable() -> None:
    with pytest.raises(ValidationError):
        Settings().seed = 1


def test_object_store_has_a_local_folder_below_the_home_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NEST_DATA_DIR", "s3://hospital/nest")
    assert Settings().data_folder.parent == Path("~/.cache/nest").expanduser().resolve()


def test_first_of_several_seeds_is_the_main_seed(monkeypatch):
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
            "NEST_PRETRAINING_SEEDS pretrains once with each of NEST_SEEDS, but there is only one seed",
        ),
    ],
)
def test_invalid_or_contradictory_seeds_are_refused(values, words):
    with pytest.raises(NestError, match=words):
        Settings(**values)

"""History, data and code are those of the checkout a command is run from, even if the environment is another's."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from assets.environment.nest_environment import history_folder
from tests.support.commands import ROOT, copy_checkout

SHOW = """
import json, os
import assets, nest_model
names = ("DAGSTER_HOME", "DAGSTER_NEST_STORAGE", "NEST_DATA_DIR", "DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME")
print(json.dumps({name: os.environ.get(name) for name in names} | {"code": [assets.__file__, nest_model.__file__]}))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment outside any checkout, in which this checkout is installed as editable."""
    place = tmp_path_factory.mktemp("environment") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
    packages = place / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for file in (ROOT / "assets" / "environment").glob("nest_environment.p*"):
        shutil.copy(file, packages)
    (packages / "_editable_impl_nest.pth").write_text(f"{ROOT}\n")
    (packages / "_others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")  # whose own .pth are not read
    return place / "bin" / "python"


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root of a second checkout."""
    place = tmp_path_factory.mktemp("second") / "nest"
    copy_checkout(place)
    return place


def execute(python: Path, *arguments: str, folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    ours = ("NEST_", "DAGSTER_", "PYTHONPATH")
    other_variables = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return subprocess.run(
        [str(python), *arguments],
        cwd=folder,
        env=other_variables | settings,
        capture_output=True,
        text=True,
        timeout=300,
    )


def visible_values(python: Path, folder: Path, **settings: str) -> dict:
    return json.loads(execute(python, "-c", SHOW, folder=folder, **settings).stdout)


def expected(root: Path, data: Path) -> dict:
    return {
        "DAGSTER_HOME": str(root),
        "DAGSTER_NEST_STORAGE": str(history_folder(root, str(data))),
        "NEST_DATA_DIR": str(data),
        "DAGSTER_CLI_JOB_EXECUTE_MODULE_NAME": "assets.definitions",
        "code": [str(root / room / "__init__.py") for room in ("assets", "nest_model")],
    }


@pytest.mark.parametrize("below", ["", "schemas/cohort"])
def test_command_uses_the_checkout_of_the_working_folder(below: str, python: Path, second: Path):
    assert visible_values(python, second / below) == expected(second, second / "data")
    assert visible_values(python, ROOT / below) == expected(ROOT, ROOT / "data")


def test_child_command_in_another_checkout_has_new_defaults(python: Path, second: Path):
    start = f"import subprocess; subprocess.run([{str(python)!r}, '-c', {SHOW!r}], cwd={str(second)!r})"
    assert json.loads(execute(python, "-c", start, folder=ROOT).stdout) == expected(second, second / "data")


def test_process_outside_the_checkout_keeps_the_defaults(python: Path, second: Path, tmp_path: Path):
    start = f"import subprocess; subprocess.run([{str(python)!r}, '-c', {SHOW!r}], cwd={str(tmp_path)!r})"
    assert json.loads(execute(python, "-c", start, folder=second).stdout) == expected(second, second / "data")


def test_variables_set_by_the_user_are_kept(python: Path, second: Path, tmp_path: Path):
    user_settings = {"DAGSTER_HOME": str(tmp_path), "DAGSTER_NEST_STORAGE": str(tmp_path / "history")}
    assert visible_values(python, second, **user_settings).items() >= user_settings.items()


def test_relative_data_folder_becomes_absolute(python: Path, second: Path):
    assert visible_values(python, second, NEST_DATA_DIR="data-real") == expected(second, second / "data-real")


def test_no_variable_is_set_outside_a_checkout(python: Path, tmp_path: Path):
    values = visible_values(python, tmp_path)
    assert set(values) - {"code"} == {name for name, value in values.items() if value is None}


def test_each_data_folder_has_a_history_that_moves_with_the_checkout(tmp_path: Path):
    root = tmp_path / "nest"
    folders = [root / "data", root / "data-real", root / "b" / "data", tmp_path / "data"]
    places = [*map(str, folders), "s3://bucket/data", "s3://other/data"]
    histories = [history_folder(root, place) for place in places]
    assert len(set(histories)) == len(places)
    assert {history.parent for history in histories} == {root / ".dagster"}
    new_root = tmp_path / "moved"
    assert history_folder(new_root, str(new_root / "data")).name == histories[0].name
    assert history_folder(root, "s3://bucket/data/") == histories[-2]
    assert "hunter2" not in str(history_folder(root, "s3://nurse:hunter2@bucket/data"))


def test_each_experiment_has_a_history_of_its_own(python: Path, second: Path):
    histories = {
        name: visible_values(python, second, NEST_EXPERIMENT=name)["DAGSTER_NEST_STORAGE"]
        for name in ("", "wide", "cls", "../other")
    }
    assert histories[""] == histories["../other"] == str(history_folder(second, str(second / "data")))
    assert histories["wide"] == str(history_folder(second, str(second / "data"), "wide"))
    assert len(set(histories.values())) == 3
    assert {Path(history).parent for history in histories.values()} == {second / ".dagster"}


def test_command_refuses_code_of_another_checkout(python: Path, second: Path):
    command = ("-P", "-m", "dagster", "job", "execute", "-j", "mimic_etl")
    result = execute(python, *command, folder=second, PYTHONPATH=str(ROOT))
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {second}: this command would run the code of {ROOT} here")
    assert "Traceback" not in result.stderr
    assert not (second / "data").exists()


@pytest.mark.long
def test_command_in_a_second_checkout_writes_to_that_checkout(python: Path, second: Path):
    command = ("-P", "-m", "dagster", "asset", "materialize", "--select", "mimic_raw")
    result = execute(python, *command, folder=second / "assets", NEST_SYNTHETIC_PATIENTS="5")
    assert result.returncode == 0, result.stderr[-2000:]
    assert (second / "data" / "mimic" / "cards" / "raw.card.json").exists()
    assert (history_folder(second, str(second / "data")) / "history" / "runs.db").exists()
    assert not (second / "assets" / "data").exists()

"""Without a checkout, a folder is made the home of runs, and a shell is told."""

import shlex
from pathlib import Path

from assets.environment.nest_environment import defaults
from assets.home import main, settled
from tests.support.commands import ROOT


def test_a_home_has_the_configuration_and_the_defaults_of_a_checkout(tmp_path: Path) -> None:
    home = tmp_path / "a home"
    environment = dict(shlex.split(line)[1].split("=", 1) for line in settled(home))
    assert environment == defaults(home, str(home / "data"))
    assert environment["DAGSTER_HOME"] == str(home)
    assert (home / "dagster.yaml").read_text() == (ROOT / "dagster.yaml").read_text()


def test_a_home_that_is_there_keeps_its_configuration(tmp_path: Path) -> None:
    settled(tmp_path)
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    settled(tmp_path)
    assert (tmp_path / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"


def test_a_checkout_and_a_folder_that_cannot_be_made_are_refused_in_one_line(tmp_path: Path, capsys) -> None:
    (tmp_path / "file").touch()
    for folder in (ROOT / "below", tmp_path / "file" / "below"):
        assert main([str(folder)]) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.startswith("error: ")
        assert output.err.count("\n") == 1
    assert not (ROOT / "below").exists()

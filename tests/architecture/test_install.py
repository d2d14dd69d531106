"""The package installs as people install: extras that are enough, a `make setup` that finds a Python, a wheel."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from tests.support.commands import ROOT

ROOMS = {"schemas": "", "pipelines": "pipelines", "nest_model": "model", "assets": "assets"}
"""By room, the extra that brings what it needs; `schemas` needs no extra."""

BY_ANOTHER_EXTRA = {
    "schemas/io/paths.py": "pipelines",  # hands paths to polars and DuckDB: of the data rooms
    "schemas/expectations/validation.py": "assets",  # runs the suites, which the rim does
    "pipelines/engine/dask.py": "cluster",
    "nest_model/__main__.py": "assets",  # speaks to the Dagster that started it
}
"""Files that the room itself never loads unless another extra is installed."""

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(extra: str) -> set[str]:
    """Return the distributions that an extra installs by name, those of the extras it names among them."""
    found = {normal(re.split(r"[^\w.-]", line)[0]) for line in PROJECT["dependencies"]}
    for line in PROJECT["optional-dependencies"].get(extra, ()):
        if of_ours := re.fullmatch(r"nest\[(.+)\]", line):
            found |= {name for other in of_ours[1].split(",") for name in declared(other)}
        else:
            found.add(normal(re.split(r"[^\w.-]", line)[0]))
    return found


def imported(file: Path) -> Iterator[str]:
    """Yield the libraries a file imports anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        tops = {name.split(".")[0] for name in names}
        yield from tops - set(sys.stdlib_module_names) - set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_an_extra_declares_all_that_its_room_imports(room: str) -> None:
    distributions = packages_distributions()
    missing = [
        (name, place)
        for file in sorted((ROOT / room).rglob("*.py"))
        for place in [str(file.relative_to(ROOT))]
        for name in imported(file)
        if not {normal(known) for known in distributions.get(name, [name])}
        & declared(BY_ANOTHER_EXTRA.get(place, ROOMS[room]))
    ]
    assert not missing


def test_the_extras_keep_the_rooms_apart() -> None:
    assert declared("model").isdisjoint(
        {"dagster", "dagster-pipes", "polars", "duckdb", "great-expectations"}
    )
    assert declared("pipelines").isdisjoint({"dagster", "torch", "lightning-fabric", "great-expectations"})
    assert declared("dev") > declared("assets") > declared("model") | declared("pipelines")


def test_every_declared_package_is_pinned() -> None:
    pinned = {normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    everything = {name for extra in PROJECT["optional-dependencies"] for name in declared(extra)}
    assert everything <= pinned


@pytest.mark.parametrize(
    ("command", "extra", "library"),
    [
        ("nest_model", "model", "torch"),
        ("pipelines", "pipelines", "polars"),
        ("pipelines.cohorts", "pipelines", "polars"),
        ("assets.results", "assets", "dagster"),
    ],
)
def test_a_command_without_its_extra_says_so_in_one_line(command: str, extra: str, library: str) -> None:
    bare = [sys.executable, "-S", "-m", command, "--help"]  # without any installed package
    told = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True)
    assert told.returncode == 2
    assert told.stdout == ""
    assert re.fullmatch(
        rf"error: {library} is not installed, .* extra `{extra}`: pip install .*\n", told.stderr
    )


def setup(folder: Path, *arguments: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run `make setup` of a copy where the only programs are these, shell scripts by name."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    path = folder / "bin"
    path.mkdir()
    for name in ("sh", "make", "touch", "mkdir"):
        (path / name).symlink_to(shutil.which(name) or name)
    for name, script in programs.items():
        (path / name).write_text(f"#!/bin/sh\n{script}\n")
        (path / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS")}
    return subprocess.run(
        [path / "make", "setup", *arguments],
        cwd=folder,
        env=kept | {"PATH": str(path)},
        capture_output=True,
        text=True,
    )


# makes a .venv whose python does and says the same, as does it itself
TELLS = (
    'echo "{} $@" >> said; case "$*" in *venv*) mkdir -p .venv/bin && echo "exit 0" > .venv/bin/python;; esac'
)
A_SHIM = "echo 'pyenv: not found' >&2; exit 127"


def test_setup_takes_the_first_python_that_starts(tmp_path: Path) -> None:
    tells = {"python3.12": TELLS.format("3.12"), "python3.13": TELLS.format("3.13")}
    finished = setup(tmp_path, **{"python3.11": A_SHIM}, **tells)
    said = (tmp_path / "said").read_text()
    assert "3.12 -m venv --clear .venv" in said, finished.stderr
    assert "3.13" not in said


def test_setup_takes_the_python_it_is_told(tmp_path: Path) -> None:
    setup(tmp_path, "PYTHON=other", other=TELLS.format("other"), **{"python3.11": TELLS.format("3.11")})
    assert (tmp_path / "said").read_text() == "other -m venv --clear .venv\n"


@pytest.mark.parametrize(
    ("told", "python"), [((), ">=3.11,<3.14"), (("PYTHON=python3.13",), "python3.13")], ids=["any", "told"]
)
def test_setup_leaves_it_to_uv_where_there_is_one(told: tuple[str, ...], python: str, tmp_path: Path) -> None:
    setup(tmp_path, *told, uv=TELLS.format("uv"), **{"python3.11": TELLS.format("3.11")})
    made, installed = (tmp_path / "said").read_text().splitlines()
    assert made == f"uv venv --quiet --seed --clear --python {python} .venv"
    assert installed.startswith(
        "uv pip install --python .venv/bin/python --quiet --constraint constraints.txt "
    )


@pytest.mark.parametrize("uv", [{}, {"uv": "exit 2"}], ids=["pip", "uv"])
def test_setup_without_a_python_says_in_one_line_how_to_get_one(uv: dict[str, str], tmp_path: Path) -> None:
    finished = setup(tmp_path, **{"python3.11": A_SHIM}, **uv)
    assert finished.returncode == 2
    first, *others = finished.stderr.splitlines()
    assert re.match(r"no Python 3.11, 3.12 or 3.13 .* apt install python3-venv .* uv ", first)
    assert [line for line in others if not line.startswith("make: ***")] == []
    assert not (tmp_path / ".venv" / ".installed").exists()

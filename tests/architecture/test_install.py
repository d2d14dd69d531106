"""The package installs as people install: extras that are enough, a `make setup` that finds a Python, a wheel."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import pyarrow.parquet as pq
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
    packages = {normal(re.split(r"[^\w.-]", line)[0]) for line in PROJECT["dependencies"]}
    for line in PROJECT["optional-dependencies"].get(extra, ()):
        if of_ours := re.fullmatch(r"nest\[(.+)\]", line):
            packages |= {name for other in of_ours[1].split(",") for name in declared(other)}
        else:
            packages.add(normal(re.split(r"[^\w.-]", line)[0]))
    return packages


def imported(file: Path) -> Iterator[str]:
    """Yield the libraries a file imports anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        tops = {name.split(".")[0] for name in names}
        yield from tops - set(sys.stdlib_module_names) - set(ROOMS)


@pytest.fixture(scope="module")
def distributions() -> Mapping[str, list[str]]:
    """Return the distributions that have a package of this name; to list them takes seconds."""
    return packages_distributions()


@pytest.mark.parametrize("room", ROOMS)
def test_an_extra_declares_all_that_its_room_imports(
    room: str, distributions: Mapping[str, list[str]]
) -> None:
    missing = [
        (name, place)
        for file in sorted((ROOT / room).rglob("*.py"))
        for place in [str(file.relative_to(ROOT))]
        for name in imported(file)
        if not {normal(distribution) for distribution in distributions.get(name, [name])}
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
    pins = {normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    everything = {name for extra in PROJECT["optional-dependencies"] for name in declared(extra)}
    assert everything <= pins


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
    process = subprocess.run(bare, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 2
    assert process.stdout == ""
    assert re.fullmatch(
        rf"error: {library} is not installed, .* extra `{extra}`: pip install .*\n", process.stderr
    )


def test_the_environment_of_a_checkout_has_what_an_editable_install_adds() -> None:
    packages = Path(sysconfig.get_path("purelib"))
    assert all((packages / f"nest_environment.{end}").exists() for end in ("pth", "py"))


def setup(folder: Path, *arguments: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """Run `make setup` of a copy where the only programs are these, shell scripts by name."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "hatch_build.py"):
        shutil.copy(ROOT / name, folder)
    path = folder / "bin"
    path.mkdir()
    for name in ("sh", "make", "touch", "mkdir"):
        (path / name).symlink_to(shutil.which(name) or name)
    for name, script in programs.items():
        (path / name).write_text(f"#!/bin/sh\n{script}\n")
        (path / name).chmod(0o755)
    of_the_outer_make = (
        "PYTHON",
        "MAKEFLAGS",
        "MFLAGS",
        "MAKELEVEL",
    )  # the suite itself runs under `make test`
    environment = {name: value for name, value in os.environ.items() if name not in of_the_outer_make}
    return subprocess.run(
        [path / "make", "setup", *arguments],
        cwd=folder,
        env=environment | {"PATH": str(path)},
        capture_output=True,
        text=True,
    )


# makes a .venv whose python does and says the same, as does it itself
TELLS = 'echo "{} $@" >> calls; case "$*" in *venv*) mkdir -p .venv/bin && echo "exit 0" > .venv/bin/python;; esac'
A_SHIM = "echo 'pyenv: not found' >&2; exit 127"


def test_setup_takes_the_first_python_that_starts(tmp_path: Path) -> None:
    tells = {"python3.12": TELLS.format("3.12"), "python3.13": TELLS.format("3.13")}
    process = setup(tmp_path, **{"python3.11": A_SHIM}, **tells)
    calls = (tmp_path / "calls").read_text()
    assert "3.12 -m venv --clear .venv" in calls, process.stderr
    assert "3.13" not in calls


def test_setup_takes_the_named_python(tmp_path: Path) -> None:
    setup(tmp_path, "PYTHON=other", other=TELLS.format("other"), **{"python3.11": TELLS.format("3.11")})
    assert (tmp_path / "calls").read_text() == "other -m venv --clear .venv\n"


@pytest.mark.parametrize(
    ("arguments", "python"),
    [((), ">=3.11,<3.14"), (("PYTHON=python3.13",), "python3.13")],
    ids=["any", "named"],
)
def test_setup_uses_uv_when_it_is_installed(arguments: tuple[str, ...], python: str, tmp_path: Path) -> None:
    setup(tmp_path, *arguments, uv=TELLS.format("uv"), **{"python3.11": TELLS.format("3.11")})
    venv_call, install_call = (tmp_path / "calls").read_text().splitlines()
    assert venv_call == f"uv venv --quiet --seed --clear --python {python} .venv"
    assert install_call.startswith("uv pip install --reinstall-package nest --python .venv/bin/python ")
    assert " --constraint constraints.txt " in install_call


@pytest.mark.parametrize("uv", [{}, {"uv": "exit 2"}], ids=["pip", "uv"])
def test_setup_without_a_python_says_in_one_line_how_to_get_one(uv: dict[str, str], tmp_path: Path) -> None:
    process = setup(tmp_path, **{"python3.11": A_SHIM}, **uv)
    assert process.returncode == 2
    first, *others = process.stderr.splitlines()
    assert re.match(r"no Python 3.11, 3.12 or 3.13 .* apt install python3-venv .* uv ", first)
    assert [line for line in others if not line.startswith("make: ***")] == []
    assert not (tmp_path / ".venv" / ".installed").exists()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as anyone builds it."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    )
    subprocess.run(pip, check=True)
    return next(folder.glob("nest-*.whl"))


@pytest.mark.long
def test_the_wheel_holds_every_file_the_rooms_read_and_nothing_else(wheel: Path) -> None:
    files = subprocess.run(
        ["git", "ls-files", *ROOMS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    contents = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert contents == {name for name in files if not name.endswith(".pth")} | {
        "assets/environment/dagster.yaml"
    }


class Installation:
    """The wheel with an extra in an environment of its own, its commands run from a folder outside any checkout."""

    def __init__(self, wheel: Path, extra: str, place: Path) -> None:
        self.python, self.folder = place / "venv" / "bin" / "python", place / "empty"
        self.folder.mkdir()
        subprocess.run([sys.executable, "-m", "venv", str(place / "venv")], check=True)
        # torch by its whole version: where a build for the CPU is kept for it, that is taken
        torch = ["torch==2.13.0"] if "torch" in declared(extra) else []
        requirements = ["--constraint", str(ROOT / "constraints.txt"), *torch, f"{wheel}[{extra}]"]
        subprocess.run([str(self.python), "-m", "pip", "install", "--quiet", *requirements], check=True)

    def run(self, *command: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run `python -m` this; without a home and settings of ours."""
        ours = ("NEST_", "DAGSTER_", "PYTHONPATH")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        return subprocess.run(
            [str(self.python), "-m", *command],
            cwd=self.folder,
            env=environment | {"HOME": str(self.folder.parent)} | settings,
            capture_output=True,
            text=True,
        )

    def works(self, *command: str, **settings: str) -> str:
        """Run `python -m` this, which must end well, and return what it printed."""
        process = self.run(*command, **settings)
        assert process.returncode == 0, process.stderr[-3000:]
        return process.stdout

    def has(self, *libraries: str) -> list[str]:
        """Return which of these can be imported."""
        code = f"import importlib.util as u; print(*[n for n in {libraries} if u.find_spec(n)])"
        process = subprocess.run(
            [self.python, "-c", code], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return process.stdout.split()


@pytest.fixture
def install(wheel: Path, tmp_path: Path) -> Iterator[Callable[[str], Installation]]:
    """Install the wheel with an extra; the environments, of gigabytes, are gone after the test."""
    environments: list[Installation] = []

    def with_extra(extra: str) -> Installation:
        place = tmp_path / extra
        place.mkdir()
        environments.append(Installation(wheel, extra, place))
        return environments[-1]

    yield with_extra
    for installation in environments:
        shutil.rmtree(installation.python.parents[1])


MIMIC = ("--hosp", "raw/hosp", "--crosswalks", "raw/vocab")


@pytest.mark.long
def test_the_wheel_s_data_work_runs_without_torch_and_dagster(install: Callable[[str], Installation]) -> None:
    installation = install("pipelines")
    assert installation.has("torch", "dagster", "great_expectations", "polars") == ["polars"]
    assert "tokenize" in installation.works("pipelines", "--help")
    assert "admissions" in installation.works(
        "pipelines.synthetic", "mimic", "--patients", "20", "--out", "raw"
    )
    installation.works("pipelines.synthetic.pcornet", "--children", "20", "--out", "cdm")
    installation.works("pipelines.synthetic.instacart", "--users", "20", "--out", "baskets")
    installation.works("pipelines.cohorts", "--help")
    without_model = installation.run("nest_model", "--help")
    assert (without_model.returncode, without_model.stdout) == (2, "")
    assert without_model.stderr.startswith("error: torch is not installed")
    nothing_fitted = installation.run(
        "pipelines", "tokenize", *MIMIC, "--frozen", "data/mimic", "--out", "new"
    )
    assert nothing_fitted.returncode == 2
    assert nothing_fitted.stderr.count("\n") == 1


@pytest.mark.long
def test_the_wheel_goes_from_raw_tables_to_scores(install: Callable[[str], Installation]) -> None:
    """The model's extra trains on what the whole wheel made, as on two machines."""
    whole, model = install("assets"), install("model")
    assert model.has("dagster", "polars", "duckdb", "great_expectations", "sqlalchemy", "torch") == ["torch"]
    job = ("dagster", "job", "execute", "-m", "assets.definitions", "-j", "mimic_etl")
    process = whole.run(*job, NEST_SYNTHETIC_PATIENTS="60", NEST_SYNTHETIC_TOKENS_PER_SET="20")
    assert process.returncode == 0, process.stderr[-3000:]
    assert "python -m assets.home" in process.stderr
    data = whole.folder / "data" / "mimic"
    seqset, labels = data / "seqset", data / "cohorts" / "mimic_mortality" / "labels.parquet"
    whole.works("pipelines.synthetic", "mimic", "--patients", "20", "--seed", "9", "--out", "raw")
    whole.works("pipelines", "tokenize", *MIMIC, "--frozen", str(data), "--out", "new")

    def nest(command: str, **options: str | Path) -> None:
        flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        model.works("nest_model", command, *flags)

    shards = {"seqset": seqset, "subjects": data / "subjects.parquet", "vocab": data / "vocab.parquet"}
    nest("pretrain", **shards, model="tiny", epochs="1", out="base")
    nest(
        "finetune",
        pretrained="base",
        labels=labels,
        seqset=seqset,
        epochs="1",
        out="tuned",
        predictions="p.parquet",
    )
    nest("predict", model="tuned", seqset=whole.folder / "new" / "seqset", out="scores.parquet")
    # who left within a day is not scored
    assert 0 < pq.read_table(model.folder / "scores.parquet").num_rows <= 20

"""The version of a step's code: a hash of every source file it can reach, so that nobody has to raise a number."""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("schemas", "pipelines", "nest_model")
VALUES = Path("schemas/rules.py")  # which the key of a step holds, those it reads


@cache
def code_version(*modules: str, started_by: str | None = None) -> str:
    """Return the hash of these modules, of what of ours they import, and of the data files beside it.

    An import inside a function counts too. The rules do not, as a step's key holds those it reads, nor do packages from
    elsewhere: the environment pins them.

    Args:
        started_by: a module that counts by itself: the command line, which imports every other command too.
    """
    digest, command = hashlib.sha256(), _file(started_by) if started_by else None
    for file in sorted(
        _data_files(reached := _reached(modules)) | reached | ({command} if command else set())
    ):
        digest.update(f"{_label(file)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _reached(modules: tuple[str, ...]) -> set[Path]:
    """Return the files of the modules and of all they import, however indirectly."""
    names, left = set(modules), list(modules)
    while left:
        new = set(_imported(left.pop())) - names
        names |= new
        left += new
    return {file for name in names if (file := _file(name))} - {ROOT / VALUES}


@cache
def _imported(module: str) -> tuple[str, ...]:
    """Return what of ours a module names in its imports, and the packages it lies in."""
    if (file := _file(module)) is None:  # a name that is no module: a function, say
        return ()
    package = module.rpartition(".")[0]
    found = [package] if package else []
    for node in _statements(ast.parse(file.read_bytes()).body):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return tuple(name for name in found if name.split(".")[0] in (*ROOMS, module.split(".")[0]))


def _statements(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield every statement, however deep; expressions, most of what `ast.walk` goes through, hold none."""
    for statement in block:
        yield statement
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from _statements(getattr(statement, field, []))


def _label(file: Path) -> str:
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else f"{file.parent.name}/{file.name}"


def _file(module: str) -> Path | None:
    """Return the file of a module of ours, or of an installed package that adds a source."""
    room, *below = module.split(".")
    if room in ROOMS:
        folder = ROOT / room
    elif (package := find_spec(room)) is not None and package.submodule_search_locations:
        folder = Path(package.submodule_search_locations[0])
    else:
        return None
    path = folder.joinpath(*below)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def _data_files(sources: set[Path]) -> set[Path]:
    """Return the files that are no Python in the folders of these packages: templates, catalogues."""
    folders = [file.parent for file in sources if file.name == "__init__.py"]
    return {file for folder in folders for file in _not_python(folder)}


def _not_python(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith((".", "__pycache__")):
            continue
        if path.is_dir() and not (path / "__init__.py").exists():
            yield from _not_python(path)
        elif path.is_file() and path.suffix != ".py":
            yield path

"""The version of a step's code: a hash of every source file the step can reach, instead of a number raised by hand."""

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("schemas", "pipelines", "nest_model")
RULES_FILE = Path("schemas/rules.py")
"""Left out of the hash: the key of a step holds the rules the step reads."""


@cache
def code_version(*modules: str, entry_point: str | None = None) -> str:
    """Return the hash of these modules, of the modules of this repository they import, and of their data files.

    An import inside a function counts too. The rules do not count, since a step's key holds those it reads; nor do
    packages from elsewhere, which the environment pins.

    Args:
        entry_point: a module counted without its imports: the command line, which imports every other command too.

    Raises:
        ValueError: there is no such module.
    """
    digest, entry_file = hashlib.sha256(), _file(entry_point) if entry_point else None
    if unknown := [module for module in modules if _file(module) is None]:
        raise ValueError(f"no module {', '.join(unknown)}: its code cannot be part of a version.")
    sources = _reachable_files(modules)
    files = _data_files(sources) | sources | ({entry_file} if entry_file else set())
    for label, content in sorted(map(_label_and_hash, files)):
        digest.update(f"{label}\0".encode() + content)
    return digest.hexdigest()[:16]


def read_again() -> None:
    """Read files anew for the next version: within a process each is read and parsed once."""
    for function in (code_version, _imports, _file, _label_and_hash, _other_files):
        function.cache_clear()


def _reachable_files(modules: tuple[str, ...]) -> set[Path]:
    """Return the files of the modules and of everything they import, directly or indirectly."""
    names, queue = set(modules), list(modules)
    while queue:
        new_names = set(_imports(queue.pop())) - names
        names |= new_names
        queue += new_names
    return {file for name in names if (file := _file(name))} - {ROOT / RULES_FILE}


@cache
def _imports(module: str) -> tuple[str, ...]:
    """Return the names of this repository that a module imports, and the package the module lies in."""
    if (file := _file(module)) is None:  # not a module: a function, for example
        return ()
    parent = module.rpartition(".")[0]
    package = module if file.name == "__init__.py" else parent
    names = [parent] if parent else []
    for node in _statements(ast.parse(file.read_bytes()).body):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = resolve_name("." * node.level + (node.module or ""), package)
            names += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
    return tuple(name for name in names if name.split(".")[0] in (*ROOMS, module.split(".")[0]))


def _statements(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield every statement at any depth; unlike `ast.walk`, skip expressions, which cannot hold an import."""
    for statement in block:
        yield statement
        for field in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from _statements(getattr(statement, field, []))


@cache
def _label_and_hash(file: Path) -> tuple[str, bytes]:
    is_ours = file.is_relative_to(ROOT)
    label = str(file.relative_to(ROOT)) if is_ours else f"{file.parent.name}/{file.name}"
    return label, hashlib.sha256(file.read_bytes()).digest()


@cache
def _file(module: str) -> Path | None:
    """Return the file of a module of ours, or of an installed package that adds a source."""
    room, *below = module.split(".")
    if room in ROOMS:
        folder = ROOT / room
    elif (package := find_spec(room)) is None:
        return None
    elif package.submodule_search_locations:
        folder = Path(package.submodule_search_locations[0])
    else:  # a single file beside the packages
        return Path(package.origin) if package.has_location and package.origin and not below else None
    path = folder.joinpath(*below)
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


def _data_files(sources: set[Path]) -> set[Path]:
    """Return the other files in the folders of these packages, such as templates and catalogues."""
    folders = [file.parent for file in sources if file.name == "__init__.py"]
    return {file for folder in folders for file in _other_files(folder)}


@cache
def _other_files(folder: Path) -> frozenset[Path]:
    files: set[Path] = set()
    for path in folder.iterdir():
        if path.name.startswith((".", "__pycache__")):
            continue
        if path.is_dir() and not (path / "__init__.py").exists():
            files |= _other_files(path)
        elif path.is_file() and path.suffix != ".py":
            files.add(path)
    return frozenset(files)

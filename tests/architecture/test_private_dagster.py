"""Private parts of Dagster are imported in `assets/runtime` only, and its README lists each with a test."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.commands import ROOT

README = ROOT / "assets" / "runtime" / "README.md"
FOLDER = README.parent


def private_imports(file: Path) -> Iterator[str]:
    """Yield the private Dagster names that a module imports, with the module they come from."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if is_private(name))


def is_private(name: str) -> bool:
    package, *parts = name.split(".")
    return package.startswith("dagster") and any(part.startswith("_") for part in parts)


def imports_by_file() -> dict[str, set[str]]:
    """Return the private imports of each file, by its path below `assets/runtime` or the repository."""
    files = [file for folder in ("assets", "benchmarks") for file in sorted((ROOT / folder).rglob("*.py"))]
    imports = {file: set(private_imports(file)) for file in files}
    settings = ROOT / "dagster.yaml"
    modules = re.findall(r"module: (\S+)", settings.read_text())
    imports[settings] = {module for module in modules if is_private(module)}
    return {
        str(file.relative_to(FOLDER if file.is_relative_to(FOLDER) else ROOT)): names
        for file, names in imports.items()
        if names
    }


def table_rows() -> list[list[str]]:
    """Return the rows of the README's table, without code marks."""
    lines = [line for line in README.read_text().splitlines() if line.startswith("| `dagster")]
    return [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]


def test_private_dagster_names_are_imported_in_the_runtime_folder_only() -> None:
    outside = [name for name in imports_by_file() if "/" in name]
    assert outside == [], "move the import to assets/runtime, and add it to its README"


def test_readme_lists_every_private_import_of_dagster() -> None:
    table_imports = {(name, file) for name, files, _, _ in table_rows() for file in files.split(", ")}
    code_imports = {(name, file) for file, names in imports_by_file().items() for name in names}
    assert code_imports
    assert table_imports == code_imports


def test_readme_names_an_existing_test_for_every_private_import() -> None:
    for name, _, _, test in table_rows():
        file, _, function = test.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text(), f"{name}: {test} does not exist"

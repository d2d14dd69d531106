"""Files are written and renamed by the helpers of `schemas/io` only, which flush them and replace them as a whole."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import ROOT

ROOMS = ("schemas", "pipelines", "nest_model", "assets", "benchmarks")
HELPERS = ("schemas/io/atomic.py", "schemas/io/folders.py", "schemas/io/outputs.py")
RENAMES = {"replace", "rename", "renames", "move", "link_to", "hardlink_to"}
WRITES = {"write_text", "write_bytes"}
TO_A_PART = ("part", "part_file", "parts[name]", "text", "config", "attrition", "lock_file")
"""What a path is called that `replace_file` or `replace_files` gave."""

DIRECT = {
    "nest_model/training/telemetry.py": "lines are added to a log",
    "assets/runtime/console.py": "lines are added to a log",
    "benchmarks/recipe/queues.py": "lines are added to a log",
    "benchmarks/pipelines/postgres_server.py": "a server's password, in a folder that goes with it",
    "pipelines/fetch/download.py": "a part that grows over several runs, and its version beside it",
    "pipelines/sources/meds/export.py": "into a folder that `replace_folder` gives",
    "benchmarks/model/random_shards.py": "into a temporary folder of a benchmark",
}


def sources() -> list[Path]:
    paths = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return [path for path in paths if path.relative_to(ROOT).as_posix() not in HELPERS]


def methods_called(tree: ast.AST) -> Iterator[tuple[ast.Call, ast.Attribute]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func


def direct_renames(code: str) -> list[int]:
    """Return the lines that rename a file: a call with one argument that is no table of values and no column name."""
    lines = []
    for call, method in methods_called(ast.parse(code)):
        of_module = ast.unparse(method.value) in ("os", "shutil")
        if method.attr not in RENAMES or (len(call.args) != 1 and not of_module) or call.keywords:
            continue
        argument = ast.unparse(call.args[0])
        is_table = isinstance(call.args[0], ast.Dict | ast.DictComp) or argument.isupper()
        if of_module or not (is_table or argument.endswith(".name")):
            lines.append(call.lineno)
    return lines


def direct_writes(code: str) -> list[int]:
    """Return the lines that write a file directly, not through a helper."""
    lines = []
    for call, method in methods_called(ast.parse(code)):
        opens = (
            method.attr == "open"
            and call.args
            and ast.unparse(call.args[0]).strip("'\"")[:1] in ("w", "x", "a")
        )
        if (method.attr in WRITES or opens) and ast.unparse(method.value) not in TO_A_PART:
            lines.append(call.lineno)
    return lines


@pytest.mark.parametrize(
    "line", ["part.replace(path)", "os.rename(a, b)", "shutil.move(a, b)", "aside.rename(whole)"]
)
def test_direct_renames_finds_a_rename(line: str) -> None:
    assert direct_renames(line) == [1]


@pytest.mark.parametrize("line", ['path.write_text("x")', '(out / "a").write_bytes(b"")', 'path.open("wb")'])
def test_direct_writes_finds_a_write(line: str) -> None:
    assert direct_writes(line) == [1]


def test_no_module_renames_a_file_by_hand() -> None:
    lines_by_file = {str(path.relative_to(ROOT)): direct_renames(path.read_text()) for path in sources()}
    assert {name: lines for name, lines in lines_by_file.items() if lines} == {}, (
        "use schemas.io.atomic or schemas.io.folders"
    )


def test_no_module_writes_a_file_under_the_final_name() -> None:
    writing_files = {str(path.relative_to(ROOT)) for path in sources() if direct_writes(path.read_text())}
    assert writing_files == set(DIRECT), "use schemas.io.atomic, or list the file with a reason"

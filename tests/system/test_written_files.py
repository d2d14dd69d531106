"""No module renames by hand, or writes a file under its final name: `schemas/io` does, flushed and all or nothing."""

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
    "benchmarks/pipelines/postgres_server.py": "a server's password, in a folder that goes with it",
    "pipelines/fetch/download.py": "a part that grows over several runs, and its version beside it",
    "pipelines/fetch/crosswalks.py": "a part that was downloaded, compressed before it takes its place",
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


def renames_by_hand(code: str) -> list[int]:
    """Return the lines that rename a file: one argument, which is neither a table of values nor a column's name."""
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


def written_under_their_name(code: str) -> list[int]:
    """Return the lines that write a file which no helper renames."""
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
def test_renames_by_hand_finds_direct_renames(line: str) -> None:
    assert renames_by_hand(line) == [1]


@pytest.mark.parametrize("line", ['path.write_text("x")', '(out / "a").write_bytes(b"")', 'path.open("wb")'])
def test_written_under_final_name_finds_direct_writes(line: str) -> None:
    assert written_under_their_name(line) == [1]


def test_no_module_renames_a_file_by_hand() -> None:
    lines_by_file = {str(path.relative_to(ROOT)): renames_by_hand(path.read_text()) for path in sources()}
    assert {name: lines for name, lines in lines_by_file.items() if lines} == {}, (
        "use schemas.io.atomic or schemas.io.folders"
    )


def test_no_module_writes_a_file_under_the_final_name() -> None:
    writing_files = {
        str(path.relative_to(ROOT)) for path in sources() if written_under_their_name(path.read_text())
    }
    assert writing_files == set(DIRECT), (
        "use schemas.io.atomic; what is written otherwise is listed with its reason"
    )

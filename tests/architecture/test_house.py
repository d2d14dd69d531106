"""Rules of the repository: layers, light imports, contract numbers, names, and no patient data."""

import ast
import hashlib
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter

import duckdb
import grimp
import pyarrow as pa
import pytest

import schemas
from schemas.contract import contract_name
from schemas.tables.labels import labels_schema, predictions_schema
from tests.support.commands import BIN, DEMO, ROOT

FROZEN = ROOT / "tests" / "golden" / "contracts.json"
ROOMS = ("schemas/", "pipelines/", "nest_model/", "assets/", "benchmarks/")
LABEL_TYPES = ("bool", "class", "list", "number", "time")


def output_of(*command: str, ok: bool = True) -> str:
    """Run a command in the repository and return what it printed."""
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    output = process.stdout + process.stderr
    assert (process.returncode == 0) is ok, output
    return output


def run_python(code: str) -> str:
    return output_of(sys.executable, "-c", code).strip()


@pytest.mark.parametrize(
    "command",
    [("lint-imports",), ("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",)],
    ids=" ".join,
)
def test_linters_and_type_checker_pass(command: tuple[str, ...]) -> None:
    output_of(str(BIN / command[0]), *command[1:])


def test_modules_import_each_other_in_no_circle() -> None:
    graph = grimp.build_graph("nest_model", "pipelines", "assets", "schemas")  # imports inside functions too
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}

    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_code_location_loads_no_heavy_library() -> None:
    heavy = ["torch", "great_expectations", "scipy", "sklearn", "lightgbm", "matplotlib.pyplot"]
    code = "import sys; from assets.definitions import defs; defs(); "
    code += f"print([name for name in {heavy} if name in sys.modules])"
    assert run_python(code).splitlines()[-1] == "[]"


def test_contracts_and_suites_load_without_great_expectations_or_torch() -> None:
    code = "import sys, schemas.contract, schemas.expectations, schemas.settings, schemas.tables.labels; "
    assert (
        run_python(code + "print([n for n in ('torch', 'great_expectations') if n in sys.modules])") == "[]"
    )


BLOCK = """
import gc, sys
gc.disable()
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked}:
            raise ModuleNotFoundError(name + " is not on this machine")
sys.meta_path.insert(0, Blocked())
"""


# with each room, what a machine that installed its extra alone does not have; it imports every module all the same
ELSEWHERE = {
    "nest_model": {
        "dagster", "dagster_pipes", "duckdb", "great_expectations", "polars", "sqlalchemy", "xformers"
    },
    "pipelines": {
        "dagster", "dagster_pipes", "great_expectations", "lightning_fabric", "sqlalchemy", "torch"
    },
    "schemas": {"dagster", "dagster_pipes", "lightning_fabric", "torch"},
}  # fmt: skip


@pytest.mark.parametrize(
    "room",
    [pytest.param(room, marks=() if room == "nest_model" else pytest.mark.long) for room in ELSEWHERE],
)
def test_a_room_loads_without_what_the_others_alone_need(room: str) -> None:
    then_helps = "nest_model.__main__.main(['--help'])" if room == "nest_model" else ""
    run_python(BLOCK.format(blocked=ELSEWHERE[room]) + f"import {', '.join(modules_of(room))}\n{then_helps}")


def modules_of(room: str) -> list[str]:
    package = importlib.import_module(room)
    return [room, *(module.name for module in pkgutil.walk_packages(package.__path__, f"{room}."))]


def contracts() -> dict[str, pa.Schema]:
    """Return every contract of `schemas` by name and number; labels have one for each label type."""
    schemas_by_name: dict[str, pa.Schema] = {}
    for name in modules_of(schemas.__name__):
        if name == "schemas.expectations.validation":  # loads Great Expectations and holds no contract
            continue
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, pa.Schema) and b"contract" in (value.metadata or {}):
                schemas_by_name[contract_name(value)] = value
    for label_type in LABEL_TYPES:
        for schema in (labels_schema(label_type), predictions_schema(label_type)):
            schemas_by_name[f"{contract_name(schema)} {label_type}"] = schema
    return schemas_by_name


def fingerprint(schema: pa.Schema) -> str:
    fields = [(field.name, str(field.type), field.nullable) for field in schema]
    return hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:16]


def test_changed_contract_schema_has_a_new_number() -> None:
    frozen = json.loads(FROZEN.read_text())
    now = {name: fingerprint(schema) for name, schema in contracts().items()}
    changed_names = [name for name in now if frozen.get(name, now[name]) != now[name]]
    assert not changed_names, f"{changed_names} changed: raise the number in the schema's metadata"
    new = {name: print_ for name, print_ in now.items() if name not in frozen}
    assert not new, f"add to {FROZEN.relative_to(ROOT)}, whose older entries stay: {json.dumps(new)}"


def test_contract_collection_finds_every_contract() -> None:
    names = {name.split("/")[0] for name in contracts()}
    assert names >= {
        "subjects",
        "encounters",
        "events",
        "drug_lookup",
        "vocab",
        "seqset",
        "labels",
        "predictions",
    }


def tracked_texts() -> dict[str, str]:
    process = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in process.stdout.split("\0") if name]
    return {
        str(path.relative_to(ROOT)): path.read_bytes().decode(errors="ignore")
        for path in paths
        if path.is_file()
    }


def module_texts() -> dict[str, str]:
    texts = tracked_texts().items()
    return {name: text for name, text in texts if name.startswith(ROOMS) and name.endswith(".py")}


def type_name(statement: ast.stmt) -> str | None:
    """Return the name a statement gives to a class or to another name of a type; a type variable's is local."""
    match statement:
        case ast.ClassDef(name=name):
            return name
        case ast.Assign(value=ast.Call(func=ast.Name("TypeVar"))):
            return None
        case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
            return name if re.match(r"[A-Z]\w*[a-z]", name) else None
    return None


def test_class_name_stands_for_one_thing() -> None:
    places = defaultdict(list)
    for file, text in module_texts().items():
        for statement in ast.parse(text).body:
            if name := type_name(statement):
                places[name].append(f"{file}:{statement.lineno}")
    repeats = {name: lines for name, lines in places.items() if len(lines) > 1}
    assert not repeats, "give each a name of its own, or define it once and import it"


@pytest.mark.demo
@pytest.mark.skipif(not DEMO.exists(), reason="the MIMIC-IV demo is not at ../shared/data")
def test_no_tracked_file_holds_an_identifier_of_the_demo() -> None:
    ids = "SELECT DISTINCT {}::VARCHAR FROM read_csv('{}', all_varchar = true)"
    with duckdb.connect() as connection:
        identifiers = {
            row[0]
            for column, file in (("subject_id", "patients"), ("hadm_id", "admissions"))
            for row in connection.execute(ids.format(column, DEMO / "hosp" / f"{file}.csv.gz")).fetchall()
        }
    assert len(identifiers) == 375
    numbers = {name: set(re.findall(r"(?<!\d)\d{8}(?!\d)", text)) for name, text in tracked_texts().items()}
    holding = {
        name: len(identifiers & eight_digits)
        for name, eight_digits in numbers.items()
        if identifiers & eight_digits
    }
    assert not holding, "identifiers of the demo, by file; use made-up ones"


def test_only_golden_files_are_data_tables() -> None:
    ends = (".parquet", ".csv.gz", ".feather", ".arrow", ".duckdb", ".safetensors", ".pt", ".pkl", ".pickle")
    tables = [
        name for name in tracked_texts() if name.endswith(ends) and not name.startswith("tests/golden/")
    ]
    assert not tables


def test_no_package_loads_a_pickle() -> None:
    words = ("import pickle", "torch.load(", "joblib", "allow_pickle=True")
    matches = [(name, word) for name, text in module_texts().items() for word in words if word in text]
    assert not matches

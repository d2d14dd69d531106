"""When a cached step runs again, tested on three small assets."""

from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from assets import cohorts as cohort_assets
from assets.definitions import build
from assets.resources import Workspace
from assets.runtime import code_version as code
from assets.runtime.code_version import code_version
from assets.runtime.step_cache import cached_step
from assets.sources import common
from assets.sources.fetch import FETCHED_ASSETS
from pipelines.inputs.steps import steps_class
from schemas.cards import StepCard, files_of, stamps_of
from schemas.errors import ContractError
from schemas.io.outputs import read_mark
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.settings import Settings
from schemas.sources import sources
from tests.support.commands import ROOT


class AssetChain:
    """Three assets, each a file with the text of its inputs and a word of its own."""

    CHAIN = {"mimic_raw": [], "mimic_events": ["mimic_raw"], "mimic_vocab": ["mimic_raw", "mimic_events"]}

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder / "mimic")
        self.layout.root.mkdir()
        self.words = dict.fromkeys(self.CHAIN, "word")
        self.code = dict.fromkeys(self.CHAIN, "1")
        self.fault: Callable[[], None] = lambda: None

    def file(self, asset: str) -> Path:
        return self.layout.root / asset

    def run(self, *assets: str) -> list[str]:
        """Materialize these assets, or all, and return those that ran."""
        steps_run: list[str] = []

        def asset(name: str, deps: list[str]) -> dg.AssetsDefinition:
            def make() -> StepCard:
                steps_run.append(name)
                self.file(name).write_text("".join(self.file(dep).read_text() for dep in deps))
                self.fault()
                self.file(name).write_text(self.file(name).read_text() + self.words[name])
                return StepCard(step="any", contract="any/1")

            @dg.asset(name=name, deps=deps, code_version=self.code[name])
            def compute() -> dg.MaterializeResult:
                card = cached_step(self.layout, [self.file(name)], {"word": self.words[name]}, make)
                return dg.MaterializeResult(data_version=dg.DataVersion(card.version))

            return compute

        dg.materialize([asset(*pair) for pair in self.CHAIN.items()], selection=list(assets) or None)
        return steps_run


@pytest.fixture
def chain(tmp_path: Path) -> AssetChain:
    asset_chain = AssetChain(tmp_path)
    assert asset_chain.run() == list(AssetChain.CHAIN)
    assert asset_chain.run() == []
    return asset_chain


def test_changed_setting_redoes_the_step_and_everything_downstream(chain: AssetChain):
    chain.words["mimic_events"] = "other"
    assert chain.run() == ["mimic_events", "mimic_vocab"]


def test_changed_code_with_equal_output_redoes_only_the_step(chain: AssetChain):
    chain.code["mimic_events"] = "2"
    assert chain.run() == ["mimic_events"]


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_text("wore")])
def test_lost_or_damaged_output_is_made_again(chain: AssetChain, damage: Callable[[Path], None]):
    content = chain.file("mimic_events").read_bytes()
    damage(chain.file("mimic_events"))
    assert chain.run() == ["mimic_events"]
    assert chain.file("mimic_events").read_bytes() == content


def test_step_without_a_card_is_run_again(chain: AssetChain):
    StepCard.remove(chain.layout.cards, "events")
    assert chain.run() == ["mimic_events"]


def test_step_refuses_an_incomplete_input(chain: AssetChain):
    def fault() -> None:
        raise OSError("the disk is full")

    chain.words["mimic_events"], chain.fault = "other", fault
    with pytest.raises(OSError, match="full"):
        chain.run()
    chain.fault = lambda: None
    with pytest.raises(ContractError, match="materialize mimic_events first"):
        chain.run("mimic_vocab")
    assert chain.run() == ["mimic_events", "mimic_vocab"]


def test_step_refuses_an_input_card_without_content(chain: AssetChain):
    card = StepCard.read(chain.layout.cards, "events")
    card.model_copy(update={"content": "", "key": ""}).write(chain.layout.cards)
    with pytest.raises(ContractError, match="mimic_events was not finished; materialize mimic_events again"):
        chain.run("mimic_vocab")


def test_inputs_made_from_different_versions_are_refused(chain: AssetChain):
    chain.words["mimic_raw"] = "other"
    assert chain.run("mimic_raw") == ["mimic_raw"]
    with pytest.raises(ContractError, match="mimic_events was made before mimic_raw changed"):
        chain.run("mimic_vocab")
    assert chain.run() == ["mimic_events", "mimic_vocab"]


def test_output_hash_ignores_location_logs_and_temporary_files(tmp_path: Path):
    card = StepCard(step="events", contract="events/1")
    for name in ("a", "b"):
        (tmp_path / name / "events").mkdir(parents=True)
        (tmp_path / name / "events" / "part").write_text("rows")
    first, second = tmp_path / "a" / "events", tmp_path / "b" / "events"
    (second / "metrics.jsonl").write_text("seconds")
    (second / ".part").write_text("half")
    assert files_of([first], tmp_path / "a") == files_of([second], tmp_path / "b")
    (second / "part").rename(second / "renamed")
    assert files_of([first], tmp_path / "a") != files_of([second], tmp_path / "b")
    assert card.content_of({}) != card.model_copy(update={"counts": {"rows": 1}}).content_of({})


def test_input_hash_and_stamps_follow_links(tmp_path: Path):
    data, outside = tmp_path / "data", tmp_path / "other"
    for folder in (data, outside):
        folder.mkdir()
        (folder / "rows").write_text(folder.name)
    content, stamps = files_of([data], tmp_path), stamps_of([data])
    for name, target in (("back", ".."), ("gone", "nowhere")):
        (data / name).symlink_to(target)
    assert (files_of([data], tmp_path), stamps_of([data])) == (content, stamps)
    for name, target in (("again", "rows"), ("more", outside)):
        (data / name).symlink_to(target)
        assert files_of([data], tmp_path) != content
        assert stamps_of([data]) != stamps
        content, stamps = files_of([data], tmp_path), stamps_of([data])


def test_code_version_follows_every_import_and_data_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    texts = {
        "pipelines/__init__.py": "",
        "pipelines/step.py": (
            "from .beside import A\ndef step():\n    from schemas import rules, table\n    import polars"
        ),
        "pipelines/beside.py": "A = 1",
        "pipelines/other.py": "",
        "schemas/__init__.py": "from . import within",
        "schemas/within.py": "B = 2",
        "schemas/table.py": "from schemas.tables.columns import COLUMNS",
        "schemas/tables/columns.py": "COLUMNS = 3",
        "schemas/words.csv": "a,b",
        "schemas/rules.py": "RULES = 5",
    }

    def version(edited_name: str | None = None) -> str:
        for name, text in texts.items():
            file = tmp_path / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text + "#" * (name == edited_name))
        code.read_again()
        return code_version.__wrapped__("pipelines.step")

    monkeypatch.setattr(code, "ROOT", tmp_path)
    first_version = version()
    changed_names = {name for name in texts if version(name) != first_version}
    code.read_again()
    assert changed_names == set(texts) - {"pipelines/other.py", "schemas/rules.py"}, (
        "rules count in the keys of the steps that read them"
    )


@pytest.mark.parametrize("source", ["mimic", "meds", "instacart", "pcornet"])
def test_extraction_does_not_depend_on_code_of_the_corpus(source: str):
    corpus = {
        ROOT / "pipelines" / "corpus" / f"{name}.py"
        for name in ("build", "data_card", "deciles_by_unit", "seqsets", "tokens")
    }
    assert corpus <= code._reachable_files(("pipelines.corpus.build",))
    modules = steps_class(sources()[source]).CODE
    extraction = code._reachable_files((*modules.get("raw", ()), *modules["other"]))
    assert ROOT / "pipelines" / "sources" / source / "steps.py" in extraction
    assert not corpus & extraction


def test_reading_a_model_of_any_system_ties_a_step_to_none_of_them():
    files = {
        path.relative_to(code.ROOT).as_posix()
        for path in code._reachable_files(("nest_model.model.checkpoint", "nest_model.commands.pretrain"))
    }
    assert {file for file in files if "/systems/" in file or "/objectives/" in file} == {
        "nest_model/training/objectives/__init__.py"
    }


def test_every_writing_asset_has_a_code_version():
    definitions = build(cohort_assets.COHORT_FOLDER)
    nodes = definitions.get_repository_def().asset_graph.asset_nodes
    fetched_keys = {
        key for asset in FETCHED_ASSETS for key in asset.keys
    }  # verified by published checksums instead
    assert [node.key for node in nodes if not node.code_version and node.key not in fetched_keys] == []


def test_no_package_has_relative_imports():
    """A code version does not follow relative imports."""
    files = [
        file
        for room in code.ROOMS
        for file in (ROOT / room).rglob("*.py")
        if any(line.lstrip().startswith("from .") for line in file.read_text().splitlines())
    ]
    assert files == []


def test_step_key_holds_every_rule_the_step_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rules_read: set[str] = set()

    class WatchedRules(DataRules):
        def __getattribute__(self, name: str):
            if name in DataRules.model_fields:
                rules_read.add(name)
            return super().__getattribute__(name)

    steps: dict[str, tuple[set[str], set[str]]] = {}

    def watch_step(layout, outputs, reads, make, **source):
        def make_watched() -> StepCard:
            rules_read.clear()
            card = make()
            steps[card.step] = (set(rules_read), set(reads))
            return card

        return cached_step(layout, outputs, reads, make_watched, **source)

    monkeypatch.setattr(Settings, "rules", property(lambda _: WatchedRules()))
    monkeypatch.setattr(common, "cached_step", watch_step)
    monkeypatch.setattr(cohort_assets, "cached_step", watch_step)
    groups = ("mimic_etl", "mimic_cohorts")
    assets = [
        asset
        for asset in build(cohort_assets.COHORT_FOLDER).assets
        if isinstance(asset, dg.AssetsDefinition) and set(asset.group_names_by_key.values()) <= set(groups)
    ]
    dg.materialize(assets, resources={"workspace": Workspace(data_dir=str(tmp_path), synthetic_patients=60)})

    assert len(steps) == 15
    assert "top_labs" in steps["vocab"][0], "the rules were not watched"
    assert {step: read - key_rules for step, (read, key_rules) in steps.items() if read - key_rules} == {}
    cut_rule_redoes = {step for step, (_, key_rules) in steps.items() if "top_labs" in key_rules}
    assert cut_rule_redoes == {"vocab", "seqset"}, "a changed cut rule redoes steps that do not depend on it"


@pytest.mark.parametrize("is_edited", [False, True])
def test_unmarked_folder_is_adopted_when_content_matches_the_card(tmp_path: Path, is_edited: bool):
    """Earlier versions wrote folders without a mark; they are found when the step runs again."""
    layout = Layout(tmp_path / "mimic")
    folder = layout.root / "model"

    def make() -> StepCard:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.txt").write_text("model")
        return StepCard(step="any", contract="any/1")

    def run(code: str) -> bool:
        @dg.asset(name="mimic_raw", code_version=code)
        def compute() -> dg.MaterializeResult:
            return dg.MaterializeResult(
                data_version=dg.DataVersion(cached_step(layout, [folder], {}, make).version)
            )

        return dg.materialize([compute]).success

    assert run("1")
    assert read_mark(folder) is None
    if is_edited:
        (folder / "model.txt").write_text("a user's own")
    assert run("2")
    assert (read_mark(folder) is None) == is_edited

"""What makes a step do something, on assets of three lines."""

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
from schemas.cards import StepCard, files_of, stamps_of
from schemas.errors import ContractError
from schemas.io.outputs import read_mark
from schemas.layout import Layout
from schemas.rules import DataRules
from schemas.settings import Settings
from tests.support.commands import ROOT


class World:
    """Three assets, each a file that says what its inputs say and one word of its own."""

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
        """Materialize these assets, or all, and return those that did something."""
        done: list[str] = []

        def asset(name: str, deps: list[str]) -> dg.AssetsDefinition:
            def make() -> StepCard:
                done.append(name)
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
        return done


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    assert made.run() == list(World.CHAIN)
    assert made.run() == []
    return made


def test_a_changed_setting_redoes_the_step_that_reads_it_and_what_hangs_on_it(world: World):
    world.words["mimic_events"] = "other"
    assert world.run() == ["mimic_events", "mimic_vocab"]


def test_changed_code_redoes_its_step_and_nothing_below_when_it_comes_to_the_same(world: World):
    world.code["mimic_events"] = "2"
    assert world.run() == ["mimic_events"]


@pytest.mark.parametrize("damage", [lambda file: file.unlink(), lambda file: file.write_text("wore")])
def test_an_output_that_is_lost_or_damaged_is_made_again(world: World, damage: Callable[[Path], None]):
    before = world.file("mimic_events").read_bytes()
    damage(world.file("mimic_events"))
    assert world.run() == ["mimic_events"]
    assert world.file("mimic_events").read_bytes() == before


def test_a_step_whose_card_was_removed_is_done_again(world: World):
    StepCard.remove(world.layout.cards, "events")
    assert world.run() == ["mimic_events"]


def test_nothing_is_made_from_half_of_an_output(world: World):
    def fault() -> None:
        raise OSError("the disk is full")

    world.words["mimic_events"], world.fault = "other", fault
    with pytest.raises(OSError, match="full"):
        world.run()
    world.fault = lambda: None
    with pytest.raises(ContractError, match="materialize mimic_events first"):
        world.run("mimic_vocab")
    assert world.run() == ["mimic_events", "mimic_vocab"]


def test_nothing_is_made_from_an_output_whose_card_tells_no_content_yet(world: World):
    card = StepCard.read(world.layout.cards, "events")
    card.model_copy(update={"content": "", "key": ""}).write(world.layout.cards)
    with pytest.raises(ContractError, match="mimic_events was not finished; materialize mimic_events again"):
        world.run("mimic_vocab")


def test_two_inputs_that_were_not_made_from_the_same_are_refused(world: World):
    world.words["mimic_raw"] = "other"
    assert world.run("mimic_raw") == ["mimic_raw"]
    with pytest.raises(ContractError, match="mimic_events was made before mimic_raw changed"):
        world.run("mimic_vocab")
    assert world.run() == ["mimic_events", "mimic_vocab"]


def test_the_hash_of_an_output_knows_no_place_no_log_and_no_temporary_file(tmp_path: Path):
    card = StepCard(step="events", contract="events/1")
    for name in ("a", "b"):
        (tmp_path / name / "events").mkdir(parents=True)
        (tmp_path / name / "events" / "part").write_text("rows")
    one, other = tmp_path / "a" / "events", tmp_path / "b" / "events"
    (other / "metrics.jsonl").write_text("seconds")
    (other / ".part").write_text("half")
    assert files_of([one], tmp_path / "a") == files_of([other], tmp_path / "b")
    (other / "part").rename(other / "renamed")
    assert files_of([one], tmp_path / "a") != files_of([other], tmp_path / "b")
    assert card.content_of({}) != card.model_copy(update={"counts": {"rows": 1}}).content_of({})


def test_the_hash_and_the_stamps_of_an_input_see_what_lies_behind_links(tmp_path: Path):
    data, other = tmp_path / "data", tmp_path / "other"
    for folder in (data, other):
        folder.mkdir()
        (folder / "rows").write_text(folder.name)
    content, stamps = files_of([data], tmp_path), stamps_of([data])
    for name, target in (("back", ".."), ("gone", "nowhere")):
        (data / name).symlink_to(target)
    assert (files_of([data], tmp_path), stamps_of([data])) == (content, stamps)
    for name, target in (("again", "rows"), ("more", other)):
        (data / name).symlink_to(target)
        assert files_of([data], tmp_path) != content
        assert stamps_of([data]) != stamps
        content, stamps = files_of([data], tmp_path), stamps_of([data])


def test_the_version_of_the_code_follows_every_import_and_data_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    texts = {
        "pipelines/__init__.py": "",
        "pipelines/step.py": "def step():\n    from schemas import rules, table\n    import polars",
        "pipelines/other.py": "",
        "schemas/__init__.py": "",
        "schemas/table.py": "from schemas.tables.columns import COLUMNS",
        "schemas/tables/columns.py": "COLUMNS = 3",
        "schemas/words.csv": "a,b",
        "schemas/rules.py": "RULES = 5",
    }

    def version(changed: str | None = None) -> str:
        for name, text in texts.items():
            file = tmp_path / name
            file.parent.mkdir(exist_ok=True)
            file.write_text(text + "#" * (name == changed))
        code._imports.cache_clear()
        return code_version.__wrapped__("pipelines.step")

    monkeypatch.setattr(code, "ROOT", tmp_path)
    before = version()
    changed = {name for name in texts if version(name) != before}
    code._imports.cache_clear()
    assert changed == set(texts) - {"pipelines/other.py", "schemas/rules.py"}, (
        "a rule counts where it is read"
    )


@pytest.mark.parametrize("source", ["mimic", "meds", "instacart", "pcornet"])
def test_extraction_does_not_depend_on_code_of_the_corpus(source: str):
    corpus = {
        ROOT / "pipelines" / "corpus" / f"{name}.py"
        for name in ("build", "data_card", "deciles_by_unit", "seqsets", "tokens")
    }
    assert corpus <= code._reachable_files(("pipelines.corpus.build",))
    extraction = code._reachable_files((f"pipelines.sources.{source}.steps",))
    assert ROOT / "pipelines" / "sources" / source / "steps.py" in extraction
    assert not corpus & extraction


def test_every_asset_that_writes_has_a_version_of_its_code():
    definitions = build(cohort_assets.COHORT_FOLDER)
    nodes = definitions.get_repository_def().asset_graph.asset_nodes
    fetched = {key for asset in FETCHED_ASSETS for key in asset.keys}  # held against published sums instead
    assert [node.key for node in nodes if not node.code_version and node.key not in fetched] == []


def test_no_room_imports_by_a_relative_name():
    """The version of the code would not see it."""
    found = [
        file
        for room in code.ROOMS
        for file in (ROOT / room).rglob("*.py")
        if any(line.lstrip().startswith("from .") for line in file.read_text().splitlines())
    ]
    assert found == []


def test_no_step_reads_a_rule_its_key_does_not_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: set[str] = set()

    class Watched(DataRules):
        def __getattribute__(self, name: str):
            if name in DataRules.model_fields:
                seen.add(name)
            return super().__getattribute__(name)

    steps: dict[str, tuple[set[str], set[str]]] = {}

    def watching(layout, outputs, reads, make, **source):
        def watched() -> StepCard:
            seen.clear()
            card = make()
            steps[card.step] = (set(seen), set(reads))
            return card

        return cached_step(layout, outputs, reads, watched, **source)

    monkeypatch.setattr(Settings, "rules", property(lambda _: Watched()))
    monkeypatch.setattr(common, "cached_step", watching)
    monkeypatch.setattr(cohort_assets, "cached_step", watching)
    wanted = ("mimic_etl", "mimic_cohorts")
    assets = [
        asset
        for asset in build(cohort_assets.COHORT_FOLDER).assets
        if isinstance(asset, dg.AssetsDefinition) and set(asset.group_names_by_key.values()) <= set(wanted)
    ]
    dg.materialize(assets, resources={"workspace": Workspace(data_dir=str(tmp_path), synthetic_patients=60)})

    assert len(steps) == 13
    assert "top_labs" in steps["vocab"][0], "the rules were not watched"
    assert {step: read - held for step, (read, held) in steps.items() if read - held} == {}
    cut_rule_redoes = {step for step, (_, held) in steps.items() if "top_labs" in held}
    assert cut_rule_redoes == {"vocab", "seqset"}, "a changed cut rule redoes more than hangs on it"


@pytest.mark.parametrize("edited", [False, True])
def test_a_folder_without_a_mark_is_taken_over_where_its_card_vouches_for_it(tmp_path: Path, edited: bool):
    """As a folder that holds tables alone, or one of an earlier version, when its step is redone."""
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
    if edited:
        (folder / "model.txt").write_text("a user's own")
    assert run("2")
    assert (read_mark(folder) is None) == edited

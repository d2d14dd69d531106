"""What a named experiment shares with its source, copies from it and makes anew, tested on four small assets."""

from pathlib import Path

import dagster as dg
import pytest

from assets.object_store import StoredLayout
from assets.resources import Workspace
from assets.runtime.step_cache import cached_step
from schemas.cards import StepCard
from schemas.errors import ContractError, NestError
from schemas.io.verify import verified
from schemas.layout import Layout
from schemas.settings import Settings


class AssetChain:
    """A raw file, labels made from it, a model of the labels and a page on the model; each is text."""

    CHAIN = {
        "mimic_raw": [],
        "mimic_task_labels": ["mimic_raw"],
        "mimic_nest": ["mimic_task_labels"],
        "mimic_report": ["mimic_nest"],
    }

    def __init__(self, folder: Path) -> None:
        self.source = Layout(folder / "mimic")
        self.source.root.mkdir()
        self.words = dict.fromkeys(self.CHAIN, "word")

    def folder(self, layout: Layout, asset: str) -> Path:
        folders = {
            "mimic_raw": layout.raw,
            "mimic_task_labels": layout.cohort("mimic_task"),
            "mimic_nest": layout.model("mimic_nest"),
            "mimic_report": layout.report("mimic"),
        }
        return folders[asset]

    def text(self, layout: Layout, asset: str) -> str:
        return verified(self.folder(layout, asset) / "text").read_text()

    def run(self, experiment: str | None = None, assets: tuple[str, ...] = tuple(CHAIN)) -> list[str]:
        """Materialize these assets and return those whose step ran."""
        own = self.source.experiment(experiment) if experiment else self.source
        steps_run: list[str] = []

        def asset(name: str, deps: list[str]) -> dg.AssetsDefinition:
            layout = own if name in ("mimic_nest", "mimic_report") else self.source
            folder = self.folder(layout, name)

            def make() -> StepCard:
                steps_run.append(name)
                folder.mkdir(parents=True, exist_ok=True)
                content = [self.folder(layout, dep).joinpath("text").read_text() for dep in deps]
                (folder / "text").write_text(" ".join([*content, self.words[name]]))
                return StepCard(step="any", contract="any/1")

            @dg.asset(name=name, deps=deps, code_version="1")
            def compute() -> dg.MaterializeResult:
                card = cached_step(layout, [folder], {"word": self.words[name]}, make)
                return dg.MaterializeResult(data_version=dg.DataVersion(card.version))

            return compute

        dg.materialize([asset(*pair) for pair in self.CHAIN.items()], selection=list(assets))
        return steps_run


@pytest.fixture
def chain(tmp_path: Path) -> AssetChain:
    chain = AssetChain(tmp_path)
    assert chain.run() == list(AssetChain.CHAIN)
    return chain


def test_experiment_copies_what_would_be_the_same(chain: AssetChain):
    chain.words["mimic_report"] = "page"
    wide = chain.source.experiment("wide")
    assert chain.run("wide") == ["mimic_report"]
    assert chain.text(wide, "mimic_nest") == chain.text(chain.source, "mimic_nest")
    assert chain.text(wide, "mimic_report") == "word word word page"
    assert chain.text(chain.source, "mimic_report") == "word word word word"
    assert chain.run("wide") == []


def test_experiment_redoes_what_is_downstream_of_its_difference(chain: AssetChain):
    chain.words["mimic_nest"] = "wide"
    assert chain.run("wide") == ["mimic_nest", "mimic_report"]
    chain.words["mimic_nest"] = "word"
    assert chain.run() == [], "the source's own models are untouched"
    assert chain.source.experiments == ["wide"]


def test_experiment_copies_no_changed_model(chain: AssetChain):
    (chain.source.model("mimic_nest") / "text").write_text("word word edited")
    assert chain.run("wide") == ["mimic_nest"], "the page is again that of the source's card"
    assert chain.text(chain.source.experiment("wide"), "mimic_nest") == "word word word"


def test_experiment_follows_the_tables_of_its_source(chain: AssetChain):
    chain.run("wide")
    chain.words["mimic_raw"] = "new"
    chain.run(assets=("mimic_raw",))
    with pytest.raises(ContractError, match="mimic_task_labels was made before mimic_raw changed"):
        chain.run("wide", assets=("mimic_nest",))
    assert chain.run("wide") == ["mimic_task_labels", "mimic_nest", "mimic_report"]
    assert chain.text(chain.source.experiment("wide"), "mimic_report") == "new word word word"


def test_experiment_needs_its_own_model_for_its_page(chain: AssetChain):
    with pytest.raises(ContractError, match="experiments/wide has no mimic_nest yet"):
        chain.run("wide", assets=("mimic_report",))


def test_changed_file_of_an_experiment_is_refused_by_the_name_of_its_asset(chain: AssetChain):
    wide = chain.source.experiment("wide")
    chain.run("wide")
    (wide.model("mimic_nest") / "text").write_text("edited")
    with pytest.raises(ContractError, match="changed after mimic_nest wrote it"):
        chain.text(wide, "mimic_nest")


def test_workspace_keeps_tables_apart_from_the_models_of_an_experiment(tmp_path, monkeypatch):
    monkeypatch.setenv("NEST_EXPERIMENT", "wide")
    workspace = Workspace(data_dir=str(tmp_path))
    assert workspace.layout("mimic").root == tmp_path / "mimic"
    layout = workspace.experiment_layout("mimic")
    assert layout.model("mimic_nest") == tmp_path / "mimic" / "experiments" / "wide" / "models" / "mimic_nest"
    assert layout.seqset == tmp_path / "mimic" / "seqset"
    assert layout.source == "mimic"


def test_object_store_has_an_experiment_below_its_source(tmp_path):
    layout = StoredLayout(tmp_path / "mimic", "memory://nest/mimic").experiment("wide")
    assert (layout.root, layout.url) == (
        tmp_path / "mimic/experiments/wide",
        "memory://nest/mimic/experiments/wide",
    )


@pytest.mark.parametrize("name", ["../other", "Wide", "1st", "a/b", ""])
def test_name_of_an_experiment_is_one_of_a_folder(name, monkeypatch):
    monkeypatch.setenv("NEST_EXPERIMENT", name)
    if name:
        with pytest.raises(NestError, match="NEST_EXPERIMENT"):
            Settings()
    else:
        assert Settings().experiment is None

"""The examples of docs/python.md and its notebook run as they stand, on a small data folder."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from nest_model.recipe import Recipe
from nest_model.training.recipe import PRETRAINING
from schemas.layout import Layout
from tests.support.commands import ROOT
from tests.support.factories.world import finetune_small, make_world, pretrain_small, runtime

PAGE = ROOT / "docs" / "python.md"
NOTEBOOK = ROOT / "docs" / "nest.ipynb"
LONGEST = 10


def blocks_of_page() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def cells_of_notebook() -> list[str]:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    return ["".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture
def data_folder(tmp_path: Path) -> Path:
    """A folder with `data/mimic` as a run leaves it, of sixty patients and a model of 16 dimensions."""
    world = make_world(tmp_path / "world", subjects=60)
    layout = Layout(tmp_path / "data" / "mimic")
    layout.root.mkdir(parents=True)
    shutil.copytree(world.seqset, layout.seqset)
    for file in (world.vocab, world.subjects):
        shutil.copy(file, layout.root)
    layout.cohort("mimic_mortality").mkdir(parents=True)
    shutil.copy(world.labels, layout.labels("mimic_mortality"))
    pretrained_model = layout.model("mimic_nest")
    pretrain_small(
        world, runtime(pretrained_model), pretrained_model, PRETRAINING["tiny"].with_changes(epochs=1)
    )
    one_epoch = Recipe(1e-3, 1, 1, examples_per_step=12)
    task_model = finetune_small(world, pretrained_model, tmp_path / "finetuned", one_epoch)
    shutil.copytree(task_model, layout.model("mimic_mortality_nest"))
    return tmp_path


def test_every_example_of_the_page_and_the_notebook_runs(data_folder, monkeypatch):
    blocks = blocks_of_page()
    monkeypatch.chdir(data_folder)
    names: dict[str, Any] = {}

    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name}, example {number + 1}", "exec"), names)

    assert cells_of_notebook() == blocks  # so the notebook ran too
    assert max(sum(map(bool, block.splitlines())) for block in blocks) <= LONGEST
    assert names["commonest"].height == 28  # tokens in the sets, the sign among them
    assert names["patients"].height == names["labels"].height == names["scores"].height
    assert names["whole"].height == 3 * 10
    assert names["single"]["is_there"].sum() <= 3 * 2
    assert names["settings"].height > 0
    assert len(names["risk"]) == (names["labels"]["split"] != "train").sum()

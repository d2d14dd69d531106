"""A system is a folder: one from outside, as docs/systems.md shows it, is trained and has a row of the evidence."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from nest_model.__main__ import main
from nest_model.config import ModelConfig
from nest_model.data.predictions import read_predictions
from nest_model.evidence.rows import rows_by_name
from nest_model.model import checkpoint
from nest_model.model import systems as package
from nest_model.model.encoder import encoder_class
from nest_model.systems import systems
from nest_model.training.recipe import PRETRAINING, pretraining_recipe
from schemas.errors import NestError
from tests.support.commands import ROOT
from tests.support.factories.world import make_world

PAGE = (ROOT / "docs" / "systems.md").read_text()
NAME = f"{package.__name__}.orderless"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's system, in a folder beside those of NEST."""
    folder = tmp_path / "systems" / "orderless"
    folder.mkdir(parents=True)
    code = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for name, text in zip(("__init__", "encoder"), code, strict=True):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(folder.parent)])
    systems.cache_clear()
    yield folder
    systems.cache_clear()
    for module in (NAME, f"{NAME}.encoder"):
        sys.modules.pop(module, None)
    vars(package).pop("orderless", None)


def test_a_folder_is_all_that_a_new_system_needs(folder: Path, tmp_path: Path):
    world = make_world(tmp_path)
    paths = {name: f"--{name}={getattr(world, name)}" for name in ("seqset", "subjects", "vocab", "labels")}
    base, task_model, scores = tmp_path / "base", tmp_path / "tuned", tmp_path / "scores.parquet"
    how = ["--epochs=1", "--threads=1"]

    shards = [paths["seqset"], paths["subjects"], paths["vocab"]]
    assert main(["pretrain", *shards, *how, "--system=orderless", "--model=tiny", f"--out={base}"]) == 0
    places = [f"--pretrained={base}", f"--out={task_model}", f"--predictions={scores}"]
    assert main(["finetune", paths["seqset"], paths["labels"], *how, *places]) == 0

    config = checkpoint.read_card(base).model
    encoder = encoder_class("orderless")(config)
    assert encoder.num_parameters(config) == sum(weight.numel() for weight in encoder.parameters())
    assert config == ModelConfig.preset("tiny", config.vocab_size, system="orderless")
    assert (base / "README.md").read_text().count("\n# Orderless BERT, pretrained\n") == 1
    assert read_predictions(scores).model == "mimic_made_up_orderless"
    row = rows_by_name()["orderless"]
    assert (row.title, row.is_default, row.is_pretrained_anew) == ("Orderless BERT", True, True)


def test_a_new_systems_recipe_is_its_own(folder: Path):
    init = folder / "__init__.py"
    assert pretraining_recipe("paper", "orderless") == PRETRAINING["paper"]
    init.write_text(
        init.read_text().replace("absent=", 'recipes={"paper": {"decay": "cosine"}},\n    absent=')
    )
    sys.modules.pop(NAME)
    systems.cache_clear()
    assert pretraining_recipe("paper", "orderless") == PRETRAINING["paper"].with_changes(decay="cosine")
    assert pretraining_recipe("tiny", "orderless") == PRETRAINING["tiny"]


def test_a_folder_that_does_not_say_what_its_system_is_is_refused(folder: Path):
    (folder / "__init__.py").write_text('SYSTEM = "orderless"\n')
    with pytest.raises(NestError, match=r"systems\.orderless: it has no SYSTEM, a System"):
        systems()

"""Systems that tell kinds of events apart learn from sources with other kinds than MIMIC-IV's."""

import json
import math
from pathlib import Path

import pyarrow as pa
import pytest

from nest_model.model.checkpoint import load_pretrained, read_card
from nest_model.model.kinds import SPECIAL
from nest_model.training.recipe import PRETRAINING
from schemas.cards import ShardCard
from schemas.contract import read_table, write_table
from schemas.io.seal import unsealed
from schemas.sources import INSTACART, PCORNET
from schemas.tables.events import KINDS
from schemas.tables.vocab import SPECIAL_KIND, SPECIALS, VOCAB, content_sha256
from tests.support.factories.world import World, copy_world, make_world, pretrain_small, runtime

DIAGNOSIS, PROCEDURE, MEDICINE, MEASUREMENT = range(4)
GROUP = {"IMM": MEDICINE, "VIT": MEASUREMENT, "ITEM": DIAGNOSIS}
GROUP |= {"DX": DIAGNOSIS, "PR": PROCEDURE, "MED": MEDICINE, "LAB": MEASUREMENT}
RECIPE = PRETRAINING["tiny"].with_changes(epochs=2, least_steps=0)


def with_kinds(world: World, root: Path, kinds: tuple[str, ...]) -> tuple[World, list[str]]:
    """Copy a world whose tokens are of these kinds in turn, and its sets of no type; return the kind of each token."""
    tokens = read_table(world.vocab, VOCAB)
    names = [SPECIAL_KIND] * len(SPECIALS)
    names += [kinds[place % len(kinds)] for place in range(len(tokens) - len(SPECIALS))]
    codes = [None if name == SPECIAL_KIND else f"{name}{place}" for place, name in enumerate(names)]

    def change(row: dict) -> None:
        row["admission_type"] = None
        row["kinds"] = [KINDS.index(names[token]) for token in row["tokens"]]

    other = copy_world(world, root, change)
    columns = {
        "token": [
            *SPECIALS,
            *(f"{names[place]}:{codes[place]}" for place in range(len(SPECIALS), len(tokens))),
        ],
        "kind": names,
        "code": codes,
    }
    for name, values in columns.items():
        place = tokens.column_names.index(name)
        tokens = tokens.set_column(place, tokens.field(name), pa.array(values, tokens.field(name).type))
    write_table(tokens, other.vocab, VOCAB, made_by="test")
    for file in other.seqset.glob("*.card.json"):
        card = ShardCard.model_validate_json(unsealed(file.read_text()))
        file.write_text(card.model_copy(update={"vocab_sha256": content_sha256(tokens)}).model_dump_json())
    return other, names


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return make_world(tmp_path_factory.mktemp("world"), subjects=60)


@pytest.mark.parametrize("source", [PCORNET, INSTACART], ids=lambda source: source.name)
@pytest.mark.parametrize(
    ("system", "sizes"),
    [("heart", {"d_model": 16}), ("gt_behrt", {"d_model": 20})],
    ids=["heart", "gt_behrt"],
)
def test_every_event_has_a_kind_and_what_a_source_lacks_is_said(
    world, tmp_path, caplog, source, system, sizes
):
    caplog.set_level("INFO", logger="nest")
    other, names = with_kinds(world, tmp_path / "world", source.kinds)
    out = tmp_path / "model"
    pretrain_small(other, runtime(out), out, RECIPE, system=system, heads=2, **sizes)

    encoder, _ = load_pretrained(out, vocab_sha256=read_card(out).vocab_sha256)
    assert encoder.kind_of_token.tolist() == [GROUP.get(name, SPECIAL) for name in names]
    assert set(names) - {SPECIAL_KIND} == set(source.kinds)
    assert set(GROUP) == set(KINDS)
    metrics = json.loads((out / "metrics.json").read_text())
    assert all(map(math.isfinite, metrics["validation"].values()))
    assert all(weight.isfinite().all() for weight in encoder.parameters())
    reads_visits = system == "gt_behrt"  # of which neither source has a type
    assert ("GT-BEHRT learns without types of visit" in caplog.text) is reads_visits
    assert ("no type: none was guessed either." in (out / "README.md").read_text()) is reads_visits
    assert "val_vtp" not in metrics["validation"]

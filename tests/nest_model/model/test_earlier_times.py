import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from nest_model.data.packed import PackedBatch
from nest_model.model import checkpoint
from nest_model.model.classifier import Classifier
from nest_model.model.parcel import Parcel

GOLDEN = Path("tests/golden/earlier_nest")
MODELS = ("pretrained", "tied", "cls", "history_bool", "history_class")
VOCAB = "a" * 64


def expected():
    return json.loads((GOLDEN / "expected.json").read_text())


def outputs(folder):
    """Return the outputs of a model for the golden batch, in float64."""
    batch = PackedBatch.from_events(
        **{name: torch.tensor(values) for name, values in expected()["batch"].items()}
    )
    model, _ = checkpoint.load_model(folder, vocab_sha256=VOCAB)
    model = model.double().eval()
    with torch.no_grad():
        if isinstance(model, Classifier):
            return {"logits": model(Parcel(batch))}
        rows = model(batch)
        return {
            "token_logits": model.token_logits(rows),
            "set_logits": model.msm_logits(rows[batch.cls_rows]),
        }


def assert_as_earlier(actual, name):
    for output, values in expected()["outputs"][name].items():
        # an offset is rounded to float32: of the fastest frequency by 3e-9, at 1,000 days by 3e-6 radians
        torch.testing.assert_close(actual[output].double(), torch.tensor(values).double(), rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_the_code_before_offsets_computes_what_it_did_there(name):
    assert_as_earlier(outputs(GOLDEN / name), name)


@pytest.mark.parametrize("name", MODELS)
def test_saved_again_it_is_a_model_of_today(name, tmp_path):
    model, card = checkpoint.load_model(GOLDEN / name, vocab_sha256=VOCAB)
    checkpoint.save(tmp_path, model.state_dict(), card, "# card\n")

    assert not [weight for weight in load_file(tmp_path / "model.safetensors") if "frequency" in weight]
    assert_as_earlier(outputs(tmp_path), name)

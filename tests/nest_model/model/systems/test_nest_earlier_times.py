"""Models with Time2Vec saved before 26 November 2026 compute what the code that saved them computed."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from nest_model.config import ModelConfig
from nest_model.data.packed import PackedBatch
from nest_model.model import checkpoint
from nest_model.model.checkpoint import ModelCard
from nest_model.model.classifier import Classifier
from nest_model.model.encoder import encoder_class
from nest_model.model.parcel import Parcel
from schemas.errors import NestError
from tests.support.saved_model import change_weights

GOLDEN = Path(__file__).parents[3] / "golden" / "earlier_nest"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())
MODELS = sorted(EXPECTED["outputs"])
VOCABULARY = "a" * 64


def outputs(folder: Path) -> dict[str, Tensor]:
    """Return what a model computes for the golden batch, in float64; a task's logits are rounded to float32."""
    batch = PackedBatch.from_events(
        **{name: torch.tensor(values) for name, values in EXPECTED["batch"].items()}
    )
    model, _ = checkpoint.load_model(folder, vocab_sha256=VOCABULARY)
    model = model.double().eval()
    with torch.no_grad():
        if isinstance(model, Classifier):
            return {"logits": model(Parcel(batch))}
        rows = model(batch)
        set_logits = model.msm_logits(rows[batch.cls_rows])
        return {"token_logits": model.token_logits(rows), "set_logits": set_logits}


def assert_expected(actual: dict[str, Tensor], name: str) -> None:
    for output, values in EXPECTED["outputs"][name].items():
        expected = torch.tensor(values, dtype=torch.float64)
        # Offsets are rounded to float32: a fast frequency is off by 3e-9, its angle at 1,000 days by 3e-6 radians.
        torch.testing.assert_close(actual[output].double(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_from_before_offsets_gives_the_outputs_of_its_code(name):
    assert_expected(outputs(GOLDEN / name), name)


@pytest.mark.parametrize("name", MODELS)
def test_a_converted_model_is_saved_with_the_names_of_today(name, tmp_path):
    model, card = checkpoint.load_model(GOLDEN / name, vocab_sha256=VOCABULARY)
    checkpoint.save(tmp_path, model.state_dict(), card, "# card\n")

    assert not [weight for weight in load_file(tmp_path / "model.safetensors") if "frequency" in weight]
    assert_expected(outputs(tmp_path), name)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "pretrained", tmp_path / "copy"))


@pytest.mark.parametrize("value", [float("nan"), 1e36])  # the second is an offset above the greatest float32
def test_a_frequency_that_is_no_offset_is_refused_by_its_own_name(copy, value):
    change_weights(copy, lambda tensors: tensors["time2vec.days.frequency"].fill_(value))

    with pytest.raises(NestError, match=r"safetensors: time2vec.days.frequency hold NaN or infinite"):
        checkpoint.load_pretrained(copy, vocab_sha256=VOCABULARY)


@pytest.mark.parametrize("unit", ["hours", "days"])
def test_a_file_with_frequencies_and_offsets_is_refused(copy, unit):
    change_weights(copy, lambda tensors: tensors.update({f"time2vec.{unit}.angles.offset": torch.zeros(8)}))

    with pytest.raises(NestError, match=r"do not fit config.json: .*frequency.* unknown to such a model"):
        checkpoint.load_pretrained(copy, vocab_sha256=VOCABULARY)


def test_another_system_with_frequencies_is_refused(tmp_path):
    config = ModelConfig.preset("tiny", 12, system="core_behrt", d_model=8, d_ff=6)
    weights = {
        name.replace("angles.offset", "frequency").replace("angles.phase", "phase"): weight
        for name, weight in encoder_class("core_behrt")(config).state_dict().items()
    }
    checkpoint.save(tmp_path, weights, ModelCard("core_behrt", config, VOCABULARY, {}), "# card\n")

    with pytest.raises(NestError, match=r"time2vec.days.frequency.* unknown to such a model"):
        checkpoint.load_pretrained(tmp_path, vocab_sha256=VOCABULARY)

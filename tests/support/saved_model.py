"""Change a saved model and sign it again, as whoever mends a model by hand does."""

import json
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from nest_model.files import sha256_of
from schemas.io.seal import sealed, unsealed


def change_weights(folder: Path, change: Callable[[dict[str, Tensor]], object]) -> None:
    """Change the tensors of a model and write their hash."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)
    change_config(folder, weights_sha256=sha256_of(file))


def change_config(folder: Path, **values: object) -> None:
    """Change values of a model's config and seal it."""
    path = folder / "config.json"
    path.write_text(sealed(json.dumps(json.loads(unsealed(path.read_text())) | values, indent=2)))


def change_shape(folder: Path, **values: object) -> None:
    """Change sizes of a model's config and seal it."""
    change_config(folder, model=json.loads(unsealed((folder / "config.json").read_text()))["model"] | values)

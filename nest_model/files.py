"""The files of a model: hashed, and its tensors written."""

import errno
import hashlib
import os
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor


def sha256_of(path: Path) -> str:
    """Return the hash of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def save_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file.

    Raises:
        OSError: it cannot be written, by the library's own account too.
    """
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:
        number = errno.ENOSPC if "os error 28" in str(error) else errno.EIO
        raise OSError(number, os.strerror(number)) from None

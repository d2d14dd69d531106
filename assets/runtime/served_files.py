"""Pictures and pages that the UI's server hands out, which serves what lies beside the logs of the steps.

A picture by its address is a short text, which an asset's page shows at once; embedded it would be long, behind a
click. The server sends every such file as one to save, so a page opens from the browser's list of downloads.
"""

import hashlib
import re
from pathlib import Path

import dagster as dg
import dagster._core.storage.local_compute_log_manager as local_logs

from schemas.io.atomic import replace_file

PICTURES = "pictures"
PICTURE_ADDRESS = re.compile(rf"/logs/{PICTURES}/([0-9a-f]{{16}})/png")
"""The address of a picture, with the hash that names its file."""


def serve_picture(png: bytes) -> str | None:
    """Store a PNG beside the logs and return its address in the UI; None where the run's logs are not kept here."""
    return _serve(png, PICTURES, hashlib.sha256(png).hexdigest()[:16], extension="png")


def serve_page(page: Path, name: str) -> str | None:
    """Store a page, in place of the last of its name, and return its address in the UI; see `serve_picture`."""
    return _serve(page.read_bytes(), "pages", name, extension="html")


def picture_folder(instance: dg.DagsterInstance) -> Path | None:
    """Return the folder with the pictures of a history; None where its logs are not kept here."""
    file = _local_file(instance, (PICTURES, "any"), "png")
    return file and file.parent


def _serve(content: bytes, *key: str, extension: str) -> str | None:
    file = _local_file(dg.AssetExecutionContext.get().instance, key, extension)
    if file is None:
        return None
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not file.exists() or file.read_bytes() != content:
        with replace_file(file) as part:
            part.write_bytes(content)
    else:
        file.touch()  # so that its age counts from its last use, see `old_files`
    return f"/logs/{'/'.join(key)}/{extension}"


def _local_file(instance: dg.DagsterInstance, key: tuple[str, ...], extension: str) -> Path | None:
    manager = instance.compute_log_manager
    if not isinstance(manager, local_logs.LocalComputeLogManager):
        return None
    return Path(manager.get_captured_local_path(key, extension))

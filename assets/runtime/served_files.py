"""Pictures and pages that the UI's server hands out, which serves what lies beside the logs of the steps.

A picture by its address is a short text, which an asset's page shows at once; embedded it would be long, behind a
click. The server sends every such file as one to save, so a page opens from the browser's list of downloads.
"""

import hashlib
from pathlib import Path

import dagster as dg
import dagster._core.storage.local_compute_log_manager as local_logs

from schemas.io.atomic import replace_file


def serve_picture(png: bytes) -> str | None:
    """Store a PNG beside the logs and return its address in the UI; None where the run's logs are not kept here."""
    return _serve(png, "pictures", hashlib.sha256(png).hexdigest()[:16], extension="png")


def serve_page(page: Path, name: str) -> str | None:
    """Store a page, in place of the last of its name, and return its address in the UI; see `serve_picture`."""
    return _serve(page.read_bytes(), "pages", name, extension="html")


def _serve(content: bytes, *key: str, extension: str) -> str | None:
    manager = dg.AssetExecutionContext.get().instance.compute_log_manager
    if not isinstance(manager, local_logs.LocalComputeLogManager):
        return None
    file = Path(manager.get_captured_local_path(key, extension))
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not file.exists() or file.read_bytes() != content:
        with replace_file(file) as part:
            part.write_bytes(content)
    return f"/logs/{'/'.join(key)}/{extension}"

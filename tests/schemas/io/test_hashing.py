import hashlib
import time
from pathlib import Path

from schemas.io.hashing import file_sha256


def read_bytes(path: Path) -> tuple[str, int]:
    told: list[int] = []
    return file_sha256(path, on_bytes=told.append), sum(told)


def test_a_file_is_read_once_and_again_when_it_has_changed(tmp_path):
    path = tmp_path / "input"
    content = bytes(range(256)) * 20_000  # of more than one piece
    path.write_bytes(content)
    time.sleep(0.02)  # a file of this very moment could change without a sign, and is read again

    assert read_bytes(path) == (hashlib.sha256(content).hexdigest(), len(content))
    assert read_bytes(path) == (hashlib.sha256(content).hexdigest(), 0)
    other = content[::-1]
    (tmp_path / "aside").write_bytes(other)
    (tmp_path / "aside").replace(path)
    assert read_bytes(path) == (hashlib.sha256(other).hexdigest(), len(content))


def test_an_empty_file_has_a_hash(tmp_path):
    (tmp_path / "empty").touch()

    assert file_sha256(tmp_path / "empty") == hashlib.sha256().hexdigest()

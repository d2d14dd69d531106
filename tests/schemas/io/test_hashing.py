import hashlib
import time
from pathlib import Path

from schemas.io.hashing import file_sha256


def read_bytes(path: Path) -> tuple[str, int]:
    sizes: list[int] = []
    return file_sha256(path, on_bytes=sizes.append), sum(sizes)


def test_hash_is_cached_until_the_file_changes(tmp_path):
    path = tmp_path / "input"
    content = bytes(range(256)) * 20_000  # more than one block
    path.write_bytes(content)
    time.sleep(0.02)  # the hash of a file changed within a clock tick is not cached

    assert read_bytes(path) == (hashlib.sha256(content).hexdigest(), len(content))
    assert read_bytes(path) == (hashlib.sha256(content).hexdigest(), 0)
    reversed_content = content[::-1]
    (tmp_path / "aside").write_bytes(reversed_content)
    (tmp_path / "aside").replace(path)
    assert read_bytes(path) == (hashlib.sha256(reversed_content).hexdigest(), len(content))


def test_hash_of_an_empty_file(tmp_path):
    (tmp_path / "empty").touch()

    assert file_sha256(tmp_path / "empty") == hashlib.sha256().hexdigest()

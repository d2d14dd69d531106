"""Reads what another process appends to a file."""

from collections.abc import Iterator
from pathlib import Path


class GrowingFile:
    """The lines that are appended to a file from now on; the file may not exist yet."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.position = file.stat().st_size if file.exists() else 0

    def new_lines(self) -> Iterator[bytes]:
        """Yield the whole lines since the last call; one that is half written waits for the next."""
        if not self._file.exists():
            return
        with self._file.open("rb") as stream:
            stream.seek(self.position)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self.position += len(line)
                yield line

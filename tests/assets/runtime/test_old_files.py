"""Old logs and pictures are removed; a user's files, and what a page or a run still uses, are not."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest

from assets.metadata import picture_metadata
from assets.runtime.old_files import MOST_DAYS, remove_old_files
from assets.runtime.served_files import picture_folder

MESSAGE = "2030-01-01 05:00:00 INFO mimic_raw: read\n"


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    (tmp_path / "history").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "history")) as instance:
        yield instance


def write_log(folder: Path, name: str, content: str = MESSAGE, *, days_old: float) -> None:
    file = folder / "logs" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    let_age(file, days_old)


def let_age(file: Path, days: float) -> None:
    os.utime(file, (time.time() - days * 86_400,) * 2)


def test_old_logs_are_removed_but_none_of_a_user_or_of_an_unfinished_run(
    instance: dg.DagsterInstance, tmp_path: Path
):
    running = dg.DagsterRun("mimic_full", run_id=str(uuid4()), status=dg.DagsterRunStatus.STARTED)
    instance.add_run(running)
    old = MOST_DAYS + 1
    write_log(tmp_path, "mimic_full_0123abcd.log", days_old=old)
    stay = {
        "mimic_full_4567abcd.log": MOST_DAYS - 1,  # not old yet
        f"mimic_full_{running.run_id[:8]}.log": old,
        "notes.log": old,
    }
    for name, days in stay.items():
        write_log(tmp_path, name, days_old=days)
    # what somebody copied from a terminal, named by its day
    write_log(tmp_path, "mimic_full_20300101.log", "05:00:00 78 steps\n", days_old=old)
    remove_old_files(instance, tmp_path)
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {*stay, "mimic_full_20300101.log"}


def test_old_pictures_are_removed_unless_a_page_shows_them(instance: dg.DagsterInstance, tmp_path: Path):
    pictures = [b"\x89PNG of last quarter", b"\x89PNG of today"]

    @dg.asset
    def report() -> dg.MaterializeResult:
        return dg.MaterializeResult(
            metadata={"picture": picture_metadata(pictures[len(instance.get_runs()) - 1])}
        )

    for _ in pictures:
        dg.materialize([report], instance=instance)
    folder = picture_folder(instance)
    assert folder is not None
    (folder / "mine.png").write_bytes(pictures[1])
    assert len(list(folder.iterdir())) == 3
    for file in folder.iterdir():
        let_age(file, MOST_DAYS + 1)
    remove_old_files(instance, tmp_path)
    assert [file.read_bytes() for file in folder.iterdir()] == [b"\x89PNG of today"] * 2

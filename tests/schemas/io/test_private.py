import subprocess

import pytest

from schemas.io.private import make_private


def test_what_lies_in_it_is_its_owners_alone_and_nothing_git_would_take_in(tmp_path):
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    folder = tmp_path / "second" / "data"
    make_private(folder)
    (folder / "patients.parquet").write_text("rows")

    status = subprocess.run(
        ["git", "-C", str(tmp_path), "status", "--short", "--untracked-files=all"],
        check=True,
        capture_output=True,
        text=True,
    )
    assert status.stdout == ""
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_was_there_is_left_as_it_is(tmp_path):
    """It may be a repository of the user's own."""
    make_private(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_file_in_its_place_is_no_folder(tmp_path):
    (tmp_path / "data").touch()
    with pytest.raises(OSError, match="File exists"):
        make_private(tmp_path / "data")

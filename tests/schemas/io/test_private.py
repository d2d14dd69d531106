import subprocess

import pytest

from schemas.io.private import make_private


def test_private_folder_is_owner_only_and_ignored_by_git(tmp_path):
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


def test_make_private_leaves_an_existing_folder_unchanged(tmp_path):
    """The folder may be a repository of the user."""
    make_private(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_make_private_fails_when_a_file_has_the_name(tmp_path):
    (tmp_path / "data").touch()
    with pytest.raises(OSError, match="File exists"):
        make_private(tmp_path / "data")

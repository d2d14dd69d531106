"""Faults of cohort files; each is reported with its file and affects no other file."""

import os
from collections.abc import Callable
from pathlib import Path

from schemas.cohort import read_folder
from tests.silent_faults.chain import command
from tests.silent_faults.fault import Damage, Refusal, Sandbox, SilentFault

GOOD = (Path(__file__).parents[2] / "assets" / "cohorts" / "mimic_mortality.yaml").read_text()


def folder_of(sandbox: Sandbox) -> Path:
    folder = sandbox.folder / "cohorts"
    folder.mkdir(exist_ok=True)
    (folder / "mimic_mortality.yaml").write_text(GOOD)
    return folder


def write_file(text: str) -> Damage:
    return lambda sandbox: (folder_of(sandbox) / "harm.yaml").write_text(text) and None


def make_file(make: Callable[[Path], object]) -> Damage:
    def damage(sandbox: Sandbox) -> None:
        make(folder_of(sandbox) / "harm.yaml")

    return damage


def read_cohorts(sandbox: Sandbox) -> None:
    """Read the folder, assert that the good cohort is there, and raise the error of the other file."""
    good, bad = read_folder(folder_of(sandbox))
    assert [cohort.cohort for cohort in good] == ["mimic_mortality"]
    for error in bad.values():
        raise error


READ = command("cohorts", read_cohorts)


def refused_file(name: str, damage: Damage, pattern: str) -> SilentFault:
    return SilentFault(name, "input", damage, READ, Refusal("cohorts", pattern))


FAULTS = [
    refused_file(
        "a tag that makes a Python object", write_file("cohort: !!python/object:os.system x"), "tags"
    ),
    refused_file("a tag whose reader crashes", write_file("cohort: !!timestamp no"), "tags"),
    refused_file("1,200 brackets", write_file("[" * 1200), "nested more than 32 levels deep"),
    refused_file("a pipe nobody writes into", make_file(os.mkfifo), "a pipe"),
    refused_file("a device without an end", make_file(lambda path: path.symlink_to("/dev/zero")), "a device"),
    refused_file(
        "a number of 5,000 digits",
        write_file(GOOD.replace("hash: [70", "hash: [" + "7" * 5000)),
        "of reasonable size",
    ),
    refused_file(
        "a length of 999,999 years", write_file(GOOD.replace("24 hours", "999999 years")), "is too long"
    ),
    refused_file("a list of aliases to itself", write_file("cohort: &a [*a]"), "aliases"),
]

"""Faults of cohort files, each the fault of its file alone, said with its name."""

import os
from collections.abc import Callable
from pathlib import Path

from schemas.cohort import read_folder
from tests.silent_faults.chain import command
from tests.silent_faults.fault import Damage, Fault, Refusal, World

GOOD = (Path(__file__).parents[2] / "assets" / "cohorts" / "mimic_mortality.yaml").read_text()


def folder_of(world: World) -> Path:
    folder = world.folder / "cohorts"
    folder.mkdir(exist_ok=True)
    (folder / "mimic_mortality.yaml").write_text(GOOD)
    return folder


def written(text: str) -> Damage:
    return lambda world: (folder_of(world) / "harm.yaml").write_text(text) and None


def made(make: Callable[[Path], object]) -> Damage:
    def damage(world: World) -> None:
        make(folder_of(world) / "harm.yaml")

    return damage


def read_cohorts(world: World) -> None:
    """Read the folder, hold it that the good cohort is there, and raise the fault of the other file."""
    good, bad = read_folder(folder_of(world))
    assert [cohort.cohort for cohort in good] == ["mimic_mortality"]
    for error in bad.values():
        raise error


READ = command("cohorts", read_cohorts)


def refused(name: str, damage: Damage, pattern: str) -> Fault:
    return Fault(name, "input", damage, READ, Refusal("cohorts", pattern))


FAULTS = [
    refused("a tag that makes a Python object", written("cohort: !!python/object:os.system x"), "tags"),
    refused("a tag whose reader crashes", written("cohort: !!timestamp no"), "tags"),
    refused("1,200 brackets", written("[" * 1200), "nested more than 32 levels deep"),
    refused("a pipe nobody writes into", made(os.mkfifo), "a pipe"),
    refused("a device without an end", made(lambda path: path.symlink_to("/dev/zero")), "a device"),
    refused(
        "a number of 5,000 digits",
        written(GOOD.replace("hash: [70", "hash: [" + "7" * 5000)),
        "of reasonable size",
    ),
    refused("a length of 999,999 years", written(GOOD.replace("24 hours", "999999 years")), "any life"),
    refused("a list of aliases to itself", written("cohort: &a [*a]"), "aliases"),
]

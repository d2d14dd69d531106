"""Files of a user's where ours are about to be written, and outputs that are half written."""

import contextlib
import errno
import io
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

from nest_model.__main__ import main
from pipelines.__main__ import tokenize
from pipelines.inputs.mimic import ready_mimic
from pipelines.synthetic.instacart import write_instacart
from pipelines.synthetic.mimic.write import write_mimic
from pipelines.synthetic.pcornet.write import write_pcornet
from schemas.errors import NestError
from schemas.io import atomic
from schemas.layout import Layout
from schemas.settings import Settings
from tests.silent_faults.chain import COHORT, again, command, up_to
from tests.silent_faults.fault import Damage, Fault, Refusal, Use, World

FOREIGN = "was not made here, or was changed since"


def put(place: Callable[[World], Path], content: bytes = b"a user's own") -> Damage:
    """Return the harm of a file of the user's at a place; on the way there a clean world has folders alone."""

    def damage(world: World) -> None:
        path = place(world)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return damage


def put_table(place: Callable[[World], Path]) -> Damage:
    """Return the harm of a Parquet file of the user's at a place."""
    buffer = io.BytesIO()
    pl.DataFrame({"subject_id": [1, 2]}).write_parquet(buffer)
    return put(place, buffer.getvalue())


def copied(source: Callable[[World], Path], place: Callable[[World], Path]) -> Damage:
    """Return the harm of a table of another place, copied."""
    return lambda world: put(place, source(world).read_bytes())(world)


def of_command(*arguments: str) -> Use:
    """Return a use of `python -m nest_model`; an `@` in an argument is the world's folder."""

    def call(world: World) -> None:
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            code = main([argument.replace("@", str(world.folder)) for argument in arguments])
        if code:
            raise NestError(said.getvalue())

    return command(f"nest_model {arguments[0]}", call)


def synthetic_mimic(world: World) -> None:
    write_mimic(world.raw, world.raw / "planted.parquet", patients=20, seed=1)


def default_input(world: World) -> None:
    settings = Settings(synthetic_patients=20, mimic_dir=None, vocab_dir=None)
    ready_mimic(settings, Layout(world.folder / "default" / "mimic"))


def full_disk(_: World) -> contextlib.AbstractContextManager[None]:
    """Let the disk be full when the bytes are flushed: until then the kernel had taken them."""

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextlib.contextmanager
    def damage() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(atomic, "flush", full)
            yield

    return damage()


def killed_in_the_middle(world: World) -> None:
    """Leave the old folder aside, and nothing in its place, as a kill between the two renames does."""
    shutil.move(world.mimic / "events", world.mimic / ".events.old")
    (world.mimic / ".events.old" / "notes.txt").write_text("a user's own")


PREDICT = ("predict", "--model", "@/none", "--seqset", "@/none", "--out", "@/out/vocab.parquet")
PRETRAIN = ("pretrain", "--seqset", "@/none", "--subjects", "@/none", "--vocab", "@/none", "--out", "@/out")
REPORT = ("report", "--root", "@/none", "--cohorts", COHORT, "--preset", "default", "--out", "@/out")


def into_folder(output: str, arguments: tuple[str, ...], file: str) -> Fault:
    """Return the fault of a command that would write into a folder that holds a file of the user's."""
    return Fault(
        f"{output} is to be written into a folder of the user's",
        "model",
        put(lambda world: world.folder / "out" / file),
        of_command(*arguments),
        Refusal(f"nest_model {arguments[0]}", f"holds files that were not made here, {re.escape(file)}"),
    )


FAULTS: list[Fault] = [
    Fault(
        "a real table lies where the synthetic MIMIC-IV is written",
        "input",
        put(lambda world: world.raw / "hosp" / "patients.csv.gz"),
        command("synthetic mimic", synthetic_mimic),
        Refusal("synthetic mimic", rf"patients\.csv\.gz: {FOREIGN}"),
        is_quick=True,
    ),
    Fault(
        "a real table lies unpacked beside the synthetic ones",
        "input",
        put(lambda world: world.raw / "hosp" / "labevents.csv"),
        command("synthetic mimic", synthetic_mimic),
        Refusal("synthetic mimic", rf"labevents\.csv: {FOREIGN}"),
    ),
    Fault(
        "real tables lie in the data folder's raw, and NEST_MIMIC_DIR is unset",
        "input",
        put(lambda world: world.folder / "default" / "mimic" / "raw" / "hosp" / "patients.csv.gz"),
        command("mimic_raw", default_input),
        Refusal("mimic_raw", rf"patients\.csv\.gz: {FOREIGN}.*set NEST_MIMIC_DIR"),
    ),
    Fault(
        "a real file lies where the synthetic Instacart is written",
        "input",
        put(lambda world: world.folder / "instacart" / "orders.csv"),
        command(
            "synthetic instacart", lambda world: write_instacart(world.folder / "instacart", users=40, seed=1)
        ),
        Refusal("synthetic instacart", rf"orders\.csv: {FOREIGN}"),
    ),
    Fault(
        "a real table lies where the synthetic CDM is written",
        "input",
        put_table(lambda world: world.folder / "cdm" / "demographic.parquet"),
        command("synthetic pcornet", lambda world: write_pcornet(world.folder / "cdm", children=5, seed=1)),
        Refusal("synthetic pcornet", rf"demographic\.parquet: {FOREIGN}"),
    ),
    Fault(
        "predictions are to be written over a vocabulary",
        "output",
        copied(
            lambda world: world.mimic / "vocab.parquet", lambda world: world.folder / "out" / "vocab.parquet"
        ),
        of_command(*PREDICT),
        Refusal("nest_model predict", r"vocab\.parquet: is a table of another kind \(vocab\)"),
    ),
    into_folder("a model", PRETRAIN, "README.md"),
    into_folder("a report", REPORT, "report.html"),
    Fault(
        "new patients are to be tokenized into another run's folder",
        "output",
        lambda world: shutil.copytree(world.mimic, world.folder / "out") and None,
        command(
            "tokenize",
            lambda world: tokenize(
                world.raw / "hosp", world.raw / "vocab", Layout(world.mimic), Layout(world.folder / "out")
            ),
        ),
        Refusal("tokenize", r"out: a run lies there \(vocab\.parquet\)"),
    ),
    Fault(
        "notes of the user's lie among the events",
        "output",
        put(lambda world: world.mimic / "events" / "notes.txt"),
        again("mimic_events"),
        Refusal("mimic_events", rf"notes\.txt: {FOREIGN}"),
    ),
    Fault(
        "a copy of a shard lies among the shards",
        "output",
        copied(
            lambda world: world.mimic / "seqset" / "shard-00000.parquet",
            lambda world: world.mimic / "seqset" / "shard-00000 (copy).parquet",
        ),
        again("mimic_seqset"),
        Refusal("mimic_seqset", rf"\(copy\)\.parquet: {FOREIGN}"),
    ),
    Fault(
        "the vocabulary was replaced by a table of the user's",
        "output",
        put_table(lambda world: world.mimic / "vocab.parquet"),
        again("mimic_vocab"),
        Refusal("mimic_vocab", r"vocab\.parquet: is no table of ours"),
    ),
    Fault(
        "an attrition table that the user edited lies in a cohort's folder",
        "output",
        put(lambda world: world.mimic / "cohorts" / COHORT / "attrition.csv"),
        again(f"{COHORT}_labels"),
        Refusal(f"{COHORT}_labels", rf"attrition\.csv: {FOREIGN}"),
    ),
    Fault(
        "a run was killed while it replaced the events, and notes of the user's lay among them",
        "output",
        killed_in_the_middle,
        again("mimic_events"),
        Refusal("mimic_events", rf"notes\.txt: {FOREIGN}"),
    ),
    Fault(
        "the disk is full when a table's bytes are flushed",
        "surroundings",
        full_disk,
        up_to("mimic_subjects"),
        Refusal("mimic_raw", r"cannot be written \(No space left on device\)"),
    ),
]

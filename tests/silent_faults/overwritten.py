"""User files in the place of outputs, and outputs that are only partly written."""

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
from tests.silent_faults.chain import COHORT, command, rerun, up_to
from tests.silent_faults.fault import Damage, Refusal, Sandbox, SilentFault, Use

FOREIGN = "was not made here, or was changed since"


def put_file(place: Callable[[Sandbox], Path], content: bytes = b"a user's own") -> Damage:
    """Return a damage that puts a user's file at a path, creating its folders."""

    def damage(sandbox: Sandbox) -> None:
        path = place(sandbox)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return damage


def put_table(place: Callable[[Sandbox], Path]) -> Damage:
    """Return a damage that puts a user's Parquet file at a path."""
    buffer = io.BytesIO()
    pl.DataFrame({"subject_id": [1, 2]}).write_parquet(buffer)
    return put_file(place, buffer.getvalue())


def copy_table(source: Callable[[Sandbox], Path], place: Callable[[Sandbox], Path]) -> Damage:
    """Return a damage that copies a table from one path to another."""
    return lambda sandbox: put_file(place, source(sandbox).read_bytes())(sandbox)


def run_command_line(*arguments: str) -> Use:
    """Return a use of `python -m nest_model`; `@` in an argument stands for the folder of the sandbox."""

    def call(sandbox: Sandbox) -> None:
        stderr = io.StringIO()
        with contextlib.redirect_stderr(stderr):
            code = main([argument.replace("@", str(sandbox.folder)) for argument in arguments])
        if code:
            raise NestError(stderr.getvalue())

    return command(f"nest_model {arguments[0]}", call)


def synthetic_mimic(sandbox: Sandbox) -> None:
    write_mimic(sandbox.raw, sandbox.raw / "planted.parquet", patients=20, seed=1)


def default_input(sandbox: Sandbox) -> None:
    settings = Settings(synthetic_patients=20, mimic_dir=None, vocab_dir=None)
    ready_mimic(settings, Layout(sandbox.folder / "default" / "mimic"))


def full_disk(_: Sandbox) -> contextlib.AbstractContextManager[None]:
    """Simulate a disk that turns out to be full when bytes are flushed."""

    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextlib.contextmanager
    def damage() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(atomic, "flush", full)
            yield

    return damage()


def killed_in_the_middle(sandbox: Sandbox) -> None:
    """Move the old folder aside, as a kill between the two renames leaves it."""
    shutil.move(sandbox.mimic / "events", sandbox.mimic / ".events.old")
    (sandbox.mimic / ".events.old" / "notes.txt").write_text("a user's own")


PREDICT = ("predict", "--model", "@/none", "--seqset", "@/none", "--out", "@/out/vocab.parquet")
PRETRAIN = ("pretrain", "--seqset", "@/none", "--subjects", "@/none", "--vocab", "@/none", "--out", "@/out")
REPORT = ("report", "--root", "@/none", "--cohorts", COHORT, "--preset", "default", "--out", "@/out")


def output_folder_fault(output: str, arguments: tuple[str, ...], file: str) -> SilentFault:
    """Return the fault of a command whose output folder contains a user's file."""
    return SilentFault(
        f"{output} is to be written into a folder of the user's",
        "model",
        put_file(lambda sandbox: sandbox.folder / "out" / file),
        run_command_line(*arguments),
        Refusal(
            f"nest_model {arguments[0]}", f"contains files that were not made here, such as {re.escape(file)}"
        ),
    )


FAULTS: list[SilentFault] = [
    SilentFault(
        "a real table lies where the synthetic MIMIC-IV is written",
        "input",
        put_file(lambda sandbox: sandbox.raw / "hosp" / "patients.csv.gz"),
        command("synthetic mimic", synthetic_mimic),
        Refusal("synthetic mimic", rf"patients\.csv\.gz: {FOREIGN}"),
        is_quick=True,
    ),
    SilentFault(
        "a real table lies unpacked beside the synthetic ones",
        "input",
        put_file(lambda sandbox: sandbox.raw / "hosp" / "labevents.csv"),
        command("synthetic mimic", synthetic_mimic),
        Refusal("synthetic mimic", rf"labevents\.csv: {FOREIGN}"),
    ),
    SilentFault(
        "real tables lie in the data folder's raw, and NEST_MIMIC_DIR is unset",
        "input",
        put_file(lambda sandbox: sandbox.folder / "default" / "mimic" / "raw" / "hosp" / "patients.csv.gz"),
        command("mimic_raw", default_input),
        Refusal("mimic_raw", rf"patients\.csv\.gz: {FOREIGN}.*set NEST_MIMIC_DIR"),
    ),
    SilentFault(
        "a real file lies where the synthetic Instacart is written",
        "input",
        put_file(lambda sandbox: sandbox.folder / "instacart" / "orders.csv"),
        command(
            "synthetic instacart",
            lambda sandbox: write_instacart(sandbox.folder / "instacart", users=40, seed=1),
        ),
        Refusal("synthetic instacart", rf"orders\.csv: {FOREIGN}"),
    ),
    SilentFault(
        "a real table lies where the synthetic CDM is written",
        "input",
        put_table(lambda sandbox: sandbox.folder / "cdm" / "demographic.parquet"),
        command(
            "synthetic pcornet", lambda sandbox: write_pcornet(sandbox.folder / "cdm", children=5, seed=1)
        ),
        Refusal("synthetic pcornet", rf"demographic\.parquet: {FOREIGN}"),
    ),
    SilentFault(
        "predictions are to be written over a vocabulary",
        "output",
        copy_table(
            lambda sandbox: sandbox.mimic / "vocab.parquet",
            lambda sandbox: sandbox.folder / "out" / "vocab.parquet",
        ),
        run_command_line(*PREDICT),
        Refusal("nest_model predict", r"vocab\.parquet: this is a table of another kind \(vocab\)"),
    ),
    output_folder_fault("a model", PRETRAIN, "README.md"),
    output_folder_fault("a report", REPORT, "report.html"),
    SilentFault(
        "new patients are to be tokenized into another run's folder",
        "output",
        lambda sandbox: shutil.copytree(sandbox.mimic, sandbox.folder / "out") and None,
        command(
            "tokenize",
            lambda sandbox: tokenize(
                sandbox.raw / "hosp",
                sandbox.raw / "vocab",
                Layout(sandbox.mimic),
                Layout(sandbox.folder / "out"),
            ),
        ),
        Refusal("tokenize", r"out: the folder holds a fitted run \(vocab\.parquet\)"),
    ),
    SilentFault(
        "notes of the user's lie among the events",
        "output",
        put_file(lambda sandbox: sandbox.mimic / "events" / "notes.txt"),
        rerun("mimic_events"),
        Refusal("mimic_events", rf"notes\.txt: {FOREIGN}"),
    ),
    SilentFault(
        "a copy of a shard lies among the shards",
        "output",
        copy_table(
            lambda sandbox: sandbox.mimic / "seqset" / "shard-00000.parquet",
            lambda sandbox: sandbox.mimic / "seqset" / "shard-00000 (copy).parquet",
        ),
        rerun("mimic_seqset"),
        Refusal("mimic_seqset", rf"\(copy\)\.parquet: {FOREIGN}"),
    ),
    SilentFault(
        "the vocabulary was replaced by a table of the user's",
        "output",
        put_table(lambda sandbox: sandbox.mimic / "vocab.parquet"),
        rerun("mimic_vocab"),
        Refusal("mimic_vocab", r"vocab\.parquet: this is not a table of ours"),
    ),
    SilentFault(
        "an attrition table that the user edited lies in a cohort's folder",
        "output",
        put_file(lambda sandbox: sandbox.mimic / "cohorts" / COHORT / "attrition.csv"),
        rerun(f"{COHORT}_labels"),
        Refusal(f"{COHORT}_labels", rf"attrition\.csv: {FOREIGN}"),
    ),
    SilentFault(
        "a run was killed while it replaced the events, and notes of the user's lay among them",
        "output",
        killed_in_the_middle,
        rerun("mimic_events"),
        Refusal("mimic_events", rf"notes\.txt: {FOREIGN}"),
    ),
    SilentFault(
        "the disk is full when a table's bytes are flushed",
        "surroundings",
        full_disk,
        up_to("mimic_subjects"),
        Refusal("mimic_raw", r"cannot be written \(No space left on device\)"),
    ),
]

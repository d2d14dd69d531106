"""Faults of a model folder, of concurrent runs, of the code that runs, and of downloads and connections."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import dagster as dg
import pytest
import torch

from assets.resources import Workspace
from nest_model.config import ModelConfig
from nest_model.data.seqsets import SeqSets
from nest_model.model import checkpoint
from nest_model.model.systems.nest.encoder import NestModel
from pipelines.fetch.physionet import LICENSE, TABLE_FILES, fetch_mimic_demo
from pipelines.sources.mimic.checksums import SUMS
from pipelines.sources.pcornet.databases.access import Access, postgres_address
from schemas.errors import NestError
from schemas.io.hashing import file_sha256
from tests.silent_faults.chain import command
from tests.silent_faults.fault import Damage, Refusal, Sandbox, SilentFault
from tests.support import saved_model
from tests.support.commands import ROOT, copy_checkout
from tests.support.loopback_server import serving
from tests.support.writers import another_writer

CONFIG = ModelConfig(20, d_model=16, heads=2, d_ff=8, layers=1)


def vocab_sha256(sandbox: Sandbox) -> str:
    return SeqSets.read(sandbox.mimic / "seqset").vocab_sha256


def model_of(sandbox: Sandbox) -> Path:
    """Return the folder of a small model for the sandbox's shards, creating it if needed."""
    folder = sandbox.folder / "model"
    if not folder.exists():
        card = checkpoint.ModelCard("nest", CONFIG, vocab_sha256(sandbox), {})
        checkpoint.save(folder, NestModel(CONFIG).state_dict(), card, "# a model\n")
    return folder


def change_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    """Return a damage that changes weights and updates their hash."""
    return lambda sandbox: saved_model.change_weights(model_of(sandbox), change)


def half(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.half() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def change_shape(**values: object) -> Damage:
    return lambda sandbox: saved_model.change_shape(model_of(sandbox), **values)


load_model = command(
    "nest_model",
    lambda sandbox: checkpoint.load_pretrained(model_of(sandbox), vocab_sha256=vocab_sha256(sandbox)),
)


def checkout_of(sandbox: Sandbox) -> Path:
    """Return a second checkout, copying it if needed."""
    place = sandbox.folder / "checkout"
    if not place.exists():
        copy_checkout(place)
    return place


def load_definitions(sandbox: Sandbox) -> None:
    """Load the Dagster definitions in the second checkout.

    Raises:
        NestError: the process failed; the message is its error output.
    """
    place = checkout_of(sandbox)
    override = place / "other"  # written by the damage: the checkout whose code is found first
    code = override.read_text() if override.exists() else str(place)
    process = subprocess.run(
        [sys.executable, "-P", "-c", "from assets.definitions import defs; defs()"],
        cwd=place, env=os.environ | {"PYTHONPATH": code}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if process.returncode:
        raise NestError(process.stderr)


def find_other_code(sandbox: Sandbox) -> None:
    (checkout_of(sandbox) / "other").write_text(str(ROOT))


def start_run(sandbox: Sandbox) -> None:
    """Create a run as a command does, in a separate history.

    Raises:
        NestError: the run is refused.
    """

    @dg.op
    def write(workspace: Workspace) -> None:
        pass

    @dg.job(resource_defs={"workspace": Workspace(data_dir=str(sandbox.data))})
    def chain() -> None:
        write()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DAGSTER_NEST_STORAGE", str(sandbox.folder / "history"))
        with dg.DagsterInstance.from_config(str(ROOT)) as instance:
            instance.create_run_for_job(chain)


def site_of(sandbox: Sandbox) -> Path:
    """Return a folder laid out like PhysioNet's, creating it if needed."""
    place = sandbox.folder / "site"
    if not place.exists():
        (place / "hosp").mkdir(parents=True)
        names = (LICENSE, *TABLE_FILES.values())
        for name in names:
            (place / name).write_bytes(name.encode() * 99)
        (place / SUMS).write_text("".join(f"{file_sha256(place / name)} {name}\n" for name in names))
    return place


def fetch(sandbox: Sandbox) -> None:
    place = site_of(sandbox)
    files = {f"/demo/{path.relative_to(place)}": path.read_bytes() for path in place.rglob("*.*")}
    with serving(files=files) as site, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        fetch_mimic_demo(f"{site.url}/demo/", sandbox.folder / "fetched")


def replace_fetched(sandbox: Sandbox) -> None:
    (site_of(sandbox) / TABLE_FILES["emar"]).write_bytes(b"another version")


@contextmanager
def another_host(_: Sandbox) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGHOSTADDR", "192.0.2.1")
        yield


def reach_database(_: Sandbox) -> None:
    access = Access("user", "password", "postgresql://localhost/cdm?sslmode=prefer")
    postgres_address(access, allow_plaintext=False)


load_code = command("assets.definitions", load_definitions)
begin_run = command("dagster job execute", start_run)
fetch_demo = command("fetch_mimic_demo", fetch)
extract = command("extract", reach_database)
model_fault = partial(SilentFault, place="model", use=load_model, is_quick=True)

FAULTS = [
    model_fault(
        name="a model with NaN among its weights",
        damage=change_weights(lambda tensors: tensors["norm.weight"].fill_(torch.nan)),
        caught_by=Refusal("nest_model", r"norm\.weight hold NaN"),
    ),
    model_fault(
        name="a model without one of its tensors",
        damage=change_weights(lambda tensors: tensors.pop("norm.weight")),
        caught_by=Refusal("nest_model", r"norm\.weight missing"),
    ),
    model_fault(
        name="a model of another shape than its config says",
        damage=change_shape(d_ff=16),
        caught_by=Refusal("nest_model", "the weights do not fit config.json: .* has shape"),
    ),
    model_fault(
        name="a model in half precision under a config of float32",
        damage=change_weights(lambda tensors: tensors.update(half(tensors))),
        caught_by=Refusal("nest_model", "has type F16, expected F32"),
    ),
    model_fault(
        name="a model larger than memory",
        damage=change_shape(d_model=2**30),
        caught_by=Refusal("nest_model", "takes .* GiB of memory"),
    ),
    model_fault(
        name="a model that reads another vocabulary than the shards",
        damage=lambda sandbox: saved_model.change_config(model_of(sandbox), vocab_sha256="b" * 64),
        caught_by=Refusal("nest_model", "the model reads another vocabulary"),
    ),
    SilentFault(
        "the code of another checkout, found first in this one",
        "surroundings",
        find_other_code,
        load_code,
        Refusal("assets.definitions", "this command would run the code of"),
    ),
    SilentFault(
        "a second run while another writes the data folder",
        "surroundings",
        lambda sandbox: another_writer(sandbox.data),
        begin_run,
        Refusal("dagster job execute", "another run is writing there"),
        is_quick=True,
    ),
    SilentFault(
        "a fetched table that is not the one its provider's list promises",
        "surroundings",
        replace_fetched,
        fetch_demo,
        Refusal("fetch_mimic_demo", "does not have the SHA-256 of its list"),
        is_quick=True,
    ),
    SilentFault(
        "a database on this machine by its name and on another by PGHOSTADDR, without TLS",
        "surroundings",
        another_host,
        extract,
        Refusal("extract", "another host without TLS"),
        is_quick=True,
    ),
]

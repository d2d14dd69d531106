"""Damaged codes in the input of a site: tables of a CDM, and a MEDS dataset."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from pipelines.inputs.pcornet import write_crosswalks
from pipelines.synthetic.pcornet.write import write_pcornet
from tests.silent_faults.fault import Catch, Damage, Findings, Refusal, Sandbox, SilentFault
from tests.silent_faults.sources import SMALL, up_to
from tests.support.omop_tables import omop_dataset

CHILDREN, SALT = SMALL["synthetic_children"], "a salt of this table of faults"
Change = Callable[[pl.Expr], pl.Expr]


def cdm_of(sandbox: Sandbox) -> Path:
    """Return a folder with a site's CDM and crosswalks, creating it if needed."""
    folder = sandbox.folder / "cdm"
    if not folder.exists():
        write_pcornet(folder, children=CHILDREN, seed=3)
        write_crosswalks(folder / "vocab")
    return folder


def change_cdm(table: str, column: str, change: Change) -> Damage:
    """Return a damage that changes the values in a column of a CDM table."""

    def damage(sandbox: Sandbox) -> None:
        file = cdm_of(sandbox) / f"{table.lower()}.parquet"
        pl.read_parquet(file).with_columns(change(pl.col(column)).alias(column)).write_parquet(file)

    return damage


def change_icd9(change: Change, *, prefix: str) -> Change:
    """Return a change that applies only to numeric codes whose type column says ICD-9."""
    is_nine = (pl.col(f"{prefix}_TYPE").str.strip_chars().str.zfill(2) == "09") & pl.col(prefix).str.contains(
        r"^[\d.]+\s*$"
    )
    return lambda code: pl.when(is_nine).then(change(code)).otherwise(code)


def without_dot(code: pl.Expr) -> pl.Expr:
    return code.str.replace_all(r"[.\s]", "")


def read_cdm(sandbox: Sandbox) -> Findings:
    folder = cdm_of(sandbox)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEST_SITE_SALT", SALT)
        return up_to("pcornet", "events")(sandbox, pcornet_dir=str(folder), vocab_dir=str(folder / "vocab"))


def meds_of(sandbox: Sandbox) -> Path:
    """Return the folder of a MEDS dataset with ICD codes, creating it if needed."""
    folder = sandbox.folder / "omop"
    return folder if folder.exists() else omop_dataset(folder, "meds_etl")


def change_meds(old: str, new: str) -> Damage:
    """Return a damage that spells some codes differently."""

    def damage(sandbox: Sandbox) -> None:
        omop_dataset(sandbox.folder / "omop", "meds_etl", **{old: new})

    return damage


def read_meds(sandbox: Sandbox) -> Findings:
    return up_to("meds", "events")(sandbox, meds_dir=str(meds_of(sandbox)))


def cdm_fault(name: str, table: str, column: str, change: Change, says: str) -> SilentFault:
    return SilentFault(
        f"PCORnet {table}: {name}",
        "input",
        change_cdm(table, column, change),
        read_cdm,
        Refusal("pcornet_events", f"{table}: column {column}: .*{says}"),
    )


def meds_fault(name: str, old: str, new: str, caught_by: Catch) -> SilentFault:
    return SilentFault(f"MEDS: {name}", "input", change_meds(old, new), read_meds, caught_by)


FAULTS = [
    cdm_fault(
        "leading zeros of ICD-9 lost",
        "DIAGNOSIS",
        "DX",
        change_icd9(lambda code: without_dot(code).str.strip_chars_start("0"), prefix="DX"),
        "zeros",
    ),
    cdm_fault(
        "ICD-9 codes as decimal numbers",
        "DIAGNOSIS",
        "DX",
        change_icd9(lambda code: without_dot(code) + ".0", prefix="DX"),
        "decimal numbers",
    ),
    cdm_fault(
        "zeros before a code with its dot lost",
        "DIAGNOSIS",
        "DX",
        change_icd9(lambda code: code.str.strip_chars_start("0"), prefix="DX"),
        "decimal numbers",
    ),
    cdm_fault(
        "a letter of another alphabet",
        "DIAGNOSIS",
        "DX",
        lambda code: code.str.replace("H", "\u041d", literal=True),
        "another alphabet",
    ),
    cdm_fault(
        "CPT codes as decimal numbers",
        "PROCEDURES",
        "PX",
        lambda code: pl.when(code.str.contains(r"^\d{5}$")).then(code + ".0").otherwise(code),
        "decimal numbers",
    ),
    cdm_fault(
        "one RxNorm number in four as a decimal number",
        "PRESCRIBING",
        "RXNORM_CUI",
        lambda code: pl.when(pl.int_range(pl.len()) % 4 == 0).then(code + ".0").otherwise(code),
        "decimal numbers",
    ),
    meds_fault(
        "leading zeros of ICD-9 lost",
        "ICD10CM/I10",
        "ICD9CM/42",
        Refusal("meds_events", "column code: .* zeros"),
    ),
    meds_fault(
        "ICD-9 codes as decimal numbers",
        "ICD10CM/I10",
        "ICD9CM/4019.0",
        Refusal("meds_events", "column code: .* decimal numbers"),
    ),
    meds_fault(
        "ICD-9 procedures without their zeros",
        "ICD10PCS/5A1955Z",
        "ICD9Proc/66",
        Refusal("meds_events", "column code: .* zeros"),
    ),
    meds_fault(
        "a letter of another alphabet",
        "ICD10CM/I10",
        "ICD10CM/\u040610",
        Refusal("meds_events", "column code: .* another alphabet"),
    ),
]

"""Run the product's assets and checks on synthetic patients in this process, and collect their findings."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import dagster as dg

from assets.checks import cohort_checks, hash_check, source_checks
from assets.cohorts import COHORT_FOLDER, labels_asset
from assets.resources import Workspace
from assets.sources.common import source_assets
from pipelines.events.split import TASK_SPLIT
from pipelines.synthetic.mimic.write import write_mimic
from schemas.cohort import parse_cohort
from schemas.errors import NestError
from tests.bad_inputs.damage import Damage as RawDamage
from tests.silent_faults.fault import Damage, Findings, Sandbox, Use

MIMIC_ASSETS = source_assets("mimic")

PATIENTS, TOKENS_PER_SET = 300, 40
COHORT = "mimic_mortality"


def write_raw(folder: Path) -> None:
    """Write a synthetic MIMIC-IV as `raw/hosp` and `raw/vocab`."""
    write_mimic(
        folder / "raw",
        folder / "raw" / "planted.parquet",
        patients=PATIENTS,
        seed=7,
        tokens_per_set_median=TOKENS_PER_SET,
    )


@cache
def _definitions() -> dg.Definitions:
    cohort = parse_cohort(COHORT_FOLDER / f"{COHORT}.yaml")
    return dg.Definitions(
        assets=[*MIMIC_ASSETS, labels_asset("mimic", cohort)],
        asset_checks=[
            *source_checks("mimic"),
            hash_check("mimic", TASK_SPLIT),
            *cohort_checks("mimic", COHORT),
        ],
    )


def materialize(sandbox: Sandbox, *assets: str, preset: str = "default") -> Findings:
    """Materialize some assets (none: all) and run their checks, as the UI does; return the findings."""
    workspace = Workspace(
        data_dir=str(sandbox.data),
        mimic_dir=str(sandbox.raw),
        vocab_dir=str(sandbox.raw / "vocab"),
        preset=preset,
    )
    definitions = dg.Definitions.merge(_definitions(), dg.Definitions(resources={"workspace": workspace}))
    job = definitions.resolve_implicit_global_asset_job_def()
    selection = [dg.AssetKey(asset) for asset in assets] or None
    return findings_of(job.execute_in_process(asset_selection=selection, raise_on_error=False))


def whole_chain(sandbox: Sandbox) -> Findings:
    """Materialize everything from the raw tables to shards and labels."""
    return materialize(sandbox)


TABLES = [asset.key.to_user_string() for asset in MIMIC_ASSETS]


@cache
def up_to(asset: str) -> Use:
    """Return a use that materializes the chain of assets up to and including one asset."""
    return lambda sandbox: materialize(sandbox, *TABLES[: TABLES.index(asset) + 1])


@cache
def rerun(*assets: str) -> Use:
    """Return a use that materializes only these assets, on the existing files."""
    return lambda sandbox: materialize(sandbox, *assets)


def command(name: str, call: Callable[[Sandbox], object]) -> Use:
    """Return a use that calls a function of the product directly; its NestError counts as a refusal."""

    def use(sandbox: Sandbox) -> Findings:
        try:
            call(sandbox)
        except NestError as error:
            return Findings(refusals={name: str(error)})
        return Findings()

    return use


def damage_input(damage: RawDamage) -> Damage:
    """Return a damage from `tests.bad_inputs.damage` that applies to the raw tables of a sandbox."""
    return lambda sandbox: damage(sandbox.raw)


def findings_of(result: dg.ExecuteInProcessResult) -> Findings:
    findings = Findings()
    for evaluation in result.get_asset_check_evaluations():
        if evaluation.passed:
            continue
        asset = evaluation.asset_key.to_user_string()
        findings.checks.add((asset, evaluation.check_name))
        if evaluation.check_name == "nothing_odd":
            findings.oddities[asset] = evaluation.description or ""
        if table := evaluation.metadata.get("expectations"):
            for claim in re.findall(r"^\| ✗ \| \w+ \| ([^|]+) \|", str(table.value), re.MULTILINE):
                findings.rules.add((asset, claim.strip().replace(" ", "_")))
    for event in result.all_events:
        if event.event_type is dg.DagsterEventType.STEP_FAILURE:
            findings.refusals[event.step_key or ""] = _first_message(event.step_failure_data.error)
    return findings


def _first_message(error: object) -> str:
    while getattr(error, "cause", None):
        error = error.cause  # type: ignore[attr-defined]
    return str(getattr(error, "message", error)).strip()

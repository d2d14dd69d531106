"""The jobs of a source: the whole chain and its three stretches; and of each cohort alone."""

from typing import Any

import dagster as dg

from assets.cohort_files import OF_BAD_FILE, name_of_asset_to_mend, name_of_cohort_job
from assets.runtime.step_cache import FAILURES_ARE_RESULTS
from schemas.cards import COHORT_STEPS
from schemas.sources import SourceSpec, sources

Job = Any  # Dagster's unresolved job, whose class is not public


def chain_jobs(spec: SourceSpec) -> list[Job]:
    """Return `<source>_full`, `_etl`, `_pretrain` and, where there are cohorts, `_finetune`."""
    source, provider = spec.name, spec.title
    groups = [f"{source}_cohorts", f"{source}_cohorts_to_mend"] if spec.has_cohorts else []
    etl = dg.AssetSelection.groups(f"{source}_etl", *groups)
    models, page = (
        dg.AssetSelection.groups(f"{source}_models", f"{source}_systems"),
        dg.AssetSelection.groups(f"{source}_report"),
    )
    pretraining = dg.AssetSelection.assets(f"{source}_nest")
    stretches = {
        "full": (etl | models | page, f"Raw {provider} to a report: {spec.chain_about}."),
        "etl": (etl, f"Raw {provider} to SeqSet shards{' and labels' if spec.has_cohorts else ''}."),
        "pretrain": (pretraining, "Pretrain NEST on shards that are there."),
    }
    if spec.has_cohorts:
        stretches["finetune"] = (
            (models - pretraining) | page,
            "Fine-tune, boost and report on a pretrained NEST that is there.",
        )
    if spec.evidence:
        stretches["evidence"] = (
            dg.AssetSelection.assets(f"{source}_evidence_page").upstream(),
            spec.evidence.about,
        )
    tags = {"evidence": {FAILURES_ARE_RESULTS: "true"}}
    return [
        dg.define_asset_job(f"{source}_{name}", selection, description=description, tags=tags.get(name))
        for name, (selection, description) in stretches.items()
    ]


def cohort_job(cohort: str) -> Job:
    """Return `one_cohort_<cohort>`: all that is made from one cohort's file.

    The UI sorts jobs by name: with this one, the sources' own come first.
    """
    return dg.define_asset_job(
        name_of_cohort_job(cohort),
        dg.AssetSelection.assets(*(f"{cohort}_{suffix}" for suffix in COHORT_STEPS)),
        description=f"Labels, checks, models and page of {cohort}, on shards and a pretrained NEST that are there.",
    )


def unreadable_cohort_job(name: str) -> Job:
    """Return the job of a cohort file that cannot be read: it fails with the faults of the file."""
    return dg.define_asset_job(
        name_of_cohort_job(name),
        dg.AssetSelection.assets(name_of_asset_to_mend(name)),
        description="The file of this cohort cannot be read: fix it, then press Reload definitions.",
        tags={OF_BAD_FILE: "true"},
    )


FETCH = [
    dg.define_asset_job(name, dg.AssetSelection.assets(asset), description=description)
    for name, asset, description in (
        ("fetch_mimic_demo", "mimic_demo_files", "MIMIC-IV's open demo from PhysioNet, verified."),
        ("fetch_crosswalks", "crosswalk_files", "CMS's mappings, and GSN → ATC from NEST_GSN_ATC_URL."),
    )
]


def jobs() -> list[Job]:
    """Return the jobs of every source, and those that fetch."""
    return [*(job for spec in sources().values() for job in chain_jobs(spec)), *FETCH]

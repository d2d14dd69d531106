"""Downloads of input, each only on request, and the check of a user's copy against the provider's checksums."""

import hashlib
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from assets.checks import log_failures
from assets.resources import Workspace
from assets.runtime.materialize import with_clear_errors
from assets.sources.common import OWNERS
from pipelines.inputs.mimic import MimicSteps
from pipelines.sources.mimic.checksums import compare
from schemas.cards import StepCard
from schemas.io.hashing import file_sha256
from schemas.markdown import markdown_table

GROUP = "downloads"


@dg.asset(kinds={"csv"}, group_name=GROUP, owners=OWNERS)
@with_clear_errors
def mimic_demo_files(workspace: Workspace) -> dg.MaterializeResult[Any]:
    """MIMIC-IV's open demo (100 patients, ODbL) from PhysioNet: what we read of it, each file as its sums promise."""
    from pipelines.fetch.physionet import fetch_mimic_demo  # the HTTP library: only where it fetches

    demo = fetch_mimic_demo(workspace.fetching.mimic_demo_url, workspace.downloads / "mimic-iv-demo")
    return _fetched(demo.folder, demo.sums, "NEST_MIMIC_DIR", files_fetched=demo.new_files)


@dg.asset(
    kinds={"text"},
    check_specs=[
        dg.AssetCheckSpec("complete", asset="crosswalk_files", description="Every crosswalk is there.")
    ],
    group_name=GROUP,
    owners=OWNERS,
)
@with_clear_errors
def crosswalk_files(workspace: Workspace) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """The crosswalks: CMS's General Equivalence Mappings of 2018, and GSN → ATC from NEST_GSN_ATC_URL."""
    from pipelines.fetch.crosswalks import fetch_crosswalks  # the HTTP library: only where it fetches

    settings = workspace.fetching
    crosswalks = fetch_crosswalks(settings.gem_url, settings.gsn_atc_url, workspace.downloads / "crosswalks")
    sums = {path.name: file_sha256(path) for path in crosswalks.files.values()}
    yield _fetched(crosswalks.folder, sums, "NEST_VOCAB_DIR")
    level = logging.WARNING if crosswalks.missing else logging.INFO
    dg.AssetExecutionContext.get().log.log(level, crosswalks.sentence)
    yield dg.AssetCheckResult(
        check_name="complete",
        passed=not crosswalks.missing,
        severity=dg.AssetCheckSeverity.WARN,
        description=crosswalks.sentence,
    )


@dg.asset_check(asset="mimic_raw", blocking=True)
@with_clear_errors
def as_published(workspace: Workspace) -> dg.AssetCheckResult:
    """The tables are those their provider published: their hashes are in the SHA256SUMS.txt beside them."""
    card = StepCard.read(workspace.layout("mimic").cards, "raw")
    comparison = compare(MimicSteps(workspace.settings, workspace.layout("mimic")).source, card.hashes)
    result = dg.AssetCheckResult(
        check_name="as_published",
        passed=not (comparison.differ or comparison.without_checksum),
        severity=dg.AssetCheckSeverity.ERROR if comparison.differ else dg.AssetCheckSeverity.WARN,
        description=comparison.sentence,
    )
    return log_failures(result)[0]


def _fetched(folder: Path, sums: dict[str, str], setting: str, **counts: int) -> dg.MaterializeResult[Any]:
    """Return what lies in the folder, and the line that makes it the input."""
    use = f"export {setting}={folder}"
    dg.AssetExecutionContext.get().log.info(f"to use it: {use}")
    files = [
        {"file": name, "bytes": f"{(folder / name).stat().st_size:,}", "SHA-256": digest[:16]}
        for name, digest in sums.items()
    ]
    return dg.MaterializeResult(
        metadata={
            "to_use_it": dg.MetadataValue.md(f"```\n{use}\n```"),
            "found_in": dg.MetadataValue.path(folder),
            **counts,
            "files": dg.MetadataValue.md(markdown_table(files)),
        },
        data_version=dg.DataVersion(hashlib.sha256(json.dumps(sums).encode()).hexdigest()[:16]),
    )


FETCHED_ASSETS = [mimic_demo_files, crosswalk_files]

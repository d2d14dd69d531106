"""Audit one cohort: checks of every prediction, suspect features, and how much each raises the AUROC."""

from pathlib import Path

import yaml
from threadpoolctl import threadpool_limits

from nest_model.audit.proofs import proofs
from nest_model.audit.suspects import Suspects
from nest_model.audit.yes_or_no import as_yes_or_no
from nest_model.data.labels import Labels
from nest_model.data.seqsets import SeqSets
from nest_model.data.vocabulary import read_tokens
from nest_model.training.telemetry import Telemetry
from schemas.cohort import Cohort
from schemas.io.outputs import write_text
from schemas.tables.leak_audit import LeakAudit


def run(*, labels: Path, seqset: Path, vocab: Path, out: Path, seed: int, telemetry: Telemetry) -> None:
    """Write the leak audit of one cohort to `out`.

    One thread is used: the models are so small that several threads would only wait for each other.

    Raises:
        NestError: the inputs do not belong together.
    """
    seqsets, (rows, question) = SeqSets.read(seqset), as_yes_or_no(Labels.read(labels))
    tokens = read_tokens(vocab, seqsets.vocab_sha256)
    audit = LeakAudit(cohort=rows.task.cohort, judged="The cohort is empty; there is nothing to audit.")
    if len(rows):
        cohort = _cohort(labels.with_name("cohort.lock.yaml"))
        suspects = Suspects.of(seqsets, rows, tokens, cohort, labels)
        with threadpool_limits(1):
            audit = suspects.audit(list(proofs(seqsets, rows, seed=seed)))
        audit = audit.model_copy(update={"judged": audit.judged + question})
    write_text(out / "leak_audit.json", audit.model_dump_json(indent=2) + "\n")
    telemetry.result({"suspects": len(audit.suspects), "warnings": len(audit.warnings)})


def _cohort(lock: Path) -> Cohort | None:
    """Return the cohort definition the labels were derived from; None if it is not beside them."""
    if not lock.exists():
        return None
    return Cohort.of_lock(yaml.safe_load(lock.read_text(encoding="utf-8")))

"""Limits on the rows of a MIMIC-IV table that may be lost on the way to events, by reason."""

from pipelines.events.code_limits import MOST_MALFORMED_SHARE, count_above, damaged_codes, lost_zeros
from pipelines.sources.mimic.drug_lookup import GsnCount
from schemas.cards import Flow
from schemas.errors import InputError
from schemas.suppress import suppress_fraction

MAX_FOREIGN_SHARE = 0.001
# of emar rows that are not Administered; the demo has 36 %
MAX_NOT_GIVEN_SHARE = 0.60
MAX_LOST_SHARE = 0.50  # of the rows of a kind
# fewer rows are not judged by shares: a table of new patients may have a handful
MIN_ROWS = 100
SYSTEM_OF_TABLE = {"diagnoses_icd": "ICD-10-CM", "procedures_icd": "ICD-10-PCS"}

NO_LOSS = ("repeated", "event_txt")
"""Reasons to drop a row that are not losses: a copy of another row, a drug that was not given."""

CHECK = "Check that its columns hold what MIMIC-IV's do."


def foreign_sentence(table: str, fraction: str) -> str:
    """Return a sentence on rows that name an admission of another patient; `fraction` is exact or suppressed."""
    return f"{table}: column hadm_id: {fraction} rows name another patient's admission or none"


def not_given_warnings(emar: Flow) -> list[str]:
    """Return a sentence on drugs that were mostly not given, as a night's patients may have; small counts hidden."""
    rows = emar.source_rows
    if rows < MIN_ROWS or not count_above(emar, "event_txt", MAX_NOT_GIVEN_SHARE):
        return []
    fraction = suppress_fraction(emar.dropped["event_txt"], rows)
    usual = f"(usual: at most {MAX_NOT_GIVEN_SHARE:.0%})"
    return [f"emar: column event_txt: {fraction} rows are not Administered {usual}. {CHECK}"]


def refuse(table: str, flow: Flow, *, may_be_empty: bool = False) -> None:
    """Refuse a table whose flow exceeds the limits.

    Args:
        may_be_empty: whether nothing of the table may be left, as of a night when no drug was given; the share that was
            not given is no fault then.

    Raises:
        InputError: a code is of no known version; above 0.1 % of rows hold a malformed code, or name another patient's
            admission or an unknown patient; codes have lost their zeros; one labevent_id stands for two measurements;
            more than half of a kind is lost, or all of it.
    """
    if fault := _codes_fault(table, flow) or _rows_fault(table, flow) or _loss(flow, may_be_empty):
        raise InputError(f"{table}: {fault}")


def _codes_fault(table: str, flow: Flow) -> str | None:
    if count := count_above(flow, "icd_version"):
        return f"column icd_version: {count} hold neither 9 nor 10. Correct those rows or leave them out."
    if fault := damaged_codes(flow, "icd_code"):
        return fault
    if count := count_above(flow, "malformed_code", MOST_MALFORMED_SHARE):
        return (
            f"column icd_code: {count} hold no {SYSTEM_OF_TABLE.get(table, 'ICD-10')} code where the version is 10, or "
            f"none of ICD-9 where it is 9 (more than {MOST_MALFORMED_SHARE:.1%}). Correct those rows, or give the "
            "table of this name."
        )
    return lost_zeros(flow, "icd_code")


def _rows_fault(table: str, flow: Flow) -> str | None:
    release = f"(more than {MAX_FOREIGN_SHARE:.1%}). Give all tables of one release, each complete."
    if count_above(flow, "foreign_hadm_id", MAX_FOREIGN_SHARE):
        foreign = foreign_sentence(table, f"{flow.dropped['foreign_hadm_id']:,} of {flow.source_rows:,}")
        return f"{foreign.removeprefix(f'{table}: ')} {release}"
    if count := count_above(flow, "unknown_subject", MAX_FOREIGN_SHARE):
        return f"column subject_id: {count} name an unknown patient {release}"
    if count := count_above(flow, "conflicting"):
        return f"column labevent_id: {count} repeat another row's and differ from it. Keep one row per measurement."
    return None


def _loss(flow: Flow, may_be_empty: bool) -> str | None:
    """Return the fault of a table of which too few rows are left, or None."""
    counts, rows = flow.dropped, flow.source_rows
    whole = rows - sum(counts.get(reason, 0) for reason in NO_LOSS)
    if rows and not flow.kept_rows and (whole or not may_be_empty):
        reason = max(counts, key=lambda name: counts[name])
        return f"none of {rows:,} rows can be used: {counts[reason]:,} are dropped as {reason}. {CHECK}"
    if rows < MIN_ROWS:
        return None
    if not may_be_empty and (count := count_above(flow, "event_txt", MAX_NOT_GIVEN_SHARE)):
        return (
            f"column event_txt: {count} are not Administered (more than {MAX_NOT_GIVEN_SHARE:.0%}). {CHECK}"
        )
    losses = {reason: count for reason, count in counts.items() if reason not in NO_LOSS}
    losses["not_in_gem"] = flow.noted.get("not_in_gem", 0)
    if sum(losses.values()) > MAX_LOST_SHARE * whole:
        reason = max(losses, key=lambda name: losses[name])
        loss = f"{sum(losses.values()):,} of {whole:,} rows are lost (more than half)"
        return f"{loss}, {losses[reason]:,} of them as {reason}. {CHECK}"
    return None


def refuse_unknown_gsns(gsns: GsnCount, flow: Flow) -> None:
    """Refuse a crosswalk that maps no more than half of the prescriptions with a GSN to a code."""
    if gsns.in_crosswalk <= (1 - MAX_LOST_SHARE) * gsns.with_gsn and (
        gsns.with_gsn >= MIN_ROWS or not gsns.in_crosswalk
    ):
        raise InputError(
            f"prescriptions: column gsn: {gsns.in_crosswalk:,} of {gsns.with_gsn:,} rows with a GSN (of "
            f"{flow.source_rows:,} in all) lead to a code. Give the "
            "gsn_atc_ndc_mapping of these drugs."
        )

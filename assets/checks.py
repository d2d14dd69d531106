"""The asset checks: ERROR blocks what is downstream, WARN shows yellow. They show counts and shares, never a value."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.metadata import flows_markdown
from assets.resources import Workspace
from assets.runtime.materialize import with_clear_errors
from nest_model.data.leak_guard import count_leaks
from nest_model.training.guesses.judgement import findings_of_seeds
from schemas.cards import StepCard, step_of
from schemas.code_names import CodeNames
from schemas.contract import read_table
from schemas.expectations import TABLE_SUITES, Severity, Suite
from schemas.expectations import labels as labels_suite
from schemas.io.verify import verified
from schemas.layout import Layout
from schemas.nouns import with_noun
from schemas.suppress import disclosing, suppress_count
from schemas.tables.events import SUBJECTS
from schemas.tables.leak_audit import LeakAudit
from schemas.tables.splits import count_off_hash, count_overlap, suppress_splits

if TYPE_CHECKING:
    from schemas.expectations.validation import Validation


def source_checks(
    source: str, suites: Mapping[str, Callable[[Layout], Suite]] = TABLE_SUITES
) -> list[dg.AssetChecksDefinition]:
    """Return the checks of a source's tables, from the raw input to the shards.

    Args:
        suites: the expectation suite of each table, by the table's name.
    """
    tables = [
        table_checks(source, f"{source}_{name}", name, suite, suite_inputs(source, suite))
        for name, suite in suites.items()
    ]
    return [card_checks(source, f"{source}_raw", "raw"), *tables, split_check(source)]


def cohort_checks(source: str, cohort: str) -> list[dg.AssetChecksDefinition]:
    """Return the checks of one cohort's labels."""

    def suite(layout: Layout) -> Suite:
        return labels_suite(layout, cohort)

    labels = f"{cohort}_labels"
    # by name: the suite itself can only be built when there are labels
    suite_tables = [f"{source}_subjects", f"{source}_encounters"]
    return [
        table_checks(source, labels, labels, suite, suite_tables),
        leak_check(source, cohort),
    ]


def suite_inputs(source: str, suite: Callable[[Layout], Suite]) -> list[str]:
    """Return the other assets whose tables a suite reads: its check waits for them."""
    return [f"{source}_{table.name}" for table in suite(Layout(Path(source))).tables[1:]]


def table_checks(
    source: str, asset: str, step: str, suite: Callable[[Layout], Suite], additional_deps: Sequence[str] = ()
) -> dg.AssetChecksDefinition:
    """Return the checks of one table: its Great Expectations suite in both severities, and those of its card."""

    @dg.multi_asset_check(
        name=f"{asset}_checks",
        can_subset=True,
        specs=[
            dg.AssetCheckSpec(
                "contract",
                asset=asset,
                blocking=True,
                description="What must hold of every row.",
                additional_deps=additional_deps,
            ),
            dg.AssetCheckSpec(
                "plausible",
                asset=asset,
                description="What should hold of nearly every row.",
                additional_deps=additional_deps,
            ),
            *_card_specs(asset),
        ],
    )
    @with_clear_errors
    def checks(workspace: Workspace) -> Iterator[dg.AssetCheckResult]:
        # Great Expectations takes 3 s and 200 MB to import: only in the process that runs the check
        from schemas.expectations.validation import validate

        layout = workspace.layout(source)
        table, card = suite(layout), StepCard.read(layout.cards, step)
        outcome = validate(table)
        with disclosing(card.synthetic):
            results = (
                _suite_result(asset, "contract", outcome, "ERROR"),
                _suite_result(asset, "plausible", outcome, "WARN"),
                *_card_results(asset, card, tells_rows=table.discloses_rows, rows=outcome.rows),
            )
        yield from log_failures(*results)

    return checks


def card_checks(source: str, asset: str, step: str) -> dg.AssetChecksDefinition:
    """Return the checks of a step that has counts but no table of its own."""

    @dg.multi_asset_check(name=f"{asset}_checks", specs=_card_specs(asset), can_subset=True)
    @with_clear_errors
    def checks(workspace: Workspace) -> Iterator[dg.AssetCheckResult]:
        card = StepCard.read(workspace.layout(source).cards, step)
        with disclosing(card.synthetic):
            results = _card_results(asset, card)
        yield from log_failures(*results)

    return checks


def split_check(source: str) -> dg.AssetChecksDefinition:
    """Return the check that no patient of the test split was trained on."""

    @dg.asset_check(asset=f"{source}_subjects", name="no_test_subject_was_trained_on", blocking=True)
    @with_clear_errors
    def no_test_subject_was_trained_on(workspace: Workspace) -> dg.AssetCheckResult:
        """No patient of the tasks' test split is in the training split of the pretraining."""
        layout = workspace.layout(source)
        table = read_table(layout.subjects, SUBJECTS)
        trained_on = count_overlap(table, "train", "test")
        with _disclosing_synthetic(layout, "subjects"):
            overlaps, text = suppress_splits(table).overlap, suppress_count(trained_on)
        result = dg.AssetCheckResult(
            check_name="no_test_subject_was_trained_on",
            passed=trained_on == 0,
            description=f"Patients of the tasks' test split who were trained on: {text}.",
            metadata={f"pretraining_{name}": overlap.patients for name, overlap in overlaps.items()},
        )
        return log_failures(result)[0]

    return no_test_subject_was_trained_on


def hash_check(source: str, task_split: tuple[float, float]) -> dg.AssetChecksDefinition:
    """Return the check that each patient is in the splits its hash gives, for a source that is split by hash alone."""

    @dg.asset_check(asset=f"{source}_subjects", name="split_is_that_of_the_hash", blocking=True)
    @with_clear_errors
    def split_is_that_of_the_hash(workspace: Workspace) -> dg.AssetCheckResult:
        """Both splits follow from the patient's id alone, whatever the seed, the order or the release."""
        layout = workspace.layout(source)
        table = read_table(layout.subjects, SUBJECTS)
        bounds = {"split": task_split, "pretrain_split": workspace.settings.rules.pretrain_split}
        misplacement_counts = {
            column: count_off_hash(table, column, *pair) for column, pair in bounds.items()
        }
        with _disclosing_synthetic(layout, "subjects"):
            texts = [
                f"{column}: {with_noun(suppress_count(count), 'patient')} outside the split of their hash"
                for column, count in misplacement_counts.items()
            ]
        result = dg.AssetCheckResult(
            check_name="split_is_that_of_the_hash",
            passed=not any(misplacement_counts.values()),
            description=f"{'; '.join(texts)}.",
        )
        return log_failures(result)[0]

    return split_is_that_of_the_hash


def leak_check(source: str, cohort: str) -> dg.AssetChecksDefinition:
    """Return the check that every feature of the cohort was known at its prediction time."""

    @dg.asset_check(
        asset=f"{cohort}_labels",
        name="no_feature_after_prediction",
        additional_deps=[f"{source}_seqset"],
        blocking=True,
    )
    @with_clear_errors
    def no_feature_after_prediction(workspace: Workspace) -> dg.AssetCheckResult:
        """Every event that the models use was known at its row's prediction time."""
        layout = workspace.layout(source)
        late, _ = count_leaks(layout.seqset, layout.labels(cohort))
        with _disclosing_synthetic(layout, "seqset", f"{cohort}_labels"):
            predictions = with_noun(suppress_count(late), "prediction")
        result = dg.AssetCheckResult(
            check_name="no_feature_after_prediction",
            passed=late == 0,
            description=f"{predictions} would use events known only later.",
        )
        return log_failures(result)[0]

    return no_feature_after_prediction


def audit_checks(source: str, cohort: str) -> dg.AssetChecksDefinition:
    """Return the checks of a cohort's leak audit: the proof for every prediction, and the suspected leaks."""
    asset = f"{cohort}_leak_audit"
    specs = [
        dg.AssetCheckSpec(
            "future_changes_nothing",
            asset=asset,
            blocking=True,
            description="Removing everything after a prediction leaves its features the same, bit for bit.",
        ),
        dg.AssetCheckSpec(
            "no_leak_suspected",
            asset=asset,
            description="No feature is known to reveal the outcome, or raises the AUROC as a leak does.",
        ),
    ]

    @dg.multi_asset_check(name=f"{asset}_checks", specs=specs, can_subset=True)
    @with_clear_errors
    def checks(workspace: Workspace) -> Iterator[dg.AssetCheckResult]:
        layout = workspace.experiment_layout(source)
        audit = LeakAudit.read(layout.leak_audit(cohort)).in_words(CodeNames.read(layout.code_names))
        for name, findings, severity in (
            ("future_changes_nothing", audit.failures, dg.AssetCheckSeverity.ERROR),
            ("no_leak_suspected", audit.warnings, dg.AssetCheckSeverity.WARN),
        ):
            sentences = " ".join(f"{finding.rstrip('.')}." for finding in findings) or "nothing found"
            result = dg.AssetCheckResult(
                asset_key=asset,
                check_name=name,
                passed=not findings,
                severity=severity,
                description=sentences,
            )
            yield from log_failures(result)

    return checks


def pretraining_checks(source: str) -> dg.AssetChecksDefinition:
    """Return the checks of a source's pretraining: what the model learnt, and whether its context is long enough."""
    asset = f"{source}_nest"
    specs = [
        dg.AssetCheckSpec(
            "learnt_more_than_a_constant",
            asset=asset,
            description="MLM, MSM and set prediction are better than a constant guess on the same masked sets.",
        ),
        dg.AssetCheckSpec(
            "can_be_judged",
            asset=asset,
            description="The validation can show what was learnt about tokens and sets.",
        ),
        dg.AssetCheckSpec(
            "context_holds_half_the_events",
            asset=asset,
            description="The model's context, its sets and their rows, holds at least half of the patients' events.",
        ),
    ]

    # before the fine-tunings, which would keep every slot busy for minutes
    @dg.multi_asset_check(
        name=f"{asset}_checks", specs=specs, can_subset=True, op_tags={"dagster/priority": "1"}
    )
    @with_clear_errors
    def checks(workspace: Workspace) -> Iterator[dg.AssetCheckResult]:
        layout = workspace.experiment_layout(source)
        if failure := StepCard.read(layout.cards, step_of(asset, source)).failure:
            findings = {spec.name: [f"the pretraining failed: {failure}"] for spec in specs}
        else:
            of_seeds = findings_of_seeds(layout.model(asset))
            findings = {
                "learnt_more_than_a_constant": of_seeds["not_learnt"],
                "can_be_judged": of_seeds["not_judged"],
                "context_holds_half_the_events": of_seeds["events_left_out"],
            }
        for name, sentences in findings.items():
            nothing = "nothing found"
            if name == "learnt_more_than_a_constant" and findings["can_be_judged"]:
                nothing += "; what could not be judged is in can_be_judged"
            result = dg.AssetCheckResult(
                asset_key=asset,
                check_name=name,
                passed=not sentences,
                severity=dg.AssetCheckSeverity.WARN,
                description=" ".join(sentences) or nothing,
            )
            yield from log_failures(result)

    return checks


def evidence_check(source: str) -> dg.AssetChecksDefinition:
    """Return the check that every cell of a source's table of evidence has a score, or says why it cannot have one."""
    asset = f"{source}_evidence_page"

    @dg.asset_check(
        asset=asset,
        name="every_cell_was_made",
        description="No pretraining and no cell failed or is missing; what cannot be learnt or shown is no fault.",
    )
    @with_clear_errors
    def every_cell_was_made(workspace: Workspace) -> dg.AssetCheckResult:
        folder = workspace.experiment_layout(source).report(f"{source}_evidence")
        metrics = json.loads(verified(folder / "metrics.json").read_text())
        names_by_reason: dict[str, list[str]] = {}
        for name, reason in _missing_cells(metrics):
            names_by_reason.setdefault(reason.rstrip("."), []).append(name)
        result = dg.AssetCheckResult(
            passed=not names_by_reason,
            severity=dg.AssetCheckSeverity.WARN,
            description=" ".join(f"{_some_of(names)}: {reason}." for reason, names in names_by_reason.items())
            or "every cell was made",
        )
        return log_failures(result)[0]

    return every_cell_was_made


def _missing_cells(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the page of evidence has no numbers of, and why; what cannot be learnt or shown is not missing."""
    titles = {row["name"]: row["title"] for row in metrics["rows"]}
    for row in metrics["rows"]:
        if failure := row.get("pretraining", {}).get("failure"):
            yield f"The pretraining of {row['title']}", failure
    for task in metrics["tasks"].values():
        for row, reason in task["reasons"].items():
            if not reason.startswith("not trainable"):
                yield f"{titles[row]} ({task['title']})", reason
    if failure := metrics["removals"].get("failure"):
        yield "What NEST loses without parts of its input", failure


MOST_NAMES = 6


def _some_of(names: Sequence[str]) -> str:
    """Return the first names, which may have commas, and how many more there are."""
    more = len(names) - MOST_NAMES
    return "; ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def log_failures(*results: dg.AssetCheckResult) -> tuple[dg.AssetCheckResult, ...]:
    """Return the results of the checks that were selected, and log each that failed, so that a terminal shows it too.

    In the UI a single check of an asset can be executed. A result without a name is of a function with one check.
    """
    context = dg.AssetCheckExecutionContext.get()
    names = {key.name for key in context.selected_asset_check_keys}
    selection = tuple(result for result in results if not names or result.check_name in (None, *names))
    for result in selection:
        if not result.passed:
            level = logging.ERROR if result.severity is dg.AssetCheckSeverity.ERROR else logging.WARNING
            context.log.log(level, f"{result.check_name or ', '.join(names)}: {result.description}")
    return selection


def _disclosing_synthetic(layout: Layout, *steps: str) -> AbstractContextManager[None]:
    """Disclose every count inside the block if the patients of all these steps are synthetic; see `disclosing`."""
    return disclosing(all(StepCard.read(layout.cards, step).synthetic for step in steps))


def _card_specs(asset: str) -> list[dg.AssetCheckSpec]:
    return [
        dg.AssetCheckSpec(
            "rows_reconcile",
            asset=asset,
            blocking=True,
            description="Source rows = kept rows + dropped by reason.",
        ),
        dg.AssetCheckSpec(
            "nothing_odd", asset=asset, description="Unusual shares are reported and stop nothing."
        ),
    ]


def _suite_result(asset: str, name: str, outcome: "Validation", severity: Severity) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        asset_key=asset,
        check_name=name,
        passed=outcome.passed(severity),
        severity=dg.AssetCheckSeverity[severity],
        description=outcome.message(severity),
        metadata={"expectations": dg.MetadataValue.md(outcome.markdown(severity))},
    )


def _card_results(
    asset: str, card: StepCard, *, tells_rows: bool = True, rows: int | None = None
) -> tuple[dg.AssetCheckResult, dg.AssetCheckResult]:
    mismatches = [name for name, flow in card.flows.items() if not flow.reconciles]
    # the count with the table's own name is its number of rows
    if rows is not None and rows != card.counts.get(card.step, rows):
        mismatches.append(f"{card.step} as counted and as written")
    description = "every source row is accounted for" if card.flows else "this step reads no source rows"
    if mismatches:
        description = f"rows of {', '.join(mismatches)} do not add up"
    return (
        dg.AssetCheckResult(
            asset_key=asset,
            check_name="rows_reconcile",
            passed=not mismatches,
            severity=dg.AssetCheckSeverity.ERROR,
            description=description,
            metadata={"rows": dg.MetadataValue.md(flows_markdown(card.flows))} if tells_rows else {},
        ),
        dg.AssetCheckResult(
            asset_key=asset,
            check_name="nothing_odd",
            passed=not card.warnings,
            severity=dg.AssetCheckSeverity.WARN,
            description=" ".join(f"{warning.rstrip('.')}." for warning in card.warnings) or "nothing odd",
        ),
    )

"""The reports: a page and a `metrics.json` for a source with all its cohorts, and for each cohort."""

from nest_model.report.table import results_markdown, results_table
from nest_model.report.write import write_cohort_report, write_report

__all__ = ["results_markdown", "results_table", "write_cohort_report", "write_report"]

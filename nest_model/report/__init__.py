"""The report: one page and one `metrics.json` over every model of some cohorts, from files of one data folder."""

from nest_model.report.table import results_table
from nest_model.report.write import write_report

__all__ = ["results_table", "write_report"]

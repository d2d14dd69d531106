"""From a cohort file and the tables of a source to labels, attrition and a lock of what was run."""

from pipelines.cohorts.check import check_labels
from pipelines.cohorts.labels import write_labels

__all__ = ["check_labels", "write_labels"]

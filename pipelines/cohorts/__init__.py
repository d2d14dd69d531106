"""From a cohort file and the tables of a source to labels, attrition and a lock of what was run."""

from pipelines.cohorts.labels import write_empty_labels, write_labels

__all__ = ["write_empty_labels", "write_labels"]

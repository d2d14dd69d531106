"""Derives labels, attrition and a lock file from a cohort file and the tables of a source."""

from pipelines.cohorts.labels import write_empty_labels, write_labels

__all__ = ["write_empty_labels", "write_labels"]

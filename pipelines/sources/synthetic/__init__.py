"""A made-up MIMIC-IV: real layout, real codes, invented patients, outcomes of known probability."""

from pipelines.sources.synthetic.mimic import write_mimic

__all__ = ["write_mimic"]

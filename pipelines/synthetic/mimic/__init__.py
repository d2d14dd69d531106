"""A made-up MIMIC-IV: real layout, real codes, invented patients, outcomes of known probability."""

"""A synthetic MIMIC-IV: real layout, real codes, invented patients, outcomes of known probability."""

"""Guesses that need no model: what MLM, MSM and set prediction come to without one, on the same masked batches.

A loss alone does not say whether anything was learnt. Beside it stand a constant guess, the same for every patient, and
a mixture of that with what the same patient's unmasked sets hold.
"""

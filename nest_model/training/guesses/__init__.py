"""Model-free guesses: baselines of MLM, MSM and set prediction on the same masked batches.

A loss alone does not show whether anything was learnt. It is compared with a constant guess, the same for every
patient, and with a mixture of that guess and the contents of the same patient's visible sets.
"""

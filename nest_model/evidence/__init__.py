"""The paper's evidence: its systems and ablations on the same patients and tasks, on one page."""

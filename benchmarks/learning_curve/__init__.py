"""The learning curve: the AUROC of every model on synthetic MIMIC-IV with growing numbers of patients."""

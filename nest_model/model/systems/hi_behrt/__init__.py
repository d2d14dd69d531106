"""The system Hi-BEHRT; its encoder is a module of its own, which loads torch."""

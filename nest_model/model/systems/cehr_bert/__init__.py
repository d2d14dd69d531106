"""The system CEHR-BERT; its encoder is a module of its own, which loads torch."""

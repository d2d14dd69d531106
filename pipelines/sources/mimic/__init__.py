"""MIMIC-IV: from its tables to events."""

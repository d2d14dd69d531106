"""MIMIC-IV: from raw tables to events."""

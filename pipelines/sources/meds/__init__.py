"""MEDS: read from any dataset, and written from our events."""

"""MEDS: any dataset read to events, and our events written as a dataset."""

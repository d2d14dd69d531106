"""Parallel work in little memory; nothing here knows about medical data."""

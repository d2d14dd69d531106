"""Contracts of the tables that steps hand over."""

"""Synthetic raw tables of each source, to try everything on."""

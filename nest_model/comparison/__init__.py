"""Runs beside each other: how their settings, curves and scores differ."""

"""Instacart: from its tables to events."""

"""Instacart: from raw tables to events."""

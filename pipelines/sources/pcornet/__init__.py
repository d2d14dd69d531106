"""A PCORnet CDM (6.1 or 7.0), from a live database or a dump, to the one event schema."""

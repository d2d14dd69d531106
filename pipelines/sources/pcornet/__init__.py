"""A PCORnet CDM (6.1 or 7.0), in a live database or a dump, as subjects, encounters and events."""

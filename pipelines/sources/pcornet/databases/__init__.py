"""PCORnet tables from PostgreSQL, Oracle, DuckDB or a dump, extracted to files."""

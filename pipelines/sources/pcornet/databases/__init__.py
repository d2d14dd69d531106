"""PCORnet's tables from PostgreSQL, Oracle, DuckDB or a dump, to files."""

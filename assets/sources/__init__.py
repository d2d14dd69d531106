"""Assets that prepare each source, from raw tables to shards."""

"""The NEST encoder, its heads, and its files."""

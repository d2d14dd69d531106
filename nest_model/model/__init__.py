"""The NEST encoder, its heads, and the files of a model."""

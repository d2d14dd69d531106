"""Read and write files safely; used by every room."""

"""Downloads input files on request: resumed, retried, and moved into place only when verified."""

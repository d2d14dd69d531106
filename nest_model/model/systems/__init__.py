"""A folder for each system: what it is, SYSTEM, in its `__init__`, and its class, ENCODER, in `encoder`."""

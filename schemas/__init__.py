"""What crosses a border between rooms: Arrow schemas, pydantic models, expectation suites. Imports nothing of ours."""

import os

# Arrow's and polars' allocators hold on to memory they used: giving it back and asking anew costs a fifth of the time.
# They read this when they are loaded, which every room does after this
for _name, _value in {
    "ARROW_DEFAULT_MEMORY_POOL": "mimalloc",
    "MIMALLOC_PURGE_DELAY": "-1",
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:10000,muzzy_decay_ms:10000",
}.items():
    os.environ.setdefault(_name, _value)

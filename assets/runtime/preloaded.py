"""Collects garbage again, but never among what was loaded; the fork server imports this module last.

A collection would write to every object, and so copy for each step the memory that it shares with the fork server.
"""

import gc

gc.freeze()
gc.enable()

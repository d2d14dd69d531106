"""Loading collects no garbage, and leaves it off where it was."""

import gc

from schemas.loading import loading


def test_garbage_is_collected_after_loading_only_where_it_was_before():
    after = []
    try:
        for switch in (gc.enable, gc.disable):
            switch()
            with loading(), loading():
                assert not gc.isenabled()
            after.append(gc.isenabled())
    finally:
        gc.enable()
    assert after == [True, False]

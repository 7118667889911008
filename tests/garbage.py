"""What only the collector could free: reference counts free the rest at once, and at no cost."""

import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

PEERS = 100
FEW = PEERS // 2
"""Objects that may be left behind all peers: each peer that leaves something leaves more than one."""


@contextmanager
def counted_garbage() -> Iterator[Counter[str]]:
    """At the end of the block: of which types are the objects that it left to the collector."""
    if not hasattr(gc, "DEBUG_SAVEALL"):
        pytest.importorskip("tracemalloc", reason="PyPy leaves everything to its collector")
    was_enabled, left = gc.isenabled(), Counter[str]()
    gc.collect()
    gc.disable()
    try:
        yield left
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left.update(type(one).__qualname__ for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        if was_enabled:
            gc.enable()

"""How much an object of ours holds on to: leaks are seen from outside, whatever keeps them."""

import gc
from collections import deque
from typing import Any

_CONTAINERS = (dict, list, tuple, set, frozenset, deque)


def count_entries(root: object) -> int:
    """The entries of all containers that hang on ``root``, directly or on objects of rmqha's classes."""
    count = 0
    seen: set[int] = set()
    todo: list[Any] = [root]
    while todo:
        one = todo.pop()
        is_container = isinstance(one, _CONTAINERS)
        if id(one) in seen or not (is_container or type(one).__module__.startswith("rmqha.")):
            continue
        seen.add(id(one))
        count += len(one) if is_container else 0
        todo += one.keys() if isinstance(one, dict) else ()
        todo += gc.get_referents(one)
    return count

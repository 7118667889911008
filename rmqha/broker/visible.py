"""Who asks about a message right after it was acknowledged is answered when it can be seen (decision 4)."""

from math import inf
from typing import Final

import trio

from rmqha.store.message_store import DefaultMessageStore

PATIENCE_S: Final = 0.5
"""What waits for another node may take longer."""


def comes_soon(store: DefaultMessageStore, topic: str, queue_id: int, *, seen_end: int) -> bool:
    """Whether the queue has more than can be seen, which is to ``seen_end``: a flush away, or another node's answer."""
    return store.role.is_master and store.next_queue_offset(topic, queue_id) > seen_end


async def wait_visible(store: DefaultMessageStore) -> None:
    """Return when all that is put by now has been flushed and dispatched, or soon."""
    end = store.max_offset
    if store.reput_from_offset >= end:
        return
    store.request_flush()
    is_seen = trio.Event()
    waiter = store.reput.dispatched.add(end, inf, lambda _reached, _value: is_seen.set())
    try:
        with trio.move_on_after(PATIENCE_S):
            await is_seen.wait()
    finally:
        waiter.cancel()

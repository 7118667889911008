"""Who asks about a message right after it was acknowledged is answered when it can be seen (decision 4)."""

from math import inf
from typing import Final

import trio

from rmqha.store.message_store import DefaultMessageStore

PATIENCE_S: Final = 0.5
"""What waits for another node may take longer."""
_SEEKERS_MAX: Final = 4096
Reader = tuple[str, str, str, int]
"""A connection's peer, a group, and the topic and id of a queue."""


def comes_soon(store: DefaultMessageStore, topic: str, queue_id: int, *, seen_end: int) -> bool:
    """Whether the queue has more than can be seen, which is to ``seen_end``: a flush away, or another node's answer."""
    return store.role.is_master and store.next_queue_offset(topic, queue_id) > seen_end


class EndSeekers:
    """Who reads queues to their ends, and how far each does: to where the queue ended when it came to what can be seen.

    What is put while it waits for that is no reason to wait again: who reads while others send would come to no end.
    """

    def __init__(self) -> None:
        self._ends: dict[Reader, tuple[int, float]] = {}

    def __contains__(self, reader: Reader) -> bool:
        return reader in self._ends

    def waits(self, reader: Reader, *, at: int, given_out: int) -> bool:
        """Whether it lacks something of what was given out when it first came to the end."""
        now = trio.current_time()
        end, until = self._ends.get(reader, (given_out, now))
        if until < now:
            end = given_out
        if at >= end:
            return False
        if len(self._ends) >= _SEEKERS_MAX and reader not in self._ends:
            self._ends.clear()  # they wait anew
        self._ends[reader] = end, now + 2 * PATIENCE_S
        return True

    def forget(self, reader: Reader) -> None:
        """It has been told that there is no more, or got all that there was: what it asks next begins anew."""
        self._ends.pop(reader, None)


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

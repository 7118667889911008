"""Marks in the log, of half messages that have ended: what a mastership reads of them before anybody may end one.

A mark says which half message has ended, and nothing leads from a half message to its mark. The last marks are read
when a mastership begins, as many as a broker remembers of its own. For a half message that lies before these, or is
forgotten since, a mark is looked for among as many that lie behind it: no producer keeps a broker busy for longer.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from rmqha.broker.transaction.fates import KEPT_MAX, Fates
from rmqha.broker.transaction.half_message import HALF_TOPIC, OP_TOPIC, first_place
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.codec.record.message import StoredMessage
from rmqha.errors import StoreError

_DISPATCHED_S: Final = 15.0

Complete = Callable[[str], None]
"""``complete(problem)``: why nobody can tell now whether there is a mark; empty: ``on_found`` was called, or is not."""


async def learn_marks(bridge: TransactionalMessageBridge, fates: Fates) -> set[int]:
    """Tell ``fates`` which half messages have ended by the last marks, and from which one on they tell all.

    Returns:
        The places in these marks.

    Raises:
        StoreError: they cannot be read at present.
    """
    first, end = bridge.range_of(OP_TOPIC)
    begin, marked = max(first, end - KEPT_MAX), set[int]()
    if begin > first and (before := bridge.position_of(OP_TOPIC, begin - 1)) is not None:
        fates.known_from = max(fates.known_from, bridge.first_behind(HALF_TOPIC, before))
    offset = begin
    while offset < end:
        found, next_offset = bridge.read_marks(offset)
        for mark in found:
            for place in mark.half_offsets:
                fates.end(place)
                marked.add(place)
        if next_offset == offset:
            break
        offset = next_offset
        await trio.lowlevel.checkpoint()
    return marked


class MarkSearch:
    """Looks for marks, one after the other, each among so many as a broker remembers, behind its half message."""

    def __init__(self, bridge: TransactionalMessageBridge, *, on_found: Callable[[int], None]) -> None:
        """``on_found(place)``: the half message there has ended."""
        self._bridge: Final = bridge
        self._on_found: Final = on_found
        self._wanted: Final = deque[tuple[frozenset[int], int, Complete]]()
        self._has_wanted = trio.Event()

    def look_for(self, half: StoredMessage, complete: Complete) -> None:
        """Of this half message, or of its first place; its end marks that, too."""
        places = frozenset((half.queue_offset, first_place(half)))
        self._wanted.append((places, half.physical_offset, complete))
        self._has_wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._has_wanted.wait()
            self._has_wanted = trio.Event()
            while self._wanted:
                places, physical_offset, complete = self._wanted.popleft()
                complete(await self._search(places, physical_offset))

    async def _search(self, places: frozenset[int], physical_offset: int) -> str:
        try:
            if not await self._bridge.wait_dispatched(timeout_s=_DISPATCHED_S):
                return "the log's end cannot be read yet: whether the transaction has ended is not known"
            if await self._find(places, physical_offset):
                self._on_found(max(places))
        except StoreError as error:
            return str(error)
        return ""

    async def _find(self, places: frozenset[int], physical_offset: int) -> bool:
        begin = offset = self._bridge.first_behind(OP_TOPIC, physical_offset)
        while offset - begin < KEPT_MAX:
            found, next_offset = self._bridge.read_marks(offset)
            if any(not places.isdisjoint(mark.half_offsets) for mark in found):
                return True
            if next_offset == offset:
                break
            offset = next_offset
            await trio.lowlevel.checkpoint()
        return False

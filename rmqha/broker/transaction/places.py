"""Places of half messages that were written again, found out by a master that begins before them."""

from collections import deque
from typing import Final

import trio

from rmqha.broker.transaction.fates import KEPT_MAX, Fates
from rmqha.broker.transaction.half_message import (
    HALF_TOPIC,
    HalfKey,
    first_place,
    is_written_again,
    key_of,
    place_of,
)
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.codec.record.message import StoredMessage


class EarlierPlaces:
    """Of half messages that lie before the place where a mastership began, and were written again behind it.

    Their producers may know those places alone, and end them there.
    """

    def __init__(self, begin: int) -> None:
        self._begin: Final = begin
        self._copies = dict[HalfKey, int]()
        """Where half messages lie whose earlier places are unknown."""

    def join(self, half: StoredMessage, fates: Fates) -> None:
        """A half message is about to be ended: tell ``fates`` where else it lies."""
        place, first = half.queue_offset, first_place(half)
        if first < place:
            fates.unite(first, place)
        if place < self._begin and (key := key_of(half)) is not None and (copy := self._copies.get(key)) is not None:
            fates.unite(place, copy)

    def note_copy(self, key: HalfKey, copy: int) -> None:
        """A half message lies at ``copy``, was written again, and lies at no place before that is known."""
        self._copies.setdefault(key, copy)


async def learn_places(
    bridge: TransactionalMessageBridge, fates: Fates, *, begin: int, earlier: EarlierPlaces
) -> list[int]:
    """Tell ``fates`` which half messages from ``begin`` on lie at a later place, too.

    How far a master has come is saved, and told to others, some seconds late. The next one begins with half messages
    that are already written again; RocketMQ's asks about both places, and both are committed. Half messages are written
    again in the order in which they lie, so the first of a key is the one that was.

    Returns:
        The later places.
    """
    latest = dict[HalfKey, deque[int]]()
    later, offset = list[int](), begin
    while offset - begin < KEPT_MAX:
        records, next_offset = bridge.read_records(HALF_TOPIC, offset)
        for record in records:
            place, properties, key = place_of(record)
            if key is None:
                continue
            places = latest.setdefault(key, deque())
            if is_written_again(properties):
                later.append(place)
                if places:
                    fates.unite(places.popleft(), place)
                else:
                    earlier.note_copy(key, place)
            places.append(place)
        if next_offset == offset:
            break
        offset = next_offset
        await trio.lowlevel.checkpoint()
    return later

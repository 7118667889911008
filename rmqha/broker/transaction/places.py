"""Places of half messages that were written again, found out by a master that begins before them."""

from collections import deque
from typing import Final

import trio

from rmqha.broker.transaction.fates import KEPT_MAX, Fates
from rmqha.broker.transaction.half_message import HALF_TOPIC, PREPARED_QUEUE_OFFSET, check_times, number_property
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.codec.properties import PGROUP, UNIQ_KEY
from rmqha.codec.record.message import StoredMessage

_AT_ONCE: Final = 32


Key = tuple[str, str]
"""Group, and the producer's own key."""


class EarlierPlaces:
    """Of half messages that lie before the place where a mastership began, and were written again behind it.

    Their producers may know those places alone, and end them there.
    """

    def __init__(self, begin: int) -> None:
        self._begin: Final = begin
        self._is_learned = False
        self._copies = dict[Key, int]()
        """Where half messages lie now whose earlier places are unknown; once they are learned."""
        self._ended = dict[Key, int]()
        """Places of half messages that were ended before that."""

    def join(self, half: StoredMessage, fates: Fates) -> None:
        """A half message is about to be ended: tell ``fates`` where else it lies."""
        place, key = half.queue_offset, _key_of(half)
        if place >= self._begin or key is None or fates.is_left(place):
            return
        if self._is_learned:
            if (copy := self._copies.pop(key, None)) is not None:
                fates.note_renewed(place, copy)
        elif len(self._ended) < KEPT_MAX:
            self._ended.setdefault(key, place)

    def find_out(self, key: Key, copy: int, fates: Fates) -> bool:
        """A half message lies at ``copy``, and at no place that is known; whether it was ended at an earlier one."""
        if (place := self._ended.pop(key, None)) is None:
            self._copies.setdefault(key, copy)
            return False
        return not fates.note_renewed(place, copy)

    def note_learned(self) -> None:
        """That was all."""
        self._is_learned = True
        self._ended.clear()


async def learn_places(
    bridge: TransactionalMessageBridge, fates: Fates, *, begin: int, earlier: EarlierPlaces
) -> list[int]:
    """Tell ``fates`` which half messages from ``begin`` on lie at a later place, too.

    How far a master has come is saved, and told to others, some seconds late. The next one begins with half messages
    that are already written again; RocketMQ's asks about both places, and both are committed. Half messages are written
    again in the order in which they lie, so the first of a key is the one that was.

    Returns:
        Places of half messages that were ended at an earlier one meanwhile.
    """
    latest = dict[Key, deque[int]]()
    ended, offset = list[int](), begin
    while offset - begin < KEPT_MAX:
        portion = bridge.read(HALF_TOPIC, offset, count=_AT_ONCE)
        for half in portion.messages:
            if (key := _key_of(half)) is None:
                continue
            places, place = latest.setdefault(key, deque()), half.queue_offset
            if not _is_written_again(half):
                has_ended = False
            elif places:
                has_ended = not fates.note_renewed(places.popleft(), place)
            else:
                has_ended = earlier.find_out(key, place, fates)
            if has_ended:
                ended.append(place)
            places.append(place)
        if portion.next_offset == offset:
            break
        offset = portion.next_offset
        await trio.lowlevel.checkpoint()
    earlier.note_learned()
    return ended


def _key_of(half: StoredMessage) -> Key | None:
    key = half.properties.get(UNIQ_KEY)
    return (half.properties.get(PGROUP, ""), key) if key else None


def _is_written_again(half: StoredMessage) -> bool:
    return check_times(half) > 0 or number_property(half, PREPARED_QUEUE_OFFSET) is not None

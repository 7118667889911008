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


async def learn_places(bridge: TransactionalMessageBridge, fates: Fates, *, begin: int) -> list[int]:
    """Tell ``fates`` which half messages from ``begin`` on lie at a later place, too.

    How far a master has come is saved, and told to others, some seconds late. The next one begins with half messages
    that are already written again; RocketMQ's asks about both places, and both are committed. Half messages are written
    again in the order in which they lie, so the first of a key is the one that was.

    Returns:
        Places of half messages that were ended at an earlier one meanwhile.
    """
    latest = dict[tuple[str, str], deque[int]]()
    ended, offset = list[int](), begin
    while offset - begin < KEPT_MAX:
        portion = bridge.read(HALF_TOPIC, offset, count=_AT_ONCE)
        for half in portion.messages:
            if key := half.properties.get(UNIQ_KEY):
                places = latest.setdefault((half.properties.get(PGROUP, ""), key), deque())
                if places and _is_written_again(half) and not fates.note_renewed(places.popleft(), half.queue_offset):
                    ended.append(half.queue_offset)
                places.append(half.queue_offset)
        if portion.next_offset == offset:
            break
        offset = portion.next_offset
        await trio.lowlevel.checkpoint()
    return ended


def _is_written_again(half: StoredMessage) -> bool:
    return check_times(half) > 0 or number_property(half, PREPARED_QUEUE_OFFSET) is not None

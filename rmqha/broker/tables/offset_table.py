"""How a table of consumers' offsets is written down, in ``consumerOffset.json`` and in answers."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

import trio

from rmqha.broker.tables.change_stamps import decode_stamps
from rmqha.codec import java_json
from rmqha.errors import RemoteProtocolError

TOPIC_GROUP_SEPARATOR: Final = "@"
CHANGED_OFFSETS: Final = "changedOffsets"
"""A member that every table has which rmqha wrote."""
_SPLIT_AT_ONCE: Final = 5000
_INT64: Final = range(-(2**63), 2**63)
"""What a commit may say."""

OffsetsOfQueues = dict[int, int]
OffsetTable = dict[str, OffsetsOfQueues]
"""``topic@group -> queue -> next offset to consume``."""


def name_of_queue(key: str, queue_id: int) -> str:
    """Under which it has a stamp when the group was set back there last: ``topic@group@queue``."""
    return f"{key}{TOPIC_GROUP_SEPARATOR}{queue_id}"


def name_of_group(group: str) -> str:
    """Under which it has a stamp when it was forgotten last; no topic is empty."""
    return TOPIC_GROUP_SEPARATOR + group


def decode_changed_offsets(value: dict[str, Any]) -> Mapping[str, int] | None:
    """The stamps beside a table of offsets, by :func:`name_of_queue` and :func:`name_of_group`; None: it has none.

    Raises:
        RemoteProtocolError: those are no stamps.
    """
    try:
        return decode_stamps(value.get(CHANGED_OFFSETS))
    except (AttributeError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"consumer offsets do not parse: {str(error)[:200]}") from None


def decode_offsets(value: dict[str, Any]) -> OffsetTable:
    """The member ``offsetTable``; queue ids are keys, so plain JSON has them as text.

    Raises:
        RemoteProtocolError: it is no such table.
    """
    try:
        table = {
            _name(key): {int(queue_id): _offset(offset) for queue_id, offset in queues.items()}
            for key, queues in (value.get("offsetTable") or {}).items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"consumer offsets do not parse: {str(error)[:200]}") from None
    return table


async def split_in_turns(keys: Iterable[str]) -> list[tuple[str, str]]:
    """Topic and group of each; everybody else goes on meanwhile."""
    pairs: list[tuple[str, str]] = []
    rest = iter(keys)
    while piece := list(islice(rest, _SPLIT_AT_ONCE)):
        for key in piece:
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            pairs.append((topic, group))
        await trio.lowlevel.checkpoint()
    return pairs


def with_ends(table: OffsetTable, ends: Mapping[tuple[str, int], int]) -> OffsetTable:
    """The table, in which some queues have these ends in place of their offsets; itself if there are none."""
    told = table | {key: dict(table[key]) for key in {key for key, _ in ends}} if ends else table
    for (key, queue_id), end in ends.items():
        told[key][queue_id] = end
    return told


def size_of_key(key: str) -> int:
    """The bytes that ``topic@group`` takes in the table."""
    return len(java_json.dumps({key: {}}).encode())


def _name(key: object) -> str:
    if type(key) is not str:
        raise TypeError(f"{key!r:.40} is no topic@group")
    return key


def _offset(value: object) -> int:
    if type(value) is not int or value not in _INT64:
        raise ValueError(f"{value!r:.40} is no offset")
    return value

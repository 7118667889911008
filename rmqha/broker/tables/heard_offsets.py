"""What counts of the offsets that a broker tells a master which lost its own, by how late those are.

Source: decision 20.
"""

from collections.abc import Callable, Mapping
from typing import Final

import trio

from rmqha.broker.tables.change_stamps import ChangeStamps, date_of_all
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.heard_logs import HeardLogs
from rmqha.broker.tables.made_since import MadeSince
from rmqha.broker.tables.offset_table import TOPIC_GROUP_SEPARATOR, OffsetTable, name_of_group, name_of_queue
from rmqha.store.config_files import CONSUMER_OFFSET
from rmqha.store.consume_queue_table import QueueKey

_LOOKED_AT_ONCE: Final = 256
"""Of a hundred thousand offsets, before everybody else has a turn."""


async def later_offsets(
    told: OffsetTable,
    changed: Mapping[str, int] | None,
    offsets: ConsumerOffsetManager,
    log_end: int,
    heard: HeardLogs,
    *,
    sets_back: bool,
) -> tuple[OffsetTable, Mapping[str, int]]:
    """What counts of those that are ``told``, and its stamps.

    Args:
        told: of a broker that is heard now.
        changed: its stamps; None: it has none, as RocketMQ's.
        offsets: those here.
        log_end: where the log ended that they are as late as.
        heard: who has told before.
        sets_back: whether those here are other brokers' alone: a smaller one that is later counts.
    """
    known, end = offsets.to_json()["offsetTable"], heard.end_of(CONSUMER_OFFSET)
    if changed is None and log_end > end:
        told = await without_decided(told, offsets.changed, offsets.made_since)
        if not sets_back:
            return told, {}
        return told, await smaller_than_known(told, known, offsets.changed, offsets.made_since)
    if log_end < (max(heard.heard_to, heard.dated_to) if changed is None else heard.heard_to):
        told, changed = await without_known(told, changed or {}, known)
    changed = changed or {}
    told = await offsets.not_since(told, changed)
    if date_of_all(changed) and sets_back and log_end > end == heard.heard_to:  # nobody has told but RocketMQ's
        changed = {**changed, **await smaller_than_known(told, known, offsets.changed, offsets.made_since)}
    return told, changed


async def without_known(
    told: OffsetTable, changed: Mapping[str, int], known: OffsetTable
) -> tuple[OffsetTable, Mapping[str, int]]:
    """Of a broker that knows less late what nobody has told yet; ``changed``: its stamps."""
    names = set[str]()
    for seen, (key, queues) in enumerate([*known.items()], 1):
        if seen % _LOOKED_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        names |= {name_of_queue(key, queue_id) for queue_id in queues}
        names.add(name_of_group(key.partition(TOPIC_GROUP_SEPARATOR)[2]))
    counts = await _without(told, lambda _group, queue: queue in names)
    return counts, {name: stamp for name, stamp in changed.items() if name not in names}


async def smaller_than_known(
    told: OffsetTable, known: OffsetTable, changed: ChangeStamps, made_since: MadeSince
) -> Mapping[str, int]:
    """Stamps for what somebody who knows later tells smaller than what is here of others: a group was set back."""
    stamps: dict[str, int] = {}
    for seen, (key, queues) in enumerate(told.items(), 1):
        if seen % _LOOKED_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        here = known.get(key, {})
        for name in [name_of_queue(key, queue_id) for queue_id, at in queues.items() if at < here.get(queue_id, 0)]:
            if name not in made_since:
                stamps[name] = changed.latest(name) + 1
    return stamps


async def without_decided(told: OffsetTable, changed: ChangeStamps, made_since: MadeSince) -> OffsetTable:
    """What is no word of before about what was decided here since tables were lost."""

    def is_decided(group: str, queue: str) -> bool:
        return any(name in made_since and changed.of(name) for name in (group, queue))

    return await _without(told, is_decided)


async def cut_at(told: OffsetTable, ends: Mapping[QueueKey, int]) -> OffsetTable:
    """No offset counts beyond the end of its queue."""
    table: OffsetTable = {}
    for seen, (key, queues) in enumerate(told.items(), 1):
        if seen % _LOOKED_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
        table[key] = {queue_id: min(offset, ends.get((topic, queue_id), 0)) for queue_id, offset in queues.items()}
    return table


async def _without(told: OffsetTable, is_left_out: Callable[[str, str], bool]) -> OffsetTable:
    """``is_left_out`` is asked by the names that a group and a queue have stamps by."""
    counts: OffsetTable = {}
    for seen, (key, queues) in enumerate(told.items(), 1):
        if seen % _LOOKED_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        group = name_of_group(key.partition(TOPIC_GROUP_SEPARATOR)[2])
        counts[key] = {
            queue_id: offset
            for queue_id, offset in queues.items()
            if not is_left_out(group, name_of_queue(key, queue_id))
        }
    return counts

"""HeardLogs: how late the word of a broker without stamps is: as late as its log, in which its master was heard last.

RocketMQ's slaves say where groups are, and not when that was decided. One whose log goes farther than another's was
with the master when that one was not, so it knows later where groups are, in whatever order they are heard. Of topics
and subscription groups they say when any was changed last: they know of every change of before. A log alone goes on
where a slave that was away follows again; how late its tables are our slaves say (``TablesOrigin.log_end``).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

import trio

from rmqha.broker.tables.change_stamps import ChangeStamps, stamps_of_version
from rmqha.broker.tables.made_since import MadeSince
from rmqha.broker.tables.offset_table import TOPIC_GROUP_SEPARATOR, OffsetTable, name_of_group, name_of_queue
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupTable
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.broker.tables.topic_config import TopicTable
from rmqha.store.consume_queue_table import QueueKey

_Entry = TypeVar("_Entry")
_Stamps = Mapping[str, int] | None
_IsKnown = Callable[[str], object]

_LOOKED_AT_ONCE: Final = 256
"""Of a hundred thousand offsets, before everybody else has a turn."""
_NOTHING_HEARD: Final = TablesOrigin()
_NO_TIME_MS: Final = 1 << 52
"""No clock says so."""


class HeardLogs:
    """Of the brokers whose tables are merged here, one after the other.

    Attributes:
        end: where the log goes to that the tables here are as late as; then the longest of all that were heard.
        heard_to: the longest of those that have no stamps, in a process before, too; 0: none was heard.
    """

    def __init__(self, end: int = 0, *, found: TablesOrigin = _NOTHING_HEARD) -> None:
        """``found``: whom a process before has heard."""
        self.heard_to, self._topics_to, self._groups_to = found.heard_to, found.topics_to, found.groups_to
        self.end = max(end, self.heard_to)

    def origin(self, *, has_decided: bool) -> TablesOrigin:
        """Of the tables here while others are awaited; ``has_decided``: what operators say is later than all logs."""
        return TablesOrigin(
            are_awaited=True,
            log_end=-1 if has_decided else self.end,
            heard_to=self.heard_to,
            topics_to=self._topics_to,
            groups_to=self._groups_to,
        )

    def topics_by_now(self, log_end: int, table: TopicTable, is_known: _IsKnown) -> TopicTable:
        """As it is merged here, of a broker whose tables are as late as a log that goes to ``log_end``.

        ``is_known`` tells which topics are here.
        """
        topics, changed = self._by_now(log_end, table.topics, table, is_known, until=self._topics_to)
        if table.changed is None and changed:
            self._topics_to = max(changed.values())
        return replace(table, topics=topics, changed=changed)

    def groups_by_now(self, log_end: int, table: SubscriptionGroupTable, is_known: _IsKnown) -> SubscriptionGroupTable:
        """As :meth:`topics_by_now`."""
        groups, changed = self._by_now(log_end, table.groups, table, is_known, until=self._groups_to)
        if table.changed is None and changed:
            self._groups_to = max(changed.values())
        return replace(table, groups=groups, changed=changed)

    def _by_now(
        self,
        log_end: int,
        told: dict[str, _Entry],
        table: TopicTable | SubscriptionGroupTable,
        is_known: _IsKnown,
        *,
        until: int,
    ) -> tuple[dict[str, _Entry], _Stamps]:
        """Entries and stamps: what has none is as late as its table, if that is later than all that were heard.

        What is here, and was told without a stamp then, is as late as ``until``. A time that no clock has is none.
        """
        stamps, version = table.changed, table.data_version
        if stamps is None:
            is_dated = log_end > self.end and version[0] < _NO_TIME_MS
            return told, stamps_of_version(None, version) if is_dated else None
        if log_end >= self.heard_to:
            return told, stamps
        outrun = {name for name, stamp in stamps.items() if stamp <= until and is_known(name)}
        return {name: told[name] for name in told.keys() - outrun}, {
            name: stamp for name, stamp in stamps.items() if name not in outrun
        }

    def note(self, log_end: int, *, has_stamps: bool) -> None:
        """A broker was heard, and what it tells is merged."""
        if not has_stamps and log_end > self.end:
            self.heard_to = log_end
        self.end = max(self.end, log_end)


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

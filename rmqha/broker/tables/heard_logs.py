"""HeardLogs: how late the word of a broker without stamps is: as late as its log, in which its master was heard last.

RocketMQ's slaves say where groups are, and not when that was decided. One whose log goes farther than another's was
with the master when that one was not, so it knows later where groups are, in whatever order they are heard. Of their
topics and subscription groups they say when any was changed last: they know of every change of before.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import trio

from rmqha.broker.tables.change_stamps import ChangeStamps, stamps_of_version
from rmqha.broker.tables.made_since import MadeSince
from rmqha.broker.tables.offset_table import TOPIC_GROUP_SEPARATOR, OffsetTable, name_of_group, name_of_queue
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupTable
from rmqha.broker.tables.topic_config import TopicTable

_Entry = TypeVar("_Entry")
_Stamps = Mapping[str, int] | None
_LOOKED_AT_ONCE = 256
"""Of a hundred thousand offsets, before everybody else has a turn."""


class HeardLogs:
    """Of the brokers whose offsets are merged here, one after the other.

    Attributes:
        end: where the log goes to that the tables here are as late as; then the longest of all that were heard.
    """

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self._unstamped_end = 0
        self._unstamped = frozenset[str]()
        self._dated_topics: Mapping[str, int] = {}
        self._dated_groups: Mapping[str, int] = {}
        """What the same broker has, by when any of it was changed last (ms since 1970)."""

    def topics_by_now(self, log_end: int, table: TopicTable) -> TopicTable:
        """As it is merged here, of a broker whose log goes to ``log_end``: what was changed there last, not before."""
        topics, changed = self._by_now(log_end, table.topics, table.changed, table.data_version, self._dated_topics)
        if table.changed is None and changed is not None:
            self._dated_topics = dict.fromkeys(topics, table.data_version[0])
        return replace(table, topics=topics, changed=changed)

    def groups_by_now(self, log_end: int, table: SubscriptionGroupTable) -> SubscriptionGroupTable:
        """As :meth:`topics_by_now`."""
        groups, changed = self._by_now(log_end, table.groups, table.changed, table.data_version, self._dated_groups)
        if table.changed is None and changed is not None:
            self._dated_groups = dict.fromkeys(groups, table.data_version[0])
        return replace(table, groups=groups, changed=changed)

    def _by_now(
        self, log_end: int, told: dict[str, _Entry], stamps: _Stamps, version: tuple[int, int], dated: Mapping[str, int]
    ) -> tuple[dict[str, _Entry], _Stamps]:
        """Entries and stamps: what has none is as late as its table, if no log that was heard goes as far."""
        if stamps is None:
            return told, stamps_of_version(None, version) if log_end > self.end else None
        if log_end >= self._unstamped_end:
            return told, stamps
        outrun = {name for name, stamp in stamps.items() if stamp <= dated.get(name, 0)}
        return {name: told[name] for name in told.keys() - outrun}, {
            name: stamp for name, stamp in stamps.items() if name not in outrun
        }

    async def note(self, log_end: int, told: OffsetTable, *, has_stamps: bool) -> None:
        """A broker whose log goes to ``log_end`` was heard, and ``told`` is merged."""
        if not has_stamps and log_end > self.end:
            names = set[str]()
            for seen, (key, queues) in enumerate(told.items(), 1):
                if seen % _LOOKED_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
                names |= {name_of_queue(key, queue_id) for queue_id in queues}
                names.add(name_of_group(key.partition(TOPIC_GROUP_SEPARATOR)[2]))
            self._unstamped_end, self._unstamped = log_end, frozenset(names)
        self.end = max(self.end, log_end)

    async def without_outrun(
        self, log_end: int, told: OffsetTable, changed: Mapping[str, int]
    ) -> tuple[OffsetTable, Mapping[str, int]]:
        """Of a broker with stamps what nobody without has told who knows later; ``changed``: its stamps."""
        if log_end >= self._unstamped_end:
            return told, changed
        counts = await _without(told, lambda _group, queue: queue in self._unstamped)
        return counts, {name: stamp for name, stamp in changed.items() if name not in self._unstamped}


async def without_decided(told: OffsetTable, changed: ChangeStamps, made_since: MadeSince) -> OffsetTable:
    """What is no word of before about what was decided here since tables were lost."""

    def is_decided(group: str, queue: str) -> bool:
        return any(name in made_since and changed.of(name) for name in (group, queue))

    return await _without(told, is_decided)


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

"""ConsumerOffsetManager: how far each group has consumed each queue."""

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from math import inf
from typing import Any, Final

import trio

from rmqha.broker.tables.change_stamps import ChangeStamps
from rmqha.broker.tables.made_since import MadeSince
from rmqha.broker.tables.offset_shares import OffsetShares
from rmqha.broker.tables.offset_table import (
    CHANGED_OFFSETS,
    TOPIC_GROUP_SEPARATOR,
    OffsetsOfQueues,
    OffsetTable,
    decode_changed_offsets,
    decode_offsets,
    name_of_group,
    name_of_queue,
    size_of_key,
    split_in_turns,
    with_ends,
)
from rmqha.broker.transaction.half_message import CONSUMER_GROUP
from rmqha.codec.host import host_of
from rmqha.codec.limits import GROUP_SIZE_MAX, TABLE_SIZE_MAX, topic_problem
from rmqha.errors import RemoteProtocolError
from rmqha.replication.role import Role
from rmqha.replication.watermark import Watermark
from rmqha.store.consume_queue_table import ConsumeQueueTable

ENTRIES_MAX: Final = 262_144
"""Most offsets that are kept: some 100 MB."""
_QUEUE_SIZE: Final = len("-2147483648:-9223372036854775808,")
_MERGED_AT_ONCE: Final = 1000
"""Offsets: less than a millisecond's work."""

_LOOKED_AT_ONCE: Final = 256
_REMOVED_AT_ONCE: Final = 500
"""Offsets, likewise."""


class ConsumerOffsetManager:
    """``topic@group -> queue -> next offset to consume``. A commit may go backwards: that is how a reset works."""

    def __init__(self, *, now_ms: Callable[[], int] = int) -> None:
        """``now_ms``: the wall clock; without one changes are counted."""
        self._table: OffsetTable = {}
        self.changed: Final = ChangeStamps(now_ms)
        """When groups were set back, or forgotten."""
        self._entries = self._size = 0
        self._shares = OffsetShares()
        self._role: Role | None = None
        """Of this broker, if its group elects the master."""
        self._doubted: dict[tuple[str, int], int] = {}
        """Queues whose offset here is of a log that is gone, until a master tells its own; with their ends."""
        self._committed_here: set[tuple[str, int]] = set()
        """What clients have told this broker since no master told as much, while it was none; of such a group."""
        self._queues: ConsumeQueueTable | None = None
        self.dirty = False
        """The table has changed since it was saved."""
        self.awaited = 0
        """How often somebody waits for the table to be saved: an operator that has a group removed, or set back."""
        self.saved: Final = Watermark()
        """So many of them are content; waiters are told when a save succeeds, and when it fails."""
        self.why_unknown: Callable[[], str] = str
        """Why the table here says nothing of where groups are; empty: it does."""
        self.made_since: Final = MadeSince("madeOffsets")
        """Those that clients have committed since others were lost, of which no word of before counts."""

    def connect(self, queues: ConsumeQueueTable) -> None:
        """From now on follow the queues of a store that is loaded: what begins anew is forgotten."""
        self._queues, queues.on_begun_again = queues, self.forget_queue

    def elect(self, role: Role) -> None:
        """From now on masters are elected: what one has in its whole table counts, but for what came here alone.

        That is what clients commit while ``role`` is no master's, until a master has as much. Whatever else is here,
        from a file or of an earlier master, goes back, or is forgotten, as the present one says.
        """
        self._role = role
        role.subscribe(self._on_role)

    def _on_role(self) -> None:
        """A master's table is that of all."""
        if self._role is not None and self._role.is_master:
            self._committed_here.clear()

    def commit_offset(self, group: str, topic: str, queue_id: int, *, offset: int, peer: str = "") -> None:
        """Remember that ``group`` goes on at ``offset``, as the client at ``peer`` says.

        Raises:
            RemoteProtocolError: no client of RocketMQ's has such a group or topic, or there are too many, in all or of
                clients of this host; or, of a client that is not known here, as :meth:`check_known`. Nothing is
                remembered.
        """
        if peer and group == CONSUMER_GROUP:
            raise RemoteProtocolError(f"consumer offset not taken: {group} is the broker itself, no client's group")
        key = topic + TOPIC_GROUP_SEPARATOR + group
        queues = self._table.get(key)
        if queues is None or queue_id not in queues:
            if peer:
                self.check_known()
            host = host_of(peer)
            self._check_new(group, topic, host=host)
            self._shares.add(host, key, queue_id, self._size_of_new(key))
            self._put_new(key, queue_id, offset)
            if self.changed.of(name_of_group(group)):
                self.changed.note(name_of_queue(key, queue_id))
            else:
                self.made_since.note(name_of_queue(key, queue_id))
        else:
            if offset < queues[queue_id]:
                self.changed.note(name_of_queue(key, queue_id))
            self.made_since.note(name_of_queue(key, queue_id))
            queues[queue_id] = offset
            self._doubted.pop((key, queue_id), None)
        if peer and self._role is not None and not self._role.is_master:
            self._committed_here.add((key, queue_id))
        self.dirty = True

    def check_known(self) -> None:
        """Raises RemoteProtocolError: where groups are is yet to be taken over; they would begin anew, and say so."""
        if why := self.why_unknown():
            raise RemoteProtocolError(f"consumer offsets are not known here: {why}")

    def _check_new(self, group: str, topic: str, *, host: str) -> None:
        problem = topic_problem(topic)
        if not 0 < len(group) <= GROUP_SIZE_MAX:
            problem = f"a group's name has 1 to {GROUP_SIZE_MAX} characters, not {len(group)}"
        problem = problem or self._room_problem(topic + TOPIC_GROUP_SEPARATOR + group, host)
        if problem:
            raise RemoteProtocolError(f"consumer offset not taken: {problem}")

    def _room_problem(self, key: str, host: str) -> str:
        """Why no other queue's offset is kept; empty if one is."""
        if self._entries >= ENTRIES_MAX:
            return f"the offsets of {ENTRIES_MAX} queues are kept, the limit"
        size, free = self._size_of_new(key), TABLE_SIZE_MAX - self._size
        if size > free:
            return f"the offsets of {self._entries} queues take {TABLE_SIZE_MAX} bytes, which is what slaves can fetch"
        if not self._shares.has_room(host, size, entries_free=ENTRIES_MAX - self._entries, bytes_free=free):
            return (
                f"since this broker started clients of {host} have added those of {self._shares.of(host)} queues, "
                "as much as is left for all other hosts"
            )
        return ""

    def _size_of_new(self, key: str) -> int:
        return _QUEUE_SIZE + (0 if key in self._table else size_of_key(key))

    def _put_new(self, key: str, queue_id: int, offset: int) -> None:
        self._size += self._size_of_new(key)
        self._entries += 1
        self._table.setdefault(key, {})[queue_id] = offset

    def query_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where ``group`` goes on, or None if it never committed."""
        return self._table.get(topic + TOPIC_GROUP_SEPARATOR + group, {}).get(queue_id)

    async def remove_offset_in_turns(self, group: str) -> None:
        """Forget how far ``group`` is, in all topics; slaves do when they are told."""
        self.changed.note(name_of_group(group))
        self.dirty = True
        keys = [topic + TOPIC_GROUP_SEPARATOR + group for topic in await self.topics_of_in_turns(group)]
        entries = ((key, queue_id) for key in keys for queue_id in list(self._table.get(key, {})))
        while piece := list(islice(entries, _REMOVED_AT_ONCE)):
            for key, queue_id in piece:
                self._forget(key, queue_id)
            await trio.lowlevel.checkpoint()
        self.changed.note(name_of_group(group))  # again: a slave may have been told of the rest since
        self.made_since.note(name_of_group(group))
        self.awaited += 1

    def query_offsets(self, group: str, topic: str) -> OffsetsOfQueues:
        """Where ``group`` goes on, by queue."""
        return dict(self._table.get(topic + TOPIC_GROUP_SEPARATOR + group, {}))

    async def topics_of_in_turns(self, group: str) -> list[str]:
        """What ``group`` has consumed."""
        return [topic for topic, one in await self._pairs_in_turns() if one == group]

    async def groups_of_in_turns(self, topic: str) -> list[str]:
        """Who has consumed ``topic``."""
        return [group for one, group in await self._pairs_in_turns() if one == topic]

    async def topics_by_group_in_turns(self) -> dict[str, list[str]]:
        """What each group has consumed."""
        topics: dict[str, list[str]] = {}
        for topic, group in await self._pairs_in_turns():
            topics.setdefault(group, []).append(topic)
        return topics

    async def _pairs_in_turns(self) -> list[tuple[str, str]]:
        """Topic and group of each entry of the table; everybody else goes on meanwhile."""
        return await split_in_turns([*self._table])

    def to_json(self) -> dict[str, Any]:
        """The table itself, as ``consumerOffset.json`` and the answer to request 43 hold it: queue ids are integers.

        Who reads it knows no doubt: it has the last place that counts.
        """
        return {"offsetTable": with_ends(self._table, self._doubted), CHANGED_OFFSETS: self.changed.to_json()}

    async def to_json_in_turns(self) -> dict[str, Any]:
        """As :meth:`to_json`, which takes one short turn."""
        return self.to_json()

    def replace_from_json(self, value: dict[str, Any]) -> None:
        """Take over a saved table. Raises RemoteProtocolError if it is none; then nothing has changed."""
        changed = decode_changed_offsets(value)
        self._table, self._shares = decode_offsets(value), OffsetShares()
        self.changed.replace(changed or {})
        self.made_since.replace_from_json(value)
        self._entries = sum(map(len, self._table.values()))
        self._size = _QUEUE_SIZE * self._entries + sum(map(size_of_key, self._table))

    async def make_room_for(self, table: OffsetTable) -> None:
        """Forget offsets that a master's ``table`` does not have, where those that it has would not fit.

        Clients may have committed them to fill this table, and what they fill is missing when this broker is master.
        The newest queues go first. In turns.
        """
        entries = size = 0
        for number, (key, queues) in enumerate(table.items()):
            known = self._table.get(key, {})
            new = len(queues.keys() - known.keys())
            entries += new
            size += _QUEUE_SIZE * new + (0 if known else size_of_key(key))
            if number % _REMOVED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        keys = reversed([*self._table])
        known_here = ((key, queue_id) for key in keys for queue_id in list(self._table.get(key, {})))
        while self._lacks_room(entries, size) and (piece := list(islice(known_here, _REMOVED_AT_ONCE))):
            for key, queue_id in piece:
                if queue_id not in table.get(key, {}) and self._lacks_room(entries, size):
                    self._forget(key, queue_id)
            await trio.lowlevel.checkpoint()

    def _lacks_room(self, entries: int, size: int) -> bool:
        return self._entries + entries > ENTRIES_MAX or self._size + size > TABLE_SIZE_MAX

    def _forget(self, key: str, queue_id: int) -> None:
        queues = self._table.get(key, {})
        if queues.pop(queue_id, None) is None:  # somebody else was faster, in between two turns
            return
        self._shares.give_back(key, queue_id)
        self.changed.drop(name_of_queue(key, queue_id))
        self.made_since.drop(name_of_queue(key, queue_id))
        self._committed_here.discard((key, queue_id))
        self._doubted.pop((key, queue_id), None)
        self._entries -= 1
        self._size -= _QUEUE_SIZE
        if not queues:
            del self._table[key]
            self._size -= size_of_key(key)
        self.dirty = True

    async def merge_from_master(
        self, table: OffsetTable, *, is_whole: bool = False, changed: Mapping[str, int] | None = None
    ) -> None:
        """Take over the master's offsets, keeping a larger one of our own; commits go on meanwhile.

        RocketMQ's slave takes the master's value even backwards, so what consumers committed to the slave while
        the master was away is consumed again (#1094; spec: ha §12). A smaller one counts where the group was set back
        since. One that lies behind the queue's end is no place that
        anybody consumed here: the queue began anew on the master, and its word counts.

        Args:
            table: the master's.
            is_whole: whether it is all that clients have told masters, so that :meth:`elect` applies.
            changed: its :attr:`changed`; None: it does not say, as RocketMQ's.

        Raises:
            RemoteProtocolError: there would be more than are kept; the others are taken over.
        """
        gives_way, left_out = is_whole and self._role is not None, 0
        if gives_way:
            await self._forget_all_but(table)
        if changed:
            await self._forget_since(changed)
        entries = ((key, queue_id, offset) for key, queues in table.items() for queue_id, offset in queues.items())
        while piece := list(islice(entries, _MERGED_AT_ONCE)):
            left_out += self._merge(piece, changed or {}, gives_way=gives_way)
            await trio.lowlevel.checkpoint()
        if left_out:
            raise RemoteProtocolError(
                f"{left_out} of the master's consumer offsets are not taken: those of {ENTRIES_MAX} queues are kept, "
                f"or {TABLE_SIZE_MAX} bytes, the limit"
            )

    async def _forget_all_but(self, table: OffsetTable) -> None:
        """What the master does not have, and nobody committed here. Its own, of transactions, come by another way."""
        own = TOPIC_GROUP_SEPARATOR + CONSUMER_GROUP
        keys = (key for key in [*self._table] if not key.endswith(own))
        known_here = ((key, queue_id) for key in keys for queue_id in list(self._table.get(key, {})))
        while piece := list(islice(known_here, _MERGED_AT_ONCE)):
            for key, queue_id in piece:
                if queue_id not in table.get(key, {}) and (key, queue_id) not in self._committed_here:
                    self._forget(key, queue_id)
            await trio.lowlevel.checkpoint()

    async def _forget_since(self, changed: Mapping[str, int]) -> None:
        """Groups that the master was told to forget later than this broker knew of."""
        forgotten = {name: stamp for name, stamp in changed.items() if name.startswith(TOPIC_GROUP_SEPARATOR)}
        forgotten = {name: stamp for name, stamp in forgotten.items() if stamp > self.changed.latest(name)}
        if not forgotten:
            return
        groups = {name.removeprefix(TOPIC_GROUP_SEPARATOR): stamp for name, stamp in forgotten.items()}
        self.changed.adopt_newer(forgotten)
        for topic, group in await self._pairs_in_turns():
            key = topic + TOPIC_GROUP_SEPARATOR + group
            for queue_id in [*self._table.get(key, {})] if group in groups else []:
                if name_of_queue(key, queue_id) in self.made_since:
                    self.changed.note(name_of_queue(key, queue_id))
                elif self.changed.latest(name_of_queue(key, queue_id)) < groups[group]:
                    self._forget(key, queue_id)
        self.dirty = True

    async def not_since(self, table: OffsetTable, changed: Mapping[str, int]) -> OffsetTable:
        """What of another broker's ``table`` counts: no group has been set back there, or forgotten, since, here."""
        counts: OffsetTable = {}
        for seen, (key, queues) in enumerate(table.items(), 1):
            if seen % _LOOKED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            forgotten = self.changed.of(name_of_group(key.partition(TOPIC_GROUP_SEPARATOR)[2]))
            for queue_id, offset in queues.items():
                name = name_of_queue(key, queue_id)
                stamp = self.changed.of_entry(name, changed)
                if stamp >= self.changed.of(name) and (not forgotten or stamp > forgotten):
                    counts.setdefault(key, {})[queue_id] = offset
        return counts

    def _merge(self, entries: Iterable[tuple[str, int, int]], changed: Mapping[str, int], *, gives_way: bool) -> int:
        """Returns how many there was no room for."""
        left_out = 0
        for key, queue_id, offset in entries:
            known = self._table.get(key, {}).get(queue_id)
            stamp = self.changed.of_entry(name_of_queue(key, queue_id), changed) if changed and offset >= 0 else 0
            if is_later := stamp > self.changed.latest(name_of_queue(key, queue_id)):
                self.changed.adopt(name_of_queue(key, queue_id), stamp)
            is_doubted = offset >= 0 and (key, queue_id) in self._doubted
            self._doubted.pop((key, queue_id), None)
            if known is None and self._lacks_room(1, self._size_of_new(key)):
                left_out += 1
            elif known is None and offset >= 0:
                self._put_new(key, queue_id, offset)
                self.dirty = True
            elif known is not None and (
                offset >= known or is_later or is_doubted or self._goes_back(key, queue_id, offset, gives_way=gives_way)
            ):
                self._table[key][queue_id] = offset
                self._committed_here.discard((key, queue_id))
                self.dirty = self.dirty or offset != known
        return left_out

    def _goes_back(self, key: str, queue_id: int, offset: int, *, gives_way: bool) -> bool:
        """Whether what is known here gives way to a smaller one of the master's."""
        is_known_to_all = gives_way and (key, queue_id) not in self._committed_here
        return offset >= 0 and (is_known_to_all or self._table[key][queue_id] > self._end_of(key, queue_id))

    def _end_of(self, key: str, queue_id: int) -> float:
        topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
        return inf if self._queues is None else self._queues.range_of(topic, queue_id)[1]

    def forget_queue(self, topic: str, queue_id: int) -> None:
        """It began anew on the master: where groups were in what it held before says nothing of what it holds now."""
        for key in [key for key in self._table if key.startswith(topic + TOPIC_GROUP_SEPARATOR)]:
            self._forget(key, queue_id)

    def doubt(self, next_offset: Callable[[str, int], int]) -> None:
        """What lies beyond the next message of its queue gives way to whatever a master says, once.

        The log lost its tail, and follows another broker's: other messages come to those places.
        """
        self._doubted = {
            (key, queue_id): end
            for key, queues in self._table.items()
            for queue_id, offset in queues.items()
            if offset > (end := next_offset(key.partition(TOPIC_GROUP_SEPARATOR)[0], queue_id))
        }
        self.dirty = self.dirty or bool(self._doubted)

    def cut(self, next_offset: Callable[[str, int], int]) -> list[str]:
        """Take back what lies beyond the next message of its queue; returns what was, as ``topic@group/queue``.

        The log lost its tail: its offsets will be given again, and a group that went on behind them would never
        see the messages that get them (#4771).
        """
        cut: list[str] = []
        for key, queues in self._table.items():
            topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
            for queue_id, offset in queues.items():
                if offset > (end := next_offset(topic, queue_id)):
                    queues[queue_id] = end
                    cut.append(f"{key}/{queue_id}")
        self.dirty = self.dirty or bool(cut)
        return cut

"""QueueEnds: where the queues end whose messages are all gone from the log.

The log tells a queue's end by its newest message. Once that one is deleted only the queue's own files tell, which do
not travel. A slave that began later, and became master, would give such a queue's offsets a second time. So a slave
asks for the ends (request GET_QUEUE_ENDS, rmqha's own), and every broker notes, and saves, what its cleaning will leave
without a message; all of it is in

    ROOT/config/queueEnds.json         {"queueEnds":{"TopicTest":{0:5280,1:5312}}}, on change; RocketMQ does not read it
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import trio

from rmqha.codec.queue_table import decode_ends, decode_topic
from rmqha.errors import RemoteProtocolError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import QueueKey
from rmqha.store.message_store import DefaultMessageStore

ENTRIES_MAX: Final = 1_000_000
"""Most queues whose ends are taken over: some 200 MB."""
_START_MAX: Final = 2**62
_PAGE: Final = 500
"""Queues of an answer, or of those that are looked at in one go without being read: some milliseconds."""
_READ_AT_ONCE: Final = 25
"""Where a queue ended at a time is looked for in its file: a millisecond."""


class QueueEnds:
    """The table of ends, kept in ``store.queues.known_ends``.

    An end falls only when messages are about to go that begin anew below it, as RocketMQ numbers them when a topic is
    made again: what the log held last counts.
    """

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store: Final = store
        self._known: Final = store.queues.known_ends
        self._noted_up_to: int | None = None
        self._later: dict[QueueKey, int] = {}
        """Ends of queues that show no message here, but may, in what is yet to come of the log."""
        self._later_from = 0
        self.dirty = False
        """The table has changed since it was saved."""
        self.on_learned: Callable[[], None] = lambda: None
        """Called when the table has changed: it should be saved soon."""
        self.why_unknown: Callable[[], str] = str
        """Why ends may be missing here: this is a slave, and no master has told it. Empty: none are."""
        store.queues.on_ends_noted = self._changed

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._known)

    def learn(self, ends: Mapping[QueueKey, int]) -> int:
        """Take over what is new or larger; returns how many were.

        A queue that had no message since what was known goes on there. Else places were given, and the next follows.
        """
        news = {key: end for key, end in ends.items() if end > self._known.get(key, 0)}
        self._go_on_behind(news)
        self._store.queues.note_ends(news)
        return len(news)

    async def learn_later(self, value: dict[str, Any], *, log_end: int) -> None:
        """Take note of a table of ends in a log that reaches to ``log_end``, which may be yet to come here.

        It replaces what another broker told so.

        The next message follows there at once. But readers are not sent behind messages that come with the log: only
        of a queue that has none by then (:meth:`settle`) all had gone before this log began.

        Raises:
            RemoteProtocolError: it is no such table, or too large; nothing has changed.
        """
        ends = _decode(value)
        self._check_room(ends)
        self._later, self._later_from = ends, log_end
        self._go_on_behind(ends)
        await self.settle()

    def forget_later(self) -> None:
        """Another broker has told all that there is to know: the former one's log may have gone farther."""
        self._later, self._later_from = {}, 0

    async def settle(self) -> bool:
        """Whether nothing is awaited of :meth:`learn_later`; what is due is learned, in turns."""
        while self._later and self._store.reput_from_offset >= self._later_from:
            page = {key: self._later.pop(key) for key in list(islice(self._later, _PAGE))}
            is_empty = {key: first == end for key in page for first, end in [self._store.queues.range_of(*key)]}
            self.learn({key: end for key, end in page.items() if is_empty[key]})
            await trio.lowlevel.checkpoint()
        return not self._later

    def go_on_later(self) -> None:
        """Where the next messages go was learned anew from the log, which does not tell of such queues."""
        self._go_on_behind(self._later)

    def _go_on_behind(self, ends: Mapping[QueueKey, int]) -> None:
        """Of queues that had no message since what was known, or whose own file, maybe an older copy, tells of none."""
        log = self._store.commit_log
        for key, end in ends.items():
            next_offset, (first, shown) = log.next_queue_offset(*key), self._store.queues.range_of(*key)
            if next_offset < end and (next_offset == self._known.get(key, 0) or next_offset == first == shown):
                log.learn_queue_offset(*key, end)

    def _check_room(self, ends: Mapping[QueueKey, int]) -> None:
        if len(self._known) + len(ends) > ENTRIES_MAX and len(self._known.keys() | ends.keys()) > ENTRIES_MAX:
            raise RemoteProtocolError(f"the ends of {ENTRIES_MAX} queues are kept, the limit")

    def _changed(self) -> None:
        """By :meth:`learn`, or by dispatch: a queue has begun again at another place."""
        self.dirty = True
        self.on_learned()

    async def note_gone(self) -> None:
        """Note the ends of queues that the last cleaning left without a message, a page at a time."""
        await self.settle()
        log_begins_at = self._store.min_offset
        if log_begins_at == self._noted_up_to:
            return
        queues = list(self._store.queues)
        for start in range(0, len(queues), _PAGE):
            page = queues[start : start + _PAGE]
            for queue in page if self._noted_up_to is not None else []:
                queue.correct_min_offset(log_begins_at)  # the start did so; a cleaning under way does only at its end
            gone = [queue for queue in page if not queue.has_messages]
            self.learn({(queue.topic, queue.queue_id): queue.max_offset_in_queue for queue in gone})
            await trio.lowlevel.checkpoint()
        self._noted_up_to = log_begins_at

    async def note_going(self, before: int) -> None:
        """Note the ends of queues whose messages all lie ``before`` an offset, a page at a time: they are about to go.

        If they do not, the queue itself tells its end. Of one that is being built again only memory does.
        """
        self.learn({key: lost.end for key, lost in self._store.queues.lost.items()})
        queues = list(self._store.queues)
        for start in range(0, len(queues), _PAGE):
            going = [queue for queue in queues[start : start + _PAGE] if queue.max_physic_offset <= before]
            self.learn({(queue.topic, queue.queue_id): queue.max_offset_in_queue for queue in going})
            self._store.queues.note_ends(self._fallen(going))
            await trio.lowlevel.checkpoint()

    def _fallen(self, queues: Sequence[ConsumeQueue]) -> dict[QueueKey, int]:
        """Where those of these queues end that have begun anew below an end that is known.

        The log's own messages came later than that, and every broker that has them goes on behind the last one.
        """
        fallen: dict[QueueKey, int] = {}
        for queue in queues:
            key = queue.topic, queue.queue_id
            if queue.max_offset_in_queue < self._known.get(key, 0):
                queue.correct_min_offset(self._store.min_offset)
                end = self._store.queues.range_of(*key)[1]
                if queue.has_messages and end < self._known[key]:
                    fallen[key] = end
        return fallen

    async def to_json_in_turns(self) -> dict[str, Any]:
        """The table, as ``queueEnds.json`` holds it, made a page at a time.

        Ends that are learned meanwhile may be in it or not: the table is dirty then. Each is one that the queue had.
        """
        table: dict[str, dict[int, int]] = {}
        keys = list(self._known)
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]
            _nest({key: self._known[key] for key in page if key in self._known}, table)
            await trio.lowlevel.checkpoint()
        return {"queueEnds": table}

    def merge_from_json(self, value: dict[str, Any]) -> int:
        """Take over a table, our own or another broker's; returns how many ends were new or larger.

        Raises:
            RemoteProtocolError: it is no such table, or too large; nothing has changed.
        """
        ends = _decode(value)
        self._check_room(ends)
        return self.learn(ends)

    @property
    def known_before(self) -> int:
        """What lies before this offset of the log is in the queues, so their ends are those of the log."""
        return self._store.reput_from_offset

    async def page_in_turns(self, start: int, *, before: int) -> dict[str, Any]:
        """A page of ends of queues as they were ``before`` an offset of the log, and where the next page starts.

        Args:
            start: how many queues the pages before it went through.
            before: at most :attr:`known_before`.
        """
        start = min(max(start, 0), _START_MAX)
        ends: dict[QueueKey, int] = {}
        for at in range(start, start + _PAGE, _READ_AT_ONCE):
            ends |= self._store.queues.ends_before(before, start=at, count=_READ_AT_ONCE)
            await trio.lowlevel.checkpoint()
        return {
            "queueEnds": _nest({key: end for key, end in ends.items() if end > 0}, {}),
            "next": start + _PAGE if len(ends) == _PAGE else None,
            "unknown": self.why_unknown(),
        }


def _nest(ends: Mapping[QueueKey, int], table: dict[str, dict[int, int]]) -> dict[str, dict[int, int]]:
    """Add ends to a table by topic; returns it."""
    for (topic, queue_id), end in ends.items():
        table.setdefault(topic, {})[queue_id] = end
    return table


def _decode(value: dict[str, Any]) -> dict[QueueKey, int]:
    """The member ``queueEnds``."""
    try:
        return {
            (decode_topic(topic), queue_id): end
            for topic, queues in value["queueEnds"].items()
            for queue_id, end in decode_ends(queues).items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"queue ends do not parse: {error!r:.200}") from None

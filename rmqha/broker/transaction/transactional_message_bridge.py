"""TransactionalMessageBridge: what transactions read of the store, and where they left off.

Source: rocketmq-all-4.9.8 TransactionalMessageBridge.java.
"""

import errno
from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

import structlog
import trio

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.transaction.damaged_halves import DamagedHalves
from rmqha.broker.transaction.half_message import (
    CONSUMER_GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    QUEUE_ID,
    Mark,
    first_place,
    is_committed_by,
    key_of,
    mark_in,
    place_of,
    without_first_place,
)
from rmqha.broker.transaction.own_queue import OwnQueue
from rmqha.codec.consume_queue import FILLER_SIZE
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.errors import CorruptLogError, StoreReadError
from rmqha.log_limit import LogLimit
from rmqha.replication.watermark import Complete, Watermark
from rmqha.store.message_store import DefaultMessageStore
from rmqha.waiting import DeadlineService

logger = structlog.get_logger()

_LOOKS_AGAIN_S: Final = 0.01
_PATIENCE_S: Final = 20.0
"""A queue whose unit leads nowhere is mostly built again, which has begun by then."""
_FORGOTTEN_S: Final = 300.0
_TAILS_MAX: Final = 4
"""So many times what was asked for is read of the log at most."""
_QUEUES_AT_ONCE: Final = 256
_DAMAGED_NEXT: Final = "'rmqha log verify STORE' shows what is damaged; docs/operations.md, 'A damaged record'"
_MARK_DAMAGED_NEXT: Final = "docs/operations.md, 'A damaged mark of a transaction'"
_DAMAGED_MAX: Final = 10_000
"""So many damaged marks are counted; more say nothing more."""
_READ_AT_ONCE: Final = 32
_TOLD_AT_ONCE: Final = 32
"""Each of them may store something."""


class Portion(NamedTuple):
    """Messages of a queue."""

    messages: list[StoredMessage]
    next_offset: int
    """Where to go on in the queue; where this began, if nothing more can be seen yet."""


class NextHalf(NamedTuple):
    """A half message."""

    half: StoredMessage | None
    """None: there is none."""
    next_offset: int
    """As :attr:`Portion.next_offset`."""


class TransactionalMessageBridge:
    """Reads the queues of half messages and marks as the consumer that RocketMQ's brokers are to themselves.

    Attributes:
        visible: where the queue of half messages ends, as far as it is dispatched.
        damaged: half messages that are.
    """

    def __init__(self, store: DefaultMessageStore, offsets: ConsumerOffsetManager) -> None:
        self._store: Final = store
        self._offsets: Final = offsets
        self._own: Final = {topic: OwnQueue(store, topic) for topic in (HALF_TOPIC, OP_TOPIC)}
        self.damaged: Final = DamagedHalves(store, self._own[HALF_TOPIC])
        self.queue_for: Final = store.queue_for
        self.visible: Final = Watermark(self.end_of(HALF_TOPIC))
        self._queue_end = self.visible.value
        self._arrived = trio.Event()
        self._unreadable_since = self._unreadable_at = -inf
        self._lines: Final = LogLimit()
        self._passed_over: int | None = None
        """The last mark that was."""
        store.queues.on_arrival.append(self._on_arrival)

    def _on_arrival(self, topic: str, _queue_id: int, queue_end: int) -> None:
        if topic == HALF_TOPIC:
            self._queue_end = queue_end
            self._arrived.set()

    async def run(self) -> None:
        """Tell those who wait for half messages, in turns, that they are there, or that their time is over."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(DeadlineService(self.visible.deadlines).run)
            while True:
                await self._arrived.wait()
                self._arrived = trio.Event()
                self.visible.advance(self._queue_end, at_most=_TOLD_AT_ONCE)
                while self.visible.answer(_TOLD_AT_ONCE):
                    await trio.lowlevel.checkpoint()

    def fetch_consume_offset(self, topic: str) -> int:
        """Where to go on reading; within what was ever given out, and not before what is still there."""
        saved = self._offsets.query_offset(CONSUMER_GROUP, topic, QUEUE_ID) or 0
        end = max(self._store.next_queue_offset(topic, QUEUE_ID), self.end_of(topic))
        return max(min(saved, end), self._own[topic].begin)

    def update_consume_offset(self, topic: str, offset: int) -> None:
        """From here on a broker that comes after this one goes on."""
        if self._offsets.query_offset(CONSUMER_GROUP, topic, QUEUE_ID) != offset:
            self._offsets.commit_offset(CONSUMER_GROUP, topic, QUEUE_ID, offset=offset)

    def read(self, topic: str, offset: int, *, count: int) -> Portion:
        """Messages from ``offset`` on, at most ``count``; none of what can no longer be read, only where to go on.

        Raises:
            StoreReadError: nothing can be read at present.
        """
        views, next_offset = self.read_records(topic, offset, count=count)
        messages = []
        for view in views:
            try:
                messages.append(decode_message(view))
            except CorruptLogError:
                continue
        return Portion(messages, next_offset)

    def read_records(
        self, topic: str, offset: int, *, count: int = _READ_AT_ONCE
    ) -> tuple[tuple[memoryview, ...], int]:
        """As :meth:`read`, undecoded.

        A record that is damaged is passed over where its queue cannot be built again: all transactions would wait. The
        store is not told of a mark, which may be an old one: the log that holds it would take no more messages.
        """
        is_mark = topic == OP_TOPIC
        try:
            return self._records(topic, offset, count=count, tells_damage=not is_mark)
        except StoreReadError as error:
            if not self._is_to_be_passed_over(topic, error):
                raise
            facts = {"topic": topic, "offset": offset, "reason": str(error)}
            self._lines.log(logger.error, "transaction.passed_over", **facts, next=_DAMAGED_NEXT)
            if is_mark:
                self._passed_over = offset
            return (), offset + 1

    def _records(
        self, topic: str, offset: int, *, count: int, tells_damage: bool
    ) -> tuple[tuple[memoryview, ...], int]:
        own = self._own[topic]
        if own.stopped_at is not None and offset >= own.stopped_at:
            found = own.records_behind(offset, count=count)
            return tuple(record for _, record in found if record is not None), found[-1][0] + 1 if found else offset
        result = self._store.get_message(topic, QUEUE_ID, offset, max_msg_nums=count, tells_damage=tells_damage)
        return result.views, result.next_begin_offset if result.max_offset > offset else offset

    def _is_to_be_passed_over(self, topic: str, error: StoreReadError) -> bool:
        if error.errno != errno.EAGAIN or (topic, QUEUE_ID) in self._store.queues.lost:
            return False
        if topic == OP_TOPIC:
            return True
        now = trio.current_time()
        if now >= self._unreadable_at + _FORGOTTEN_S:
            self._unreadable_since = now
        self._unreadable_at = now
        return now >= self._unreadable_since + _PATIENCE_S

    def read_marks(self, offset: int) -> tuple[list[Mark], int]:
        """Some marks from ``offset`` on in their queue, and where to go on; there if nothing more can be seen yet.

        Those that are damaged are among them, and counted.

        Raises:
            StoreReadError: nothing can be read at present.
        """
        stopped_at = self._own[OP_TOPIC].stopped_at
        if stopped_at is not None and offset >= stopped_at:
            marks, next_offset = self._marks_behind(stopped_at, offset)
        else:
            self._passed_over = None
            views, next_offset = self.read_records(OP_TOPIC, offset)
            marks = [self._of_what_lay_before(mark_in(view)) for view in views]
            if self._passed_over is not None:
                marks.append(Mark(self._passed_over, [], None))
        if offset == 0 and self._own[OP_TOPIC].has_begun_anew:
            marks.insert(0, Mark(0, [], None))  # for those that its queue does not lead to any more
        for mark in marks:
            if mark.physical_offset is None:
                self._note_damaged(mark.queue_offset)
        return marks, next_offset

    def _marks_behind(self, stopped_at: int, offset: int) -> tuple[list[Mark], int]:
        """As :meth:`read_marks`, where their queue has stopped: one may be missing there, and counts as damaged."""
        marks = [Mark(stopped_at, [], None)] if offset == stopped_at else []
        for place, record in self._own[OP_TOPIC].records_behind(offset, count=_READ_AT_ONCE):
            mark = Mark(place, [], None) if record is None else mark_in(record)._replace(queue_offset=place)
            marks.append(self._of_what_lay_before(mark))
            offset = place + 1
        return marks, offset

    def _note_damaged(self, offset: int) -> None:
        damaged = self._store.stats.damaged_marks
        if offset not in damaged and len(damaged) < _DAMAGED_MAX:
            damaged.add(offset)
            facts = {"offset": offset, "consequence": "open half messages that it may be of are put aside"}
            self._lines.log(logger.error, "transaction.mark_damaged", **facts, next=_MARK_DAMAGED_NEXT)

    def _of_what_lay_before(self, mark: Mark) -> Mark:
        """Where the queue of half messages began anew, an old mark names places of others, which lie behind it."""
        at = mark.physical_offset
        if at is None:
            return mark
        return mark._replace(half_offsets=[place for place in mark.half_offsets if self._lies_before(at, place)])

    def _lies_before(self, at: int, place: int) -> bool:
        """Whether the message at a ``place`` of its queue does, or went with the log's first files.

        Raises:
            StoreReadError: that place leads to no message: the queue is damaged, and is built again.
        """
        position = self.position_of(HALF_TOPIC, place)
        if position is None:
            return self.is_gone(HALF_TOPIC, place)
        if position >= at:
            self._store.get_message(HALF_TOPIC, QUEUE_ID, place, max_msg_nums=1)
        return position < at

    @property
    def taken_to(self) -> int:
        """Behind the last byte of the log that came from another broker: what it brought is not known here."""
        return self._store.taken_to

    @property
    def takes_more(self) -> bool:
        """Whether more may come: it is being asked, or is known to hold more."""
        return self._store.running_flags.is_peer_longer

    def end_of(self, topic: str) -> int:
        """Where its queue ends, as far as it can be read."""
        return self._own[topic].end

    def range_of(self, topic: str) -> tuple[int, int]:
        """Where its queue begins and ends, as far as it can be read."""
        return self._own[topic].begin, self._own[topic].end

    def position_of(self, topic: str, offset: int) -> int | None:
        """Where in the log the message at this place of its queue lies; None if it is not there."""
        return self._own[topic].position_of(offset)

    def is_gone(self, topic: str, offset: int) -> bool:
        """Whether the log's first files went with the message that had this place in its queue. Raises StoreReadError.

        Its queue is told later.
        """
        position = self.position_of(topic, offset)
        return offset < self._own[topic].begin or (position is not None and position < self._store.min_offset)

    def first_behind(self, topic: str, physical_offset: int) -> int:
        """The place in its queue of the first message that lies at or behind this position of the log."""
        return self._own[topic].first_behind(physical_offset)

    async def tail(self, size: int) -> tuple[int, int]:
        """Where some record lies, ``size`` bytes or more before the log's end, but not many times that, and that end.

        As far as queues lead there; else the first record behind that to which one leads.
        """
        end = first = self._store.max_offset
        near = max(end - size, self._store.min_offset)
        far = max(end - _TAILS_MAX * size, self._store.min_offset)
        for number, queue in enumerate(list(self._store.queues), 1):
            place = queue.end_before(near)
            for at, record_size, _ in filter(None, map(queue.unit, (place - 1, place))):
                if far <= at < first and self._is_record(at, record_size, end):
                    if at <= near:
                        return at, end
                    first = at
            if number % _QUEUES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return first, end

    def _is_record(self, offset: int, size: int, end: int) -> bool:
        """Whether a unit leads to a record, and not beside one; a filler leads nowhere."""
        try:
            record = self._store.commit_log.record_at(offset, end=end)
        except CorruptLogError:
            return False
        return record is not None and len(record) == size != FILLER_SIZE

    def commits(self, begin: int, end: int) -> tuple[list[int], int]:
        """Where commits lie in the log, of the next records from ``begin`` on, and where to go on.

        Raises:
            CorruptLogError: no record lies there.
            StoreReadError: it cannot be read at present.
        """
        records, next_offset = self._store.commit_log.records(begin, end)
        is_commit = SysFlag.TRANSACTION_COMMIT
        found = [one.commit_log_offset for one in records if one.sys_flag & SysFlag.TRANSACTION_TYPE == is_commit]
        return found, next_offset

    def half_of(self, offset: int, *, end: int, has_ended: Callable[[int], bool]) -> StoredMessage | None:
        """The half message that the commit at ``offset`` says it commits, and that has not ended yet.

        None, too, if that is not so: clients store what they like. Raises StoreReadError.
        """
        try:
            record = self._store.commit_log.record_at(offset, end=end)
            commit = None if record is None else decode_message(record)
        except CorruptLogError:
            return None
        if commit is None:
            return None
        place = self.first_behind(HALF_TOPIC, commit.prepared_transaction_offset)
        if has_ended(place) or self.position_of(HALF_TOPIC, place) != commit.prepared_transaction_offset:
            return None
        half, _ = self.next_half_message(place)
        is_its = half is not None and half.queue_offset == place and is_committed_by(half, commit)
        return half if is_its else None

    def next_half_message(self, offset: int) -> NextHalf:
        """The first half message that can be read from ``offset`` on in its queue.

        A first place that it names stands there only if it may have lain there: RocketMQ's brokers store what a client
        says, who may send a message again that it got in a question about another half message.

        Raises:
            StoreReadError: nothing can be read at present.
        """
        messages, next_offset = self.read(HALF_TOPIC, offset, count=1)
        half = messages[0] if messages else None
        if half is not None and not self._may_have_lain_at(first_place(half), half):
            half = without_first_place(half)
        return NextHalf(half, next_offset)

    def _may_have_lain_at(self, place: int, half: StoredMessage) -> bool:
        """Whether nothing can be read there, or the same half message; nobody is told of damage that is met there."""
        if place >= half.queue_offset:
            return place == half.queue_offset
        try:
            views, _ = self._records(HALF_TOPIC, place, count=1, tells_damage=False)
        except StoreReadError:
            return True
        there = place_of(views[0]) if views else None
        return there is None or there.queue_offset != place or there.key == key_of(half)

    def was_given_out(self, offset: int) -> bool:
        """Whether a half message has, or had, this place in its queue."""
        return 0 <= offset < self._store.next_queue_offset(HALF_TOPIC, QUEUE_ID)

    def when_visible(self, offset: int, deadline: float, complete: Complete) -> None:
        """Be told when the half message at ``offset`` can be read, or that it cannot by ``deadline``."""
        self.visible.add(offset + 1, deadline, complete)

    async def wait_dispatched(self, *, timeout_s: float = inf, while_so: Callable[[], bool] = lambda: True) -> bool:
        """Wait until all that is in the log now can be read; False if it cannot in time, or ``while_so()`` ends.

        With ASYNC_FLUSH that may take many seconds, unless somebody asks for a flush.
        """
        end = self._store.max_offset
        if self._store.flushed_offset < end:
            self._store.request_flush()
        with trio.move_on_after(timeout_s):
            while self._store.reput_from_offset < end and while_so():  # noqa: ASYNC110 - as below
                await trio.sleep(_LOOKS_AGAIN_S)
        return self._store.reput_from_offset >= end

    async def wait_safe(self, *, timeout_s: float) -> bool:
        """Wait until all that is written now stays, whatever happens; False if it does not in time.

        Then it is on the disk, and on as many replicas as have to have it before it may be seen.

        Raises:
            StoreError: the disk failed, or the log was cut.
        """
        end = self._store.max_offset
        with trio.move_on_after(timeout_s):
            await self._store.flush_now(end)
            while self._store.reput_from_offset < end:  # noqa: ASYNC110 - dispatch tells nobody how far it is
                await trio.sleep(_LOOKS_AGAIN_S)
            return True
        return False

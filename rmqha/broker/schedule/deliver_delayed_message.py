"""DeliverDelayedMessageTask: delivers the messages of one delay level, in the order in which they were sent.

They wait in one queue (rmqha/codec/delayed_message.py), whose units say when each is due. A message that is due is put
into its own topic, as a new one.

Source: spec: commitlog §2.7, §2.10; rocketmq-all-4.9.8 ScheduleMessageService.java:377-500.
"""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from rmqha.broker.puts.internal_puts import InternalPuts
from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.delayed_message import delay_level2_queue_id, message_timeup
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.codec.record.message import decode_message
from rmqha.errors import CorruptLogError, LocalProtocolError, StoreError
from rmqha.log_limit import LogLimit
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import PutMessageStatus

logger = structlog.get_logger()

_AT_ONCE: Final = 32
"""Messages that are read, and put, together."""
_SOON_S: Final = 1.0
"""Within this time it looks again, whatever it waits for: the wall clock may be set, a queue be built again."""
_TRIES_AGAIN_S: Final = 0.5
_IDLE_S: Final = 60.0
"""Without messages that wait: the next one is told of."""


class DeliverDelayedMessageTask:
    """Of one leadership.

    Invariant: all before ``_offset`` in the queue is delivered, or gone from the log, or cannot be delivered ever.
    """

    def __init__(
        self,
        delay_level: int,
        delay_ms: int,
        *,
        store: DefaultMessageStore,
        offsets: DelayOffsets,
        topics: TopicConfigManager,
        puts: InternalPuts,
        store_host_raw: bytes,
        now_ms: Callable[[], int],
    ) -> None:
        """Begin where the level is delivered to, as far as that is settled.

        Where its queue ends before that, the log has lost messages: their places in it will be given again.
        """
        self.delay_level: Final = delay_level
        self._delay_ms: Final = delay_ms
        self._store: Final = store
        self._offsets: Final = offsets
        self._topics: Final = topics
        self._puts: Final = puts
        self._store_host_raw: Final = store_host_raw
        self._now_ms: Final = now_ms
        self._queue_id: Final = delay_level2_queue_id(delay_level)
        self._offset = min(offsets.offset_of(delay_level), store.next_queue_offset(SCHEDULE_TOPIC, self._queue_id))
        self._due_ms: int | None = None
        """When the next message was due, as far as this is known; None: none is due."""
        self._at_once = _AT_ONCE
        self._problem = ""
        self._lines: Final = LogLimit(burst=3)

    @property
    def overdue_s(self) -> float:
        """For how long the next message has been due; 0 if none is."""
        return 0.0 if self._due_ms is None else max(0.0, (self._now_ms() - self._due_ms) / 1000)

    async def deliver_due(self, *, is_leading: Callable[[], bool], is_outdated: Callable[[], bool]) -> float:
        """Deliver all that is due now; returns for how many seconds nothing else is, unless more messages come.

        What cannot be put at present keeps those behind it waiting, and is tried again.

        Args:
            is_leading: whether what was put still counts, now that it is known what became of it.
            is_outdated: whether no more is to be put.
        """
        while not is_outdated():
            try:
                due, idle_s = self._count_due()
                if not due:
                    return idle_s
                problem = await self._deliver(due, is_leading=is_leading)
            except StoreError as error:
                problem = str(error)
            if problem:
                self._at_once = 1
                self._tell(problem)
                await trio.sleep(_TRIES_AGAIN_S)
            else:
                self._at_once, self._problem = _AT_ONCE, ""
        return 0.0

    def _tell(self, problem: str) -> None:
        """Once, for as long as it lasts."""
        if problem != self._problem:
            self._problem = problem
            facts = {"delay_level": self.delay_level, "offset": self._offset, "reason": problem}
            logger.warning("schedule.not_delivered", **facts, next="tried again")

    def _count_due(self) -> tuple[int, float]:
        """How many of the next messages are due, and if none, for how many seconds that stays so.

        A time that lies further ahead than the level's delay was made by a clock that has been set back since: as with
        RocketMQ, the message is due.
        """
        first, end = self._store.queues.range_of(SCHEDULE_TOPIC, self._queue_id)
        if self._offset < first:
            self._pass_over_deleted(first)
        queue = self._store.queues.find(SCHEDULE_TOPIC, self._queue_id)
        if queue is None or self._offset >= end:
            self._due_ms = None
            return 0, _IDLE_S if self._offset >= end else _SOON_S
        now_ms, due, idle_s, due_ms = self._now_ms(), 0, _SOON_S, None
        for _, _, deliver_timestamp_ms in queue.units(self._offset, min(self._at_once, end - self._offset)):
            left_ms = deliver_timestamp_ms - now_ms
            if 0 < left_ms <= self._delay_ms:
                idle_s = min(left_ms / 1000, _SOON_S)
                break
            due_ms = deliver_timestamp_ms if due_ms is None else due_ms
            due += 1
        self._due_ms = due_ms
        return due, idle_s

    def _pass_over_deleted(self, first: int) -> None:
        if self._offset:
            facts = {"delay_level": self.delay_level, "from_offset": self._offset, "to_offset": first}
            logger.error("schedule.messages_gone", **facts, reason="their log files have been deleted")
        self._offset = first

    async def _deliver(self, count: int, *, is_leading: Callable[[], bool]) -> str:
        """Put the next ``count`` messages, or as many of them as are read at once; returns why one is not put.

        Raises:
            StoreError: they cannot be read at present.
        """
        if self._offsets.is_full:
            return "too many deliveries are not durable yet, or not with the replicas"
        result = self._store.get_message(SCHEDULE_TOPIC, self._queue_id, self._offset, max_msg_nums=count)
        if result.next_begin_offset <= self._offset:
            return f"the messages cannot be read: {result.status.value}"
        records = [self._make_record(view) for view in result.views]
        results = await self._puts.put_all([one for one in records if isinstance(one, PreparedRecord)], wait=False)
        if not is_leading():
            return "this broker is no master any more"
        problem, log_end, unhandled = "", 0, list(reversed(results))
        self._offset = result.next_begin_offset - len(records)
        for record in records:
            why_never = record if isinstance(record, str) else ""
            if isinstance(record, PreparedRecord):
                put = unhandled.pop()
                told = put.append.remark or put.status.value
                if put.is_stored:
                    log_end = put.append.end_offset
                elif put.status is PutMessageStatus.MESSAGE_ILLEGAL:
                    why_never = told
                else:
                    problem = told
                    break
            if why_never:
                self._leave_out(why_never)
            self._offset += 1
        self._offsets.advance({self.delay_level: self._offset}, log_end=log_end)
        return problem

    def _make_record(self, view: memoryview) -> PreparedRecord | str:
        """What a message becomes, or why it can never be delivered; "" if its topic was deleted, which is no fault."""
        try:
            message = decode_message(view)
            record = message_timeup(message, self._store_host_raw, queue_for=self._store.queue_for)
        except (CorruptLogError, LocalProtocolError) as error:
            return str(error)
        if self._topics.was_deleted(record.topic, since=message.physical_offset):
            facts = {"topic": record.topic, "delay_level": self.delay_level, "offset": message.queue_offset}
            self._lines.log(logger.warning, "schedule.topic_deleted", **facts, next="left out")
            return ""
        return record

    def _leave_out(self, reason: str) -> None:
        """The next one: it stays where it is, and those behind it go on."""
        self._store.stats.undeliverable_messages += 1
        facts = {"delay_level": self.delay_level, "offset": self._offset, "reason": reason[:300]}
        self._lines.log(logger.error, "schedule.undeliverable", **facts, next="left out")

"""Reading by queue and by offset: what pulls, offset queries and message lookups ask of the store.

Answers are windows on the mapped segments, undecoded and uncopied; they stay valid while somebody holds them.
"""

import errno
from collections.abc import Callable
from typing import Final

from rmqha.codec.record.layout import (
    RECORD_SIZE_MIN,
    fields_struct,
    physical_offset_at,
    store_timestamp_at,
)
from rmqha.errors import StoreReadError
from rmqha.replication.role import Role
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.log import Log
from rmqha.store.status import GetMessageResult, GetMessageStatus

_EXAMINED_MAX: Final = 800
"""Units one pull looks at, whatever it asks for: RocketMQ's 20 * maxMsgNums bytes may be a whole file of them."""
IN_MEMORY_BYTES_MAX: Final = 262_144
IN_MEMORY_COUNT_MAX: Final = 32
ON_DISK_BYTES_MAX: Final = 65_536
ON_DISK_COUNT_MAX: Final = 8

_PLACE: Final = fields_struct("queue_id", "queue_offset")


class MessageReader:
    """Reads what is confirmed, and nothing else: consumers see nothing that could still vanish.

    ``visible_offset()`` is the end of that part of the log; in queues is what is dispatched of it. The last
    ``in_memory_bytes`` before it are taken to be in the page cache and may be sent in larger portions (spec: remoting
    §2.5, batch limits). ``on_damaged(queue, index)`` is told of a unit that does not lead to its record,
    ``on_given(queue, first, count)`` of where what a pull is answered with comes from.
    """

    def __init__(
        self,
        log: Log,
        queues: ConsumeQueueTable,
        *,
        visible_offset: Callable[[], int],
        in_memory_bytes: int,
        role: Role,
        on_damaged: Callable[[ConsumeQueue, int], None],
        on_given: Callable[[ConsumeQueue, int, int], None],
    ) -> None:
        self._log: Final = log
        self._queues = queues
        self._visible_offset = visible_offset
        self._in_memory_bytes = in_memory_bytes
        self._role = role
        self._on_damaged = on_damaged
        self._on_given = on_given

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_msg_nums: int = IN_MEMORY_COUNT_MAX,
        max_bytes: int = IN_MEMORY_BYTES_MAX,
        code_set: frozenset[int] | None = None,
        tells_damage: bool = True,
    ) -> GetMessageResult:
        """The messages of a queue from ``offset`` on, as many as one answer may hold, at least the first that matches.

        Args:
            topic: of the queue.
            queue_id: of the queue.
            offset: where to begin, in the queue.
            max_msg_nums: at most so many messages.
            max_bytes: at most so many bytes, unless the first message alone is larger.
            code_set: the wanted tag hashes as signed int32; None takes every message.
            tells_damage: a unit that does not lead to its record has its queue built again, or the broker say that it
                is the log that is damaged; else nobody is told.

        Raises:
            StoreReadError: at present nothing can be read there; later it may.
        """
        queue = self._queues.find(topic, queue_id)
        first, end = self._queues.readable_range_of(topic, queue_id)
        if end == 0:
            status = GetMessageStatus.NO_MATCHED_LOGIC_QUEUE if queue is None else GetMessageStatus.NO_MESSAGE_IN_QUEUE
            return GetMessageResult(status, self._corrected(offset, 0), 0, 0)
        if offset < first:
            return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, self._corrected(offset, first), first, end)
        if offset == end:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, first, end)
        if offset > end:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, self._corrected(offset, end), first, end)
        assert queue is not None, "it has messages"
        return self._collect(
            queue, offset, max_msg_nums=max_msg_nums, max_bytes=max_bytes, code_set=code_set, tells_damage=tells_damage
        )

    def _corrected(self, offset: int, better: int) -> int:
        """A slave, which may merely be late, does not tell consumers to go elsewhere."""
        return better if self._role.is_master else offset

    def _collect(
        self,
        queue: ConsumeQueue,
        offset: int,
        *,
        max_msg_nums: int,
        max_bytes: int,
        code_set: frozenset[int] | None,
        tells_damage: bool,
    ) -> GetMessageResult:
        views: list[memoryview] = []
        total, examined = 0, 0
        status = GetMessageStatus.NO_MATCHED_MESSAGE
        log = self._log
        min_offset, end = log.min_offset, log.max_offset
        in_memory_from = end - self._in_memory_bytes
        in_memory_max = min(max_bytes, IN_MEMORY_BYTES_MAX), min(max_msg_nums, IN_MEMORY_COUNT_MAX)
        on_disk_max = min(max_bytes, ON_DISK_BYTES_MAX), min(max_msg_nums, ON_DISK_COUNT_MAX)
        for phy_offset, size, tags_code in queue.units(offset, _EXAMINED_MAX):
            if views:
                bytes_max, count_max = in_memory_max if phy_offset >= in_memory_from else on_disk_max
                if len(views) >= count_max or total + size > bytes_max:
                    break
            index = offset + examined
            if phy_offset < min_offset and size >= RECORD_SIZE_MIN and _is_in_order(queue, index):
                status = GetMessageStatus.MESSAGE_WAS_REMOVING
            elif code_set is None or _as_int32(tags_code) in code_set or size < RECORD_SIZE_MIN:
                record = log.record_at(phy_offset, end=end)
                if record is None or len(record) != size or _PLACE.unpack_from(record) != (queue.queue_id, index):
                    if tells_damage:
                        self._on_damaged(queue, index)
                    if examined:
                        break
                    raise _leads_nowhere(queue, index)
                views.append(record)
                total += size
            examined += 1
        if views:
            status = GetMessageStatus.FOUND
            self._on_given(queue, offset, examined)
        return GetMessageResult(
            status,
            offset + examined,
            queue.min_offset_in_queue,
            queue.max_offset_in_queue,
            tuple(views),
            total,
        )

    def look_message_by_offset(self, phy_offset: int) -> memoryview | None:
        """The record that starts at ``phy_offset``; None if none does, or if it may not be seen."""
        return self._log.record_at(phy_offset, end=self._visible_offset())

    def stored_message_at(self, phy_offset: int) -> memoryview | None:
        """Likewise, whatever may be seen here: who read it may have done so from a slave, which had it confirmed first.

        For what is stored again behind it.
        """
        return self._log.record_at(phy_offset, end=self._log.max_offset)

    def physical_offset_of(self, record: memoryview) -> int:
        """Where a record that was read here lies in the log."""
        return physical_offset_at(record)

    def store_time_of(self, phy_offset: int) -> int:
        """Store time of the record at ``phy_offset`` in milliseconds, -1 if there is none."""
        record = self.look_message_by_offset(phy_offset)
        if record is None:
            return -1
        return store_timestamp_at(record)

    def store_time_in_queue(self, topic: str, queue_id: int, index: int) -> int:
        """Store time of the message at ``index`` of a queue in milliseconds, -1 if there is none.

        Raises:
            StoreReadError: at present nothing can be read there; later it may.
        """
        queue = self._queues.find(topic, queue_id)
        unit = None if queue is None or index < queue.min_offset_in_queue else queue.unit(index)
        return -1 if unit is None else self.store_time_of(unit[0])

    def earliest_message_time_ms(self) -> int:
        """Store time of the first record of the log, -1 if there is none, or none that can be read at present."""
        try:
            return self.store_time_of(self._log.min_offset)
        except StoreReadError:
            return -1

    def earliest_message_time_in_queue_ms(self, topic: str, queue_id: int) -> int:
        """Store time of the first message of a queue, -1 if it has none."""
        queue = self._queues.find(topic, queue_id)
        unit = None if queue is None else queue.unit(queue.min_offset_in_queue)
        return -1 if unit is None else self.store_time_of(unit[0])

    def get_max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Offset of the next message to be seen; 0 for a queue that does not exist."""
        return self._queues.readable_range_of(topic, queue_id)[1]

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Offset of the first message that is still there; 0 for a queue that does not exist."""
        return self._queues.readable_range_of(topic, queue_id)[0]

    def get_offset_in_queue_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """See :meth:`ConsumeQueue.get_offset_in_queue_by_time`; 0 for a queue that does not exist."""
        queue = self._queues.find(topic, queue_id)
        return 0 if queue is None else queue.get_offset_in_queue_by_time(timestamp_ms, self.store_time_of)

    def first_stored_from(self, topic: str, queue_id: int, timestamp_ms: int) -> int | None:
        """Offset of the first message of a queue that was stored at ``timestamp_ms`` or later; None if none was.

        Raises:
            StoreReadError: at present nothing can be read there.
        """
        queue = self._queues.find(topic, queue_id)
        if queue is None or not queue.has_messages:
            return None
        first = queue.first_stored_from(timestamp_ms, self.store_time_of)
        return first if first < queue.max_offset_in_queue else None


def _is_in_order(queue: ConsumeQueue, index: int) -> bool:
    """Whether this unit leads to a later record than the one before it."""
    before, this = queue.unit(index - 1), queue.unit(index)
    return before is None or this is None or before[0] < this[0] or index - 1 < queue.min_offset_in_queue


def _leads_nowhere(queue: ConsumeQueue, index: int) -> StoreReadError:
    """Consumers stop at such a unit, rather than miss a message, and ask again."""
    cause = OSError(
        errno.EAGAIN, f"unit {index} does not lead to its message, the queue is to be built again: try later"
    )
    return StoreReadError(cause, operation="read", path=queue.queue.directory)


def _as_int32(tags_code: int) -> int:
    return (tags_code + 0x8000_0000 & 0xFFFF_FFFF) - 0x8000_0000

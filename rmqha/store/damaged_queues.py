"""DamagedQueues: consume queues with a unit that does not lead to its record, until it is known what is damaged.

A queue is derived: where the log is sound it is put aside and built again (store/queue_rebuild.py), and nobody else
notices. So the log is read first: of what a damaged log holds, the queues may be all that still finds it. But those of
transactions are read on where they stop, as they do before a record that lies about its place.
"""

from typing import Final

import structlog
import trio

from rmqha.codec.consume_queue import UNIT_SIZE
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.layout import enters_queue
from rmqha.errors import CorruptLogError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable, QueueKey
from rmqha.store.log import Log
from rmqha.store.stopped_queues import is_read_on

logger = structlog.get_logger()

_NAMED_MAX: Final = 10
_SHARE: Final = 4
"""Reading takes one part in this many of the time."""


class DamagedQueues:
    """Keeps the suspects, and reads the log once for all that are known at one time."""

    def __init__(self, log: Log, queues: ConsumeQueueTable) -> None:
        self._log: Final = log
        self._queues: Final = queues
        self._suspects: Final[dict[QueueKey, tuple[ConsumeQueue, int]]] = {}
        self._told: Final[set[QueueKey]] = set()
        """Those of the suspects that the log has been told of: it may take many tries to read all of it."""
        self._position = 0

    def __bool__(self) -> bool:
        return bool(self._suspects)

    def add(self, queue: ConsumeQueue, index: int) -> None:
        """This unit of the queue does not lead to its record."""
        if queue.queue.directory not in self._queues.missing:
            self._suspects.setdefault((queue.topic, queue.queue_id), (queue, index))

    def describe(self, end: int) -> str:
        """What is found, and how much of the log is left to read up to ``end``; empty if there is nothing."""
        if not self._suspects:
            return ""
        return (
            f"consume queues {', '.join(self._names())} have units that do not lead to their messages; they are built "
            f"again once the log has proven sound, {max(end - self._position, 0)} bytes of it to read"
        )

    def _names(self) -> list[str]:
        return [f"{topic}/{queue_id}" for topic, queue_id in [*self._suspects][:_NAMED_MAX]]

    async def check(self, end: int) -> None:
        """Have the suspects put aside if the log, up to ``end``, can build them again.

        Raises:
            CorruptLogError: it is the log that is damaged, or lacks a message; nothing was put aside.
            StoreReadError: the log cannot be read at present.
        """
        suspects = dict(self._suspects)
        if not suspects.keys() <= self._told:
            self._told.update(suspects)
            logger.warning(
                "consume_queue.damaged",
                count=len(suspects),
                queues=self._names(),
                unit=next(iter(suspects.values()))[1],
                next="the commitlog is read, and if it is sound they are built again from it; all other queues go on",
            )
        next_offsets = await self._read_log(suspects, end)
        for key, (queue, index) in suspects.items():
            if next_offsets.get(key, 0) <= index and not (is_read_on(key[0]) or self._is_gone(queue, index)):
                raise CorruptLogError(end, f"before this offset message {index} of queue {key[0]}/{key[1]} is missing")
        for key, (queue, index) in suspects.items():
            del self._suspects[key]
            self._told.discard(key)
            mapped = queue.queue.find(index * UNIT_SIZE)
            if mapped is not None:
                self._queues.note_missing(queue.queue.directory, damaged=mapped.path)

    def _is_gone(self, queue: ConsumeQueue, index: int) -> bool:
        """Whether its message was deleted meanwhile, or all messages of its queue were."""
        deleted = self._queues.deleted.get((queue.topic, queue.queue_id))
        if deleted is not None and index < deleted.end:
            return True
        return queue.queue.find(index * UNIT_SIZE) is None or queue.max_physic_offset <= self._log.min_offset

    async def _read_log(self, suspects: dict[QueueKey, tuple[ConsumeQueue, int]], end: int) -> dict[QueueKey, int]:
        """Read the log up to ``end``; returns what follows the last message of each suspect that has any.

        A queue may have stopped once where messages are missing, and gone on: what lies before a 0th message, or is
        deleted, is none of its any more, and may have gaps.
        """
        next_offsets: dict[QueueKey, int] = {}
        gaps: dict[QueueKey, CorruptLogError] = {}
        has_stopped = self._queues.stopped.copy()  # one may go on behind the end
        self._position = self._log.min_offset
        while self._position < end:
            begun_at = trio.current_time()
            requests, behind = read_on(self._log, self._position, end)
            for request in requests:
                key = request.topic, request.queue_id
                stopped = has_stopped.get(key)
                is_passed_over = stopped is not None and stopped.passes_over(request)
                if key not in suspects or not enters_queue(request.sys_flag) or is_passed_over:
                    continue
                if not self._queues.deleted.holds(request):
                    _count(request, next_offsets, gaps)
            self._position = behind
            await trio.sleep((_SHARE - 1) * (trio.current_time() - begun_at))
            if self._position < self._log.min_offset:  # this part is deleted by now, with messages not counted yet
                self._position = self._log.min_offset
                next_offsets.clear()
                gaps.clear()
        for key, gap in gaps.items():
            if not is_read_on(key[0]):
                raise gap
        return next_offsets


def read_on(log: Log, position: int, end: int) -> tuple[list[DispatchRequest], int]:
    """As :meth:`Log.records` up to an ``end`` where a record is known to end.

    Raises:
        CorruptLogError: also if no record ends before ``end``.
        StoreReadError: the log cannot be read at present.
    """
    requests, behind = log.records(position, end)
    if log.min_offset <= position == behind < end:
        raise CorruptLogError(position, "the record that begins here is longer than what is written")
    return requests, behind


def _count(request: DispatchRequest, next_offsets: dict[QueueKey, int], gaps: dict[QueueKey, CorruptLogError]) -> None:
    """Note what follows this message, or that messages of the queue before it are missing; a 0th begins it anew."""
    key, queue_offset = (request.topic, request.queue_id), request.queue_offset
    if queue_offset == 0:
        gaps.pop(key, None)
    elif queue_offset != next_offsets.get(key, queue_offset):
        reason = f"goes on with {next_offsets[key]} by the log, this record is its {queue_offset}"
        gaps.setdefault(key, CorruptLogError(request.commit_log_offset, f"queue {key[0]}/{key[1]} {reason}"))
        return
    next_offsets[key] = queue_offset + 1

"""CommitLogDispatcherBuildConsumeQueue: hot path: a round's records become units of the consume queues.

They are grouped by queue, one write a queue. A unit is written only at exactly its QUEUEOFFSET; a queue that has no
such place for a record stops before it, and all others go on (store/stopped_queues.py; spec: commitlog §8.2, §9).

A record with the number 0 begins its queue anew, whatever was in it: a RocketMQ master that deletes a topic, and makes
it again, numbers its messages so, and nothing else in the log tells of that. Masters show what comes from then on, and
so do slaves of ours: always by the log alone, so each start comes to the same queues.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import structlog

from rmqha.codec.consume_queue import QUEUE_OFFSET_MAX, UNIT, UNIT_SIZE, sum_of_sizes
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.layout import enters_queue
from rmqha.errors import CorruptLogError, StoreReadError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable, QueueKey
from rmqha.store.log import Log
from rmqha.store.outlived import beginning_of, may_stop
from rmqha.store.stopped_queues import stop_before
from rmqha.store.unit_group import UnitGroup, write_groups

logger = structlog.get_logger()

_TOLD_MAX: Final = 100


class UnitPlan:
    """The units that a round adds, by queue; see :class:`~rmqha.store.commit_log_dispatcher.Plan`."""

    __slots__ = ("_counts", "_groups", "_queues")

    def __init__(self, queues: ConsumeQueueTable, groups: list[UnitGroup], *, is_counted: bool) -> None:
        self._queues: Final = queues
        self._groups: Final = groups
        self._counts: Final = [_count(group) for group in groups if is_counted]

    async def write(self) -> None:
        """See :meth:`Plan.write`."""
        await self._queues.dropped.delete_in_thread()
        await write_groups(self._groups)

    def write_here(self) -> None:
        """See :meth:`Plan.write_here`."""
        self._queues.dropped.delete()
        for group in self._groups:
            while not group.append():
                group.queue.create_file()

    def announce(self) -> None:
        """See :meth:`Plan.announce`."""
        grown = self._queues.stopped.grown() if self._queues.stopped else []
        for listener in self._queues.on_arrival:
            for group in self._groups:
                listener(group.queue.topic, group.queue.queue_id, group.end)
            for topic, queue_id, end in grown:
                listener(topic, queue_id, end)
        for count in self._queues.on_counted:
            for topic, messages, size_bytes in self._counts:
                count(topic, messages, size_bytes)


def _count(group: UnitGroup) -> tuple[str, int, int]:
    """The messages of a round in one queue, and their bytes."""
    return group.queue.topic, len(group.units) // UNIT_SIZE, sum_of_sizes(group.units)


class CommitLogDispatcherBuildConsumeQueue:
    """Builds ``queues``; see :class:`~rmqha.store.commit_log_dispatcher.CommitLogDispatcher`.

    A record that is in its queue already is passed over, and so is one that was deleted with its topic, or of a queue
    that is lost, or from before its queue began anew, or behind the record at which it stopped, or of no queue.
    """

    def __init__(self, log: Log, queues: ConsumeQueueTable) -> None:
        self._log: Final = log
        self._queues: Final = queues
        self._told = 0
        self._misfit: ConsumeQueue | None = None
        """The queue of the record that had no place in the last round, unless the log says that the queue is right."""

    def put_aside(self, *, misfits: bool) -> bool:
        """Put aside queues that lack a file, and with ``misfits`` the one that did not fit; whether there were any.

        If the log is missing as well, it is rather the whole store, and perhaps for a moment.
        """
        if misfits and self._misfit is not None:
            files, self._misfit = self._misfit.queue, None
            self._queues.note_missing(files.directory, damaged=files.files[-1].path)
        try:
            return self._queues.has_to_take_out and self._log.is_there and self._queues.take_out_missing()
        except StoreReadError:  # nobody can know at present
            return False

    def plan(self, requests: Sequence[DispatchRequest], *, at_start: bool) -> UnitPlan:
        """See :meth:`CommitLogDispatcher.plan`."""
        self._misfit = None
        return UnitPlan(self._queues, self._group(requests, at_start=at_start), is_counted=not at_start)

    def _group(self, requests: Iterable[DispatchRequest], *, at_start: bool) -> list[UnitGroup]:
        groups: dict[QueueKey, UnitGroup] = {}
        pack, is_repeated = UNIT.pack, False
        for request in requests:
            topic, queue_id, phy_offset, size, tags_code, _, queue_offset, sys_flag, _, _ = request
            if sys_flag and not enters_queue(sys_flag):
                continue
            key = (topic, queue_id)
            group = groups.get(key)
            if group is None:
                if queue_id < 0:
                    self._tell_of_damage(request)
                    continue
                if (deleted := self._queues.deleted.get(key)) is not None and deleted.holds(queue_offset, phy_offset):
                    continue
                if (lost := self._queues.lost.get(key)) is not None:
                    lost.pass_over(queue_offset, ends_at=phy_offset + size)
                    continue
                stopped = self._queues.stopped.get(key)
                if stopped is not None and stopped.passes_over(request):
                    continue
                group = groups[key] = UnitGroup(self._queues.find_or_create(topic, queue_id))
                if stopped is not None and phy_offset >= stopped.phy_offset:
                    group.stop()
                if deleted is not None and queue_offset < deleted.end and not group.queue.has_units:
                    self._queues.on_begun_again(topic, queue_id)
                is_repeated = is_repeated or phy_offset < group.queue.max_physic_offset
            if (queue_offset != group.next or is_repeated) and not self._is_acceptable(
                group, request, at_start=at_start
            ):
                continue
            group.units += pack(phy_offset, size, tags_code)
            group.next += 1
        return [group for group in groups.values() if group.units]

    def _tell_of_damage(self, request: DispatchRequest) -> None:
        """A record of no queue, as after a bit flipped in its queueId: all others go on."""
        self._told += 1
        if self._told <= _TOLD_MAX:
            facts = {"topic": request.topic, "queue_id": request.queue_id, "queue_offset": request.queue_offset}
            reason = "no queue has a negative number: the record is damaged, and no consumer sees it"
            logger.error("consume_queue.none", **facts, offset=request.commit_log_offset, reason=reason)

    def _is_acceptable(self, group: UnitGroup, request: DispatchRequest, *, at_start: bool) -> bool:
        """A record that may not be the queue's next: True if it is, or the queue begins with it; False for a repeat.

        A queue of which the log holds no message begins wherever the log says: another master may have known
        of a later end, or of none. One that stops has no place for it.

        Raises:
            CorruptLogError: the record has no place, and the queue may be damaged.
            StoreReadError: whether it is cannot be read at present.
        """
        queue, phy_offset = group.queue, request.commit_log_offset
        stopped = self._queues.stopped.get((queue.topic, queue.queue_id))
        if stopped is not None and stopped.passes_over(request):
            group.stop()
            return False
        unit = queue.unit(request.queue_offset)
        if unit is not None and unit[:2] == (phy_offset, request.msg_size):
            return False
        if not group.units and phy_offset < beginning_of(queue, self._log):
            return False
        if request.queue_offset != group.next:
            if not self._may_begin(group, request, at_start=at_start):
                self._stop(group, request)
                return False
            self._begin_again(group, request.queue_offset, phy_offset=phy_offset)
        return True

    def _may_begin(self, group: UnitGroup, request: DispatchRequest, *, at_start: bool) -> bool:
        """Whether the queue begins with this record, whatever was in it."""
        queue = group.queue
        if not 0 <= request.queue_offset <= QUEUE_OFFSET_MAX:
            return False
        if request.queue_offset == 0 and (group.units or queue.max_physic_offset <= request.commit_log_offset):
            return True
        return not group.units and (not queue.has_units or (not at_start and self._is_gone(queue, request)))

    def _stop(self, group: UnitGroup, request: DispatchRequest) -> None:
        """Let the queue end here. First it has to be right, as far as the log can tell."""
        queue = group.queue
        is_right = group.units or not queue.has_units or may_stop(queue, self._log)
        if not is_right or request.commit_log_offset < group.last_ends_at:
            self._misfit = queue
            where = f"queue {queue.topic}/{queue.queue_id} ends at {group.end}, this record is its"
            reason = f"{where} {request.queue_offset}, and the log does not prove that the queue is right"
            raise CorruptLogError(request.commit_log_offset, reason)
        self._queues.stopped.note((queue.topic, queue.queue_id), stop_before(request, group))

    def _begin_again(self, group: UnitGroup, begins_at: int, *, phy_offset: int) -> None:
        queue = group.queue
        key = queue.topic, queue.queue_id
        if queue.has_units or group.units:
            facts = {"topic": queue.topic, "queue_id": queue.queue_id, "ended_at": group.end, "begins_at": begins_at}
            hidden = self._messages_of(group)
            logger.warning("consume_queue.begun_again", **facts, hidden_messages=hidden)
            end = self._queues.stopped.next_of(key, group.end)
            self._queues.hidden.note(key, hidden, before=phy_offset, end=end)
            queue = group.queue = self._queues.begin_again(queue)
        self._queues.stopped.goes_on(key)
        queue.start_at(begins_at)
        group.next, group.units = begins_at, bytearray()

    def _messages_of(self, group: UnitGroup) -> int:
        """How many messages of this queue the log holds that are not deleted, those that it passed over among them."""
        queue = group.queue
        passed_over = self._queues.stopped.messages_of((queue.topic, queue.queue_id))
        if not (queue.has_messages or group.units):
            return passed_over
        first = max(queue.min_offset_in_queue, self._queues.deleted_end(queue.topic, queue.queue_id))
        return max(0, group.end - first) + passed_over

    def _is_gone(self, queue: ConsumeQueue, request: DispatchRequest) -> bool:
        """Whether the log holds no message of this queue, for certain unless the units are damaged.

        Or none that was not deleted with its topic: its files may be there still, and end before what was not visible
        yet when that was deleted.
        """
        deleted = self._queues.deleted.get((queue.topic, queue.queue_id))
        is_first = deleted is not None and request.queue_offset == deleted.end
        is_deleted = is_first and queue.max_offset_in_queue < request.queue_offset
        queue.correct_min_offset(request.commit_log_offset if is_deleted else self._log.min_offset)
        return not queue.has_messages

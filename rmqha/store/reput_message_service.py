"""ReputMessageService: hot path: what may be seen of the log goes into the consume queues.

Read in bulk from the mapped segment, grouped by queue, one write a queue. Two rules: nothing beyond the confirm offset
is dispatched, as consumers must not see what could still vanish; and a unit is written only at exactly its
QUEUEOFFSET. What breaks a rule stops dispatching and is flagged, nothing is ever skipped (spec: commitlog §8.2, §9).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import structlog
import trio

from rmqha.codec.consume_queue import UNIT, UNIT_SIZE
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.layout import enters_queue
from rmqha.errors import CorruptLogError, StoreError
from rmqha.store.commit_log import CommitLog
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable, QueueKey
from rmqha.store.dispatch_reader import DispatchReader
from rmqha.store.lost_queue import LostQueue
from rmqha.store.passing import may_pass
from rmqha.store.running_flags import RunningFlags
from rmqha.store.unit_group import UnitGroup, write_groups

logger = structlog.get_logger()

ArrivalListener = Callable[[str, int, int], None]
"""``listener(topic, queue_id, queue_end)``: that queue now ends at ``queue_end``; once a queue and round."""

_GATHER_S: Final = 0.005
"""While nobody waits for messages, what comes within this time is dispatched together."""

_TRY_AGAIN_S: Final = 1.0

_QUEUE_OFFSET_MAX: Final = (1 << 62) // UNIT_SIZE

_SEE: Final = ". See docs/operations.md, a slave whose queues stop"

_SHARE_WHEN_BEHIND: Final = 4
"""While the log itself is far behind, dispatch takes one part in this many of the time."""


class _Round(NamedTuple):
    groups: list[UnitGroup]
    end: int
    """Where the next round begins."""
    store_timestamp_ms: int


class ReputMessageService:
    """Dispatches the log to the queues; a record that is in its queue already is skipped.

    Invariants: every record before ``reput_from_offset`` is in its queue, unless that is lost; that offset was within
    the confirm offset when it was moved.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueTable,
        *,
        flags: RunningFlags,
        confirm_offset: Callable[[], int],
        delay_levels_ms: Sequence[int],
    ) -> None:
        self._commit_log = commit_log
        self._queues = queues
        self._flags = flags
        self._confirm_offset = confirm_offset
        self.log_reader: Final = DispatchReader(commit_log.queue, delay_levels_ms)
        self._wakeup = trio.Event()
        self._has_started = False
        self._is_awaited: Callable[[], bool] = lambda: False
        self._is_far_behind: Callable[[], bool] = lambda: False
        self.reput_from_offset = 0
        """Where dispatch goes on."""
        self.dispatched_timestamp_ms = 0
        """Store time of the last record dispatched; 0 if there is none."""
        self.on_arrival: list[ArrivalListener] = []
        self.on_lost: Callable[[list[LostQueue]], None] = lambda _queues: None
        """Told of queues whose files are missing: their records are passed over until they are put back."""
        queues.on_missing = self.wakeup

    def begin_at(self, offset: int) -> None:
        """Every record before ``offset`` is in its queue, says who opens the store: go on there."""
        self.reput_from_offset = offset

    def connect_consumers(self, on_arrival: ArrivalListener, *, is_awaited: Callable[[], bool]) -> None:
        """Tell ``on_arrival`` what is dispatched, promptly while ``is_awaited()``."""
        self.on_arrival.append(on_arrival)
        self._is_awaited = is_awaited

    def give_way_while(self, is_far_behind: Callable[[], bool]) -> None:
        """Go slowly while this log catches up with another's: first the messages must be safe, then visible."""
        self._is_far_behind = is_far_behind

    def wakeup(self) -> None:
        """The log may have grown, or the confirm offset may have moved."""
        self._wakeup.set()

    async def run(self) -> None:
        """Dispatch whatever may be seen, as it comes, until cancelled.

        What lacks space, descriptors or a file is tried again; any other error ends it and is flagged.
        """
        self._has_started = True
        while self._flags.dispatch_error is None:
            await self._wakeup.wait()
            if not self._is_awaited():
                await trio.sleep(_GATHER_S)
            self._wakeup = trio.Event()
            try:
                await self._dispatch()
            except StoreError as error:
                if self._take_out_lost():
                    self._wakeup.set()
                elif may_pass(error):
                    self._flags.hold_dispatch(error)
                    self._wakeup.set()
                    await trio.sleep(_TRY_AGAIN_S)
                else:
                    self._flags.fail_dispatch(error)

    async def _dispatch(self) -> None:
        self._take_out_lost()
        begun_at = trio.current_time()
        while (this := self._next_round()) is not None:
            await write_groups(this.groups)
            self._finish(this)
            self._flags.release_dispatch()
            self._take_out_lost()
            if this.end >= self._confirm_offset():
                break
            took_s = trio.current_time() - begun_at
            await trio.sleep((_SHARE_WHEN_BEHIND - 1) * took_s if self._is_far_behind() else 0)
            begun_at = trio.current_time()

    def catch_up(self) -> None:
        """Dispatch all that may be seen, here and now: for starting.

        Raises:
            CorruptLogError: the log cannot be read on, or a record has no place in its queue.
            StoreWriteError: a queue cannot be written.
        """
        while (this := self._next_round()) is not None:
            try:
                for group in this.groups:
                    while not group.append():
                        group.queue.create_file()
            except StoreError:
                if not self._take_out_lost():
                    raise
            else:
                self._finish(this)

    def _take_out_lost(self) -> bool:
        """Put aside queues that lack a file, so that all others go on; whether there were any. Between two rounds.

        If the log's newest segment is missing as well, it is rather the whole store, and perhaps for a moment.
        """
        log = self._commit_log.queue
        if not self._queues.missing or not log.files or not log.disk.exists(log.files[-1].path):
            return False
        taken = self._queues.take_out_missing()
        if taken:
            self.on_lost(taken)
        return bool(taken)

    def _next_round(self) -> _Round | None:
        """Read what comes next and find its places; None if nothing more may be seen now."""
        self.reput_from_offset = max(self.reput_from_offset, self._commit_log.min_offset)
        requests, end = self.log_reader.read(self.reput_from_offset, self._confirm_offset())
        if end == self.reput_from_offset:
            return None
        try:
            groups = self._group(requests)
        except CorruptLogError as error:  # first all that is before it; the next round then begins there
            end, requests = error.offset, [one for one in requests if one.commit_log_offset < error.offset]
            if not requests:
                raise
            groups = self._group(requests)
        timestamp_ms = requests[-1].store_timestamp_ms if requests else self.dispatched_timestamp_ms
        return _Round(groups, end, timestamp_ms)

    def _group(self, requests: Iterable[DispatchRequest]) -> list[UnitGroup]:
        groups: dict[QueueKey, UnitGroup] = {}
        pack = UNIT.pack
        for request in requests:
            topic, queue_id, phy_offset, size, tags_code, _, queue_offset, sys_flag = request
            if not enters_queue(sys_flag):
                continue
            group = groups.get((topic, queue_id))
            if group is None:
                if (lost := self._queues.lost.get((topic, queue_id))) is not None:
                    lost.pass_over(queue_offset, ends_at=phy_offset + size)
                    continue
                group = groups[topic, queue_id] = UnitGroup(self._queues.find_or_create(topic, queue_id))
            if queue_offset != group.next and not self._is_acceptable(group, request):
                continue
            group.units += pack(phy_offset, size, tags_code)
            group.next += 1
        return [group for group in groups.values() if group.units]

    def _is_acceptable(self, group: UnitGroup, request: DispatchRequest) -> bool:
        """A record that is not the queue's next: True if the queue begins with it, False for a repeat.

        A queue of which the log holds no message begins wherever the log says: another master may have known
        of a later end, or of none.

        Raises:
            CorruptLogError: units before it are missing, or its place is taken by another record.
            StoreWriteError: the units of messages that are gone cannot be dropped.
        """
        queue, phy_offset = group.queue, request.commit_log_offset
        if not 0 <= request.queue_offset <= _QUEUE_OFFSET_MAX:
            raise CorruptLogError(phy_offset, f"no message can be the {request.queue_offset}th of its queue")
        unit = queue.unit(request.queue_offset)
        if unit is not None and unit[:2] == (phy_offset, request.msg_size):
            return False
        if not group.units and (not queue.has_units or self._is_gone(queue)):
            if queue.has_units:
                facts = {"topic": queue.topic, "queue_id": queue.queue_id, "ended_at": group.next}
                logger.warning("consume_queue.begun_again", **facts, begins_at=request.queue_offset)
                queue = group.queue = self._queues.begin_again(queue)
            queue.start_at(request.queue_offset)
            group.next = request.queue_offset
            return True
        where = f"queue {queue.topic}/{queue.queue_id} ends at {group.next}, this record is its {request.queue_offset}"
        if request.queue_offset > group.next:
            raise CorruptLogError(phy_offset, f"{where}: units before it are missing{_SEE}")
        raise CorruptLogError(phy_offset, f"{where}: that place belongs to another record{_SEE}")

    def _is_gone(self, queue: ConsumeQueue) -> bool:
        """Whether the log holds no message of this queue, for certain: at a start damaged units may look like that."""
        if not self._has_started:
            return False
        queue.correct_min_offset(self._commit_log.min_offset)
        return not queue.has_messages

    def _finish(self, this: _Round) -> None:
        self.reput_from_offset = this.end
        self.dispatched_timestamp_ms = this.store_timestamp_ms
        self._commit_log.note_records(this.end, this.store_timestamp_ms)
        for listener in self.on_arrival:
            for group in this.groups:
                listener(group.queue.topic, group.queue.queue_id, group.next)

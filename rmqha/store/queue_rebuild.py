"""QueueRebuildService: builds consume queues again from the log whose files vanish, or prove damaged, in life.

They are derived: what is lost is only time. Dispatch passes over their records (:class:`LostQueue`) and serves all
other queues on; here the log is read a second time, for the lost queues alone, until they are where dispatch is.
"""

import errno
from itertools import islice
from typing import Final

import structlog
import trio

from rmqha.codec.consume_queue import QUEUE_OFFSET_MAX, UNIT
from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.layout import enters_queue
from rmqha.errors import StoreError, StoreWriteError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable, QueueKey
from rmqha.store.damaged_queues import DamagedQueues, read_on
from rmqha.store.disk import Disk
from rmqha.store.log import Log
from rmqha.store.lost_queue import LostQueue
from rmqha.store.mapped_file import parse_file_name
from rmqha.store.passing import may_pass
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.running_flags import RunningFlags
from rmqha.store.stopped_queues import StoppedQueue, stop_before
from rmqha.store.unit_group import UnitGroup, write_groups

logger = structlog.get_logger()

_NAMED_MAX: Final = 10
_LOOKED_AT_AT_ONCE: Final = 500
_PUT_BACK_AT_ONCE: Final = 200
_GATHER_S: Final = 0.1
"""Queues that vanish together are built together."""
_TRY_AGAIN_S: Final = 1.0
_SHARE: Final = 4
"""Rebuilding takes one part in this many of the time."""

_Begun = tuple[LostQueue, DeletedQueue | None]
"""What was known of a queue when its building began, and what is deleted of it."""


class QueueRebuildService:
    """Heals lost queues, all that are known at one time with one reading of the log."""

    def __init__(
        self,
        disk: Disk,
        log: Log,
        queues: ConsumeQueueTable,
        *,
        reput: ReputMessageService,
        flags: RunningFlags,
    ) -> None:
        self._disk: Final = disk
        self._log: Final = log
        self._queues: Final = queues
        self._reput: Final = reput
        self._flags: Final = flags
        self._damaged: Final = DamagedQueues(log, queues)
        self._wakeup = trio.Event()
        self._position = 0
        self._taken: list[LostQueue] = []
        """Of which the log has not been told."""
        self._begun: dict[QueueKey, _Begun] = {}
        self._stopped: dict[QueueKey, StoppedQueue] = {}
        """Of those that are being built."""
        self._changes = 0
        """Those of the table that are known."""
        self._held_by = ""

    def take(self, taken: list[LostQueue]) -> None:
        """These have lost their files: build them again. Of deleted ones only what has come since."""
        self._taken += taken
        self._wakeup.set()

    def _tell_taken(self) -> None:
        taken, self._taken = self._taken, []
        deleted, lost = [one for one in taken if one.is_deleted], [one for one in taken if not one.is_deleted]
        if deleted:
            logger.info("consume_queue.deleted", count=len(deleted), queues=_names(deleted))
        if lost:
            logger.warning(
                "consume_queue.lost",
                count=len(lost),
                queues=_names(lost),
                file=lost[0].path,
                next="built again from the commitlog; all other queues go on",
            )

    def suspect(self, queue: ConsumeQueue, index: int) -> None:
        """This unit does not lead to its record: the queue is built again, unless it is the log that is damaged."""
        self._damaged.add(queue, index)
        self._wakeup.set()

    def describe(self) -> str:
        """Which queues are lost, and how far they are built again; empty if none is."""
        lost = [queue for queue in self._queues.lost.values() if not queue.is_deleted]
        if not lost:
            return self._damaged.describe(self._reput.reput_from_offset)
        left_bytes = max(self._reput.reput_from_offset - self._position, 0)
        more = f" and {len(lost) - _NAMED_MAX} more" if len(lost) > _NAMED_MAX else ""
        held = f" (it tries again: {self._held_by})" if self._held_by else ""
        return (
            f"consume queues {', '.join(_names(lost))}{more} lost their files, or have damaged ones ({lost[0].path}), "
            f"and are built again, {left_bytes} bytes of the log to go{held}"
        )

    async def run(self) -> None:
        """Build what is lost until cancelled, or until the log turns out to have gaps, which ends dispatch as well."""
        while self._flags.dispatch_error is None:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            try:
                await self._look_for_more()
                await trio.sleep(_GATHER_S)
                self._tell_taken()
                if self._damaged:
                    await self._damaged.check(self._reput.reput_from_offset)
                if self._queues.lost:
                    await self._build([*self._queues.lost.values()])
                self._held_by = ""
            except StoreError as error:
                if not (may_pass(error) or (isinstance(error, StoreWriteError) and error.errno == errno.EEXIST)):
                    self._flags.fail_dispatch(error)
                    return
                if not self._held_by:
                    logger.warning("consume_queue.rebuild_held", reason=str(error))
                self._held_by = str(error)
                await trio.sleep(_TRY_AGAIN_S)
            if self._queues.lost or self._damaged:
                self._wakeup.set()

    async def _look_for_more(self) -> None:
        """Where one queue is missing, others are, too: somebody has removed a topic, or all."""
        for number, queue in enumerate([*self._queues]):
            if number % _LOOKED_AT_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            files = queue.queue.files
            if files and not self._disk.exists(files[-1].path):
                self._queues.note_missing(queue.queue.directory)

    async def _build(self, lost: list[LostQueue]) -> None:
        """Build these queues and put them back. Raises StoreError: none of those that are left is of any use."""
        begun_at = trio.current_time()
        groups: dict[QueueKey, UnitGroup] = {}
        self._changes, self._stopped = self._queues.changes, {}
        self._begun = {(queue.topic, queue.queue_id): self._facts_of((queue.topic, queue.queue_id)) for queue in lost}
        try:
            for queue in lost:
                directory = f"{self._queues.directory}/{queue.topic}/{queue.queue_id}"
                await self._disk.in_thread(lambda path=directory: self._clear(path))  # type: ignore[misc]
                groups[queue.topic, queue.queue_id] = UnitGroup(self._queues.make_empty(queue.topic, queue.queue_id))
            begins_at = min(self._reput.reput_from_offset, *(queue.begins_at for queue in lost))
            self._position = self._where_records_begin(max(begins_at, self._log.min_offset))
            while groups and self._position >= self._log.min_offset:
                await self._next_round(groups)
        finally:
            self._leave_out([*groups], groups)
        left = self._queues.lost
        built = [one for one in lost if not one.is_deleted and left.get((one.topic, one.queue_id)) is not one]
        if built:
            took_s = round(trio.current_time() - begun_at, 3)
            logger.info("consume_queue.rebuilt", count=len(built), queues=_names(built), took_s=took_s)

    def _where_records_begin(self, offset: int) -> int:
        """It, or where its segment begins: what another broker deleted ends where its log did, within a record here."""
        if offset >= self._reput.reput_from_offset or self._log.record_at(offset, end=self._log.max_offset) is not None:
            return offset
        begins = [extent.begin for extent in self._log.extents() if extent.begin <= offset]
        return max(begins, default=self._log.min_offset)

    def _facts_of(self, key: QueueKey) -> _Begun:
        return self._queues.lost[key], self._queues.deleted.get(key)

    def _leave_out_changed(self, groups: dict[QueueKey, UnitGroup]) -> None:
        """Of these more is deleted, or less, than when their building began, which is to begin again."""
        if self._changes != self._queues.changes:
            self._changes = self._queues.changes
            self._leave_out([key for key in groups if self._facts_of(key) != self._begun[key]], groups)

    def _leave_out(self, keys: list[QueueKey], groups: dict[QueueKey, UnitGroup]) -> None:
        for key in keys:
            group = groups.pop(key)
            group.queue.queue.close()
            self._queues.dirty.pop(group.queue, None)

    def _clear(self, directory: str) -> None:
        """Remove what is left of a queue, the newest first, so that a crash in between leaves no hole."""
        for name in reversed(self._disk.listdir(directory)):
            if parse_file_name(name) is not None:
                self._disk.unlink(f"{directory}/{name}")

    async def _next_round(self, groups: dict[QueueKey, UnitGroup]) -> None:
        self._leave_out_changed(groups)
        begun_at, dispatched = trio.current_time(), self._reput.reput_from_offset
        requests, self._position = read_on(self._log, self._position, dispatched)
        grown: dict[UnitGroup, None] = {}
        for request in requests:
            group = groups.get((request.topic, request.queue_id))
            if group is not None and enters_queue(request.sys_flag) and not self._queues.deleted.holds(request):
                self._add(group, request)
                grown[group] = None
        took_s = trio.current_time() - begun_at
        await write_groups([*grown])
        if self._position < self._reput.reput_from_offset:
            await trio.sleep((_SHARE - 1) * took_s)
            return
        for key, group in [*groups.items()]:
            if self._position >= self._queues.lost[key].ends_at:
                await self._keep_end(group, self._queues.lost[key])
        keys = iter([*groups])
        while piece := list(islice(keys, _PUT_BACK_AT_ONCE)):
            self._leave_out_changed(groups)
            self._put_back(piece, groups)
            await trio.lowlevel.checkpoint()
        if groups:
            await trio.sleep(_GATHER_S)

    async def _keep_end(self, group: UnitGroup, lost: LostQueue) -> None:
        """A queue of which the log holds no message is left with fillers up to its end, which nothing else may tell.

        Dispatch may pass over its next message meanwhile: that one is built in the next round. The end of a deleted
        queue is in :attr:`ConsumeQueueTable.known_ends`.
        """
        end = lost.end
        if end and not lost.is_deleted and not group.queue.queue.files:
            group.queue.start_at(end)
            await group.queue.create_file_in_thread()
            group.next = end
            if (group.queue.topic, group.queue.queue_id) in self._stopped:
                group.stop()

    def _put_back(self, keys: list[QueueKey], groups: dict[QueueKey, UnitGroup]) -> None:
        """Put back those of these queues that are where dispatch is, which goes on only behind this."""
        for key in keys:
            if (group := groups.get(key)) is None:
                continue
            lost = self._queues.lost[key]
            passed_over = max(self._reput.reput_from_offset, lost.ends_at)
            has_files = bool(group.queue.queue.files)
            if self._position < passed_over or (lost.end and not lost.is_deleted and not has_files):
                continue
            group.queue.correct_min_offset(self._log.min_offset)
            self._queues.put_back(group.queue)
            self._tell_stopped(key)
            del groups[key]
            if has_files or not lost.is_deleted:
                for listener in self._queues.on_arrival:
                    listener(*key, group.end)

    def _tell_stopped(self, key: QueueKey) -> None:
        if (stopped := self._stopped.get(key)) is not None:
            self._queues.stopped.note(key, stopped)
        elif key in self._queues.stopped:
            self._queues.stopped.goes_on(key)
            self._log.learn_queue_offset(*key, self._queues.range_of(*key)[1])  # of a deleted one nothing was built

    def _add(self, group: UnitGroup, request: DispatchRequest) -> None:
        """Add the record's unit, if it has a place; a 0th begins the queue anew."""
        queue, queue_offset = group.queue, request.queue_offset
        key = queue.topic, queue.queue_id
        if queue_offset != group.next:
            if queue_offset == 0:
                stopped = self._stopped.pop(key, None)
                messages = group.end - queue.min_offset_in_queue + (0 if stopped is None else stopped.messages)
                end = group.end if stopped is None else stopped.next
                self._queues.hidden.note(key, messages, before=request.commit_log_offset, end=end)
                if queue.has_units:
                    queue.empty()
            elif (stopped := self._stopped.get(key)) is not None:
                stopped.passes_over(request)
                return
            elif group.units or queue.queue.files or not 0 < queue_offset <= QUEUE_OFFSET_MAX:
                self._stopped[key] = stop_before(request, group)
                return
            queue.start_at(queue_offset)
            group.next, group.units = queue_offset, bytearray()
        group.units += UNIT.pack(request.commit_log_offset, request.msg_size, request.tags_code)
        group.next += 1


def _names(queues: list[LostQueue]) -> list[str]:
    return [f"{queue.topic}/{queue.queue_id}" for queue in queues[:_NAMED_MAX]]
